"""What stands for ONNX Runtime's composites computes what its own kernels compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from fused_cases import FUSED
from planner import opdefs
from planner.errors import ModelError, TofuError, UnsupportedError
from planner.features.ops.cases.case import Case, execute_case
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.runtime.judge.reference import Reference

MICROSOFT = "com.microsoft"
SAMPLES, POSITIONS, PAST, WIDTH, HEADS, SIZE = 2, 5, 3, 24, 4, 8
INNER = HEADS * SIZE
RNG = np.random.default_rng(0)
Inputs = Mapping[str, np.ndarray]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def lengths(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def mask(*shape: int) -> np.ndarray:
    chosen = (RNG.random(shape) < 0.6).astype(np.int32)
    chosen[..., 0] = 1
    return chosen


def one_op(
    op_type: str, inputs: Inputs, outputs: tuple[str, ...], constants: tuple[str, ...] = (), **attributes: object
) -> onnx.ModelProto:
    """A model of one op; an input whose name begins with "-" is absent."""
    names = ["" if name.startswith("-") else name for name in inputs]
    node = helper.make_node(op_type, names, list(outputs), "the op", domain=MICROSOFT, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
        if name in names and name not in constants
    ]
    # ONNX Runtime infers the types of outputs; nothing here says them to the reader.
    made = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    values = [numpy_helper.from_array(inputs[name], name) for name in constants]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph([node], "one", given, made, values), opset_imports=opsets, ir_version=8)


def executed(model: onnx.ModelProto, inputs: Inputs) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made: list[np.ndarray] = session.run(None, {value.name: inputs[value.name] for value in model.graph.input})
    return made


def held_against_the_kernel(model: onnx.ModelProto, inputs: Inputs) -> list[tuple[str, str]]:
    graph = graph_from_proto(model, operators=opdefs.standard())
    for made, expected in zip(executed(to_model(graph), inputs), executed(model, inputs), strict=True):
        assert made.dtype == expected.dtype
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected, rtol=0, atol=5e-6 * max(1, np.abs(expected).max()))
    return [(op.domain, op.op_type) for op in graph.ops]


@pytest.mark.parametrize("case", FUSED, ids=str)
def test_ops_that_the_optimizer_made_one(case: Case) -> None:
    """In the model's precision, and in float64: the reference is of the ops that are read, and no formula beside."""
    graph, inputs, made = execute_case(case)
    read = graph_from_proto(to_model(graph), operators=opdefs.standard())
    assert MICROSOFT not in {op.domain for op in read.ops}
    reference = Reference(read)
    for results in (dict(zip(read.outputs, executed(to_model(read), inputs), strict=True)), reference.step(inputs)):
        for name, expected in made.items():
            np.testing.assert_allclose(results[name], expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max()))
    assert set(reference.own_precision) <= {"SimplifiedLayerNormalization"}


def test_every_operator_that_is_read_as_others_has_a_case() -> None:
    below = {"Attention", "EmbedLayerNormalization", "GroupQueryAttention", "MultiHeadAttention"}
    assert {case.op_type for case in FUSED} | below == {
        name.removeprefix(f"{MICROSOFT}.") for name in decompositions(Purpose.READING)
    }


def test_gelu_is_onnxs_where_that_is_there() -> None:
    cases = [case for case in FUSED if case.op_type in ("BiasGelu", "FastGelu", "Gelu")]
    assert cases
    for case in cases:
        graph, inputs, made = execute_case(replace(case, opset=20))
        read = graph_from_proto(to_model(graph), operators=opdefs.standard())
        assert [op.op_type for op in read.ops][-1] == "Gelu"
        np.testing.assert_allclose(executed(to_model(read), inputs)[0], made["y0"], rtol=0, atol=1e-5)


def attention_inputs(**more: np.ndarray | None) -> dict[str, np.ndarray]:
    inputs = {"x": normal(SAMPLES, POSITIONS, WIDTH), "w": normal(WIDTH, 3 * INNER), "b": normal(3 * INNER)}
    for name in ("mask", "past", "added"):
        value = more.get(name)
        inputs[name if value is not None else f"-{name}"] = np.zeros(0) if value is None else value
    return inputs


ALL = PAST + POSITIONS
MASKS = {
    "none": (None, None),
    "lengths": (lengths(3, 5), lengths(6, 8)),
    "ends and starts": (lengths(4, 5, 1, 0), lengths(7, 8, 2, 0)),
    "packed lengths": (lengths(3, 5, 0, 5, 10, 0, 5, 10), None),
    "by key": (mask(SAMPLES, POSITIONS), mask(SAMPLES, ALL)),
    "by query": (mask(SAMPLES, POSITIONS, POSITIONS), mask(SAMPLES, POSITIONS, ALL)),
}


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize("form", MASKS)
def test_attention(form: str, has_past: bool, unidirectional: int) -> None:
    given = MASKS[form][has_past]
    if has_past and form == "packed lengths":
        pytest.skip("the kernel has no packed lengths of samples with a past")
    inputs = attention_inputs(mask=given, past=normal(2, SAMPLES, HEADS, PAST, SIZE) if has_past else None)
    outputs = ("y", "present") if has_past else ("y",)
    model = one_op("Attention", inputs, outputs, num_heads=HEADS, unidirectional=unidirectional)
    kinds = held_against_the_kernel(model, inputs)
    assert kinds.count(("", "MatMul")) == 3
    assert (MICROSOFT, "MultiHeadAttention") in kinds


@pytest.mark.parametrize("constants", [(), ("w",), ("w", "b")])
def test_weights_that_are_known_are_cut_beforehand(constants: tuple[str, ...]) -> None:
    inputs = attention_inputs(added=normal(1, HEADS, POSITIONS, POSITIONS))
    model = one_op("Attention", inputs, ("y",), constants, num_heads=HEADS, scale=0.25, mask_filter_value=-1e9)
    kinds = held_against_the_kernel(model, inputs)
    assert kinds.count(("", "Split")) == 2 - len(constants)


def test_weights_of_the_parts_stay_weights() -> None:
    inputs = attention_inputs()
    model = one_op("Attention", inputs, ("y",), ("w", "b"), num_heads=HEADS)
    graph = graph_from_proto(model, operators=opdefs.standard())
    assert len(graph.constants) == 6
    assert graph.folded == frozenset()


def test_queries_and_values_of_other_sizes() -> None:
    sizes = (INNER, INNER, HEADS * 4)
    inputs = {"x": normal(SAMPLES, POSITIONS, WIDTH), "w": normal(WIDTH, sum(sizes)), "b": normal(sum(sizes))}
    held_against_the_kernel(one_op("Attention", inputs, ("y",), num_heads=HEADS, qkv_hidden_sizes=sizes), inputs)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("given", [None, mask(SAMPLES, ALL)], ids=["no mask", "mask"])
@pytest.mark.parametrize("queries", [1, POSITIONS])
def test_keys_that_are_past(queries: int, given: np.ndarray | None, unidirectional: int) -> None:
    past = normal(SAMPLES, HEADS, PAST, SIZE)
    inputs = {name: normal(SAMPLES, queries, INNER) for name in "qkv"} | {"b": normal(3 * INNER)}
    name, keys = ("-mask", np.zeros(0)) if given is None else ("mask", given[:, : PAST + queries].copy())
    inputs |= {name: keys, "-added": np.zeros(0), "past_k": past, "past_v": past * 0.5}
    outputs = ("y", "present_k", "present_v")
    model = one_op("MultiHeadAttention", inputs, outputs, num_heads=HEADS, unidirectional=unidirectional)
    held_against_the_kernel(model, inputs)


def test_keys_of_another_tensor_with_a_bias() -> None:
    by_head = normal(SAMPLES, HEADS, 7, SIZE)
    inputs = {"q": normal(SAMPLES, POSITIONS, INNER), "k": by_head, "v": by_head * 0.5, "b": normal(3 * INNER)}
    held_against_the_kernel(one_op("MultiHeadAttention", inputs, ("y",), num_heads=HEADS), inputs)


@pytest.mark.parametrize("room", [5, 8])
def test_groups_of_heads_in_one_tensor(room: int) -> None:
    past = normal(SAMPLES, 2, room, 16)
    inputs = {
        "qkv": normal(SAMPLES, 1, 8 * 16),
        "-k": np.zeros(0),
        "-v": np.zeros(0),
        "past_k": past,
        "past_v": past * 2,
    }
    inputs |= {"lengths": lengths(5, 3), "total": np.array(6, np.int32), "cos": normal(9, 8), "sin": normal(9, 8)}
    outputs = ("y", "present_k", "present_v")
    stated = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    model = one_op("GroupQueryAttention", inputs, outputs, ("total",), **stated)
    kinds = held_against_the_kernel(model, inputs)
    assert kinds == [("", "Split"), (MICROSOFT, "GroupQueryAttention")]


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("outputs", [("y", "lengths"), ("y", "lengths", "sum")])
def test_embeddings(outputs: tuple[str, ...], positions: bool, segments: bool) -> None:
    ids = RNG.integers(0, 4, (SAMPLES, POSITIONS)).astype(np.int32)
    none = np.zeros(0)
    inputs = {
        "ids": ids,
        ("" if segments else "-") + "segments": ids % 2 if segments else none,
        "words": normal(4, WIDTH),
        "places": normal(9, WIDTH),
        ("" if segments else "-") + "segment_table": normal(2, WIDTH) if segments else none,
        "scale": normal(WIDTH),
        "shift": normal(WIDTH),
        ("" if positions else "-") + "mask": mask(SAMPLES, POSITIONS),
        ("" if positions else "-") + "positions": ids + 1 if positions else none,
    }
    held_against_the_kernel(one_op("EmbedLayerNormalization", inputs, outputs, epsilon=1e-5), inputs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"do_rotary": 1}, "a rotary embedding inside"),
        ({"past_present_share_buffer": 1}, "a cache that is written in place"),
        ({"num_heads": 0}, "its attribute num_heads is 0"),
        ({"num_heads": 5}, "its 5 heads do not divide 32, 32, 32 elements"),
        ({"qkv_hidden_sizes": [8, 8, 8]}, "its input 1 has 96 columns, not 24"),
        ({"qkv_hidden_sizes": [96]}, "is no list of three sizes"),
    ],
)
def test_what_is_not_taken_is_named(change: dict[str, object], said: str) -> None:
    model = one_op("Attention", attention_inputs(), ("y",), **{"num_heads": HEADS, **change})
    with pytest.raises((ModelError, UnsupportedError)) as refused:
        graph_from_proto(model, operators=opdefs.standard())
    text = "\n".join((refused.value.what, *refused.value.facts))
    assert "op 'the op' (Attention): " in text
    assert said in text


@pytest.mark.parametrize("op_type", sorted(name.rpartition(".")[2] for name in decompositions(Purpose.READING)))
@pytest.mark.parametrize("number", range(8))
def test_inputs_that_are_absent_or_of_other_ranks_are_refused(op_type: str, number: int) -> None:
    rng = np.random.default_rng(number)
    inputs = {}
    for slot in range(rng.integers(1, 9)):
        shape = rng.integers(1, 4, rng.integers(0, 5))
        inputs[("-" if rng.random() < 0.3 else "") + f"x{slot}"] = np.zeros(shape, np.float32)
    model = one_op(op_type, inputs, ("y", "z"), num_heads=2)
    with pytest.raises(TofuError) as refused:
        graph_from_proto(model, operators=opdefs.standard())
    assert "the op" in "\n".join((refused.value.what, *refused.value.facts))
