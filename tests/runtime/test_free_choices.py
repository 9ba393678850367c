"""What ONNX leaves to the runtime is as the runtime has it in the reference; and a reference that is wrong is found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from attentions import graph_of
from planner import api, opdefs
from planner.errors import ModelError
from planner.graph.core.model import Graph, Op
from planner.graph.decompositions import expand
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.runtime.judge.kernel_arguments import Kernel
from planner.runtime.judge.reference import Reference, kernel_of
from planner.runtime.judge.references import Judge
from planner.runtime.judge.whole import WholeModel

HEAD = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> g '


def read(text: str) -> Graph:
    return graph_from_proto(onnx.parser.parse_model(HEAD + text), state_pairs=(), operators=opdefs.standard())


def drawn(graph: Graph, **known: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: known.get(name, rng.standard_normal(graph.tensors[name].shape).astype(np.float32))
            for name in graph.inputs}  # fmt: skip


def assert_alike(graph: Graph, values: Mapping[str, np.ndarray], about: str = "") -> None:
    exact = Reference(graph).step(values)
    for name, whole in WholeModel(graph).step(values).items():
        atol = 2e-6 if whole.dtype == np.float32 else 4e-3
        np.testing.assert_allclose(exact[name], whole, atol=atol, err_msg=f"{about} {name}")


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_the_last_state_of_an_empty_sequence(op_type: str, gates: int, direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    cell, more = (", c", f", float[{d}, 3, 4] yc") if op_type == "LSTM" else ("", "")
    graph = read(
        f"(float[3, 3, 2] x, float[{d}, {4 * gates}, 2] w, float[{d}, {4 * gates}, 4] r, int32[3] lengths,"
        f" float[{d}, 3, 4] h{', float[' + str(d) + ', 3, 4] c' if cell else ''})"
        f" => (float[3, {d}, 3, 4] y, float[{d}, 3, 4] yh{more})"
        f' {{ y, yh{", yc" if cell else ""} = {op_type} <hidden_size = 4, direction = "{direction}">'
        f" (x, w, r, , lengths, h{cell}) }}"
    )
    for lengths in ([0, 3, 2], [2, 0, 1], [0, 0, 0]):
        assert_alike(graph, drawn(graph, lengths=np.array(lengths, np.int32)), str(lengths))


@pytest.mark.parametrize(
    "text",
    [
        "(float[4, 9] x) => (float[4, 3] v, int64[4, 3] i) <int64[1] k = {3}> { v, i = TopK <sorted = 0> (x, k) }",
        "(float[4, 40] x) => (float[4, 9] v) <int64[1] k = {9}> { v, i = TopK <sorted = 0, largest = 0> (x, k) }",
        "(float[2, 3, 5, 4] q, float[2, 3, 6, 4] k, float[2, 3, 6, 4] v)"
        " => (float[2, 3, 5, 4] y, float[2, 3, 5, 6] scores) { y, , , scores = Attention (q, k, v) }",
        "(float[2, 0] x, float[2] z) => (float[2] y) <int64[1] a = {1}>"
        " { m = ReduceMean <keepdims = 0> (x, a) y = Add (m, z) }",
        "(float[2, 0] x, float[2] z) => (float[2] y) <int64[1] a = {1}>"
        " { m = ReduceLogSumExp <keepdims = 0> (x, a) e = Exp (m) y = Add (e, z) }",
        "(float[1, 4, 16] x) => (float[1, 4, 16] y) <int64[1, 4] p = {0, 1, 2, 5}, float[6, 2] c = {1.0, 0.0, 0.5, 0.1,"
        " 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, float[6, 2] s = {0.0, 1.0, 0.5, 0.9, 0.8, 0.7, 0.6, 0.5,"
        " 0.4, 0.3, 0.2, 0.1}>"
        " { y = com.microsoft.RotaryEmbedding <scale = 2.0> (x, p, c, s) }",
    ],
    ids=["unsorted", "unsorted values", "scores", "mean of nothing", "logarithm of nothing", "scale"],
)  # fmt: skip
def test_what_the_runtime_chooses(text: str) -> None:
    graph = read(text)
    values = drawn(graph)
    assert all(np.isfinite(value).all() for value in WholeModel(graph).step(values).values())
    assert_alike(graph, values)
    judge = Judge(graph)
    found, _ = judge.compare(1, judge.whole.step(values), values)
    assert all(tensor.is_same for tensor in found.tensors)
    assert not found.far


def test_an_open_order_is_compared_as_a_set() -> None:
    graph = read(
        "(float[3, 9] x) => (float[3, 4] v, int64[3, 4] i) <int64[1] k = {4}> { v, i = TopK <sorted = 0> (x, k) }"
    )
    judge, values = Judge(graph), drawn(graph)
    whole = judge.whole.step(values)
    turned = {name: array[:, ::-1] for name, array in whole.items()}
    assert judge.compare(1, turned, values)[0].is_same
    assert not judge.compare(1, {**turned, "v": whole["v"]}, values)[0].is_same
    other = {**turned, "i": np.where(turned["i"] == turned["i"].max(), 0, turned["i"])}
    assert not judge.compare(1, other, values)[0].is_same


FORMS: list[tuple[str, dict[str, Any], bool, Any]] = [
    ("plain", {}, False, np.float32),
    ("window", {"local_window_size": 3}, False, np.float32),
    ("window of halves", {"local_window_size": 3}, False, np.float16),
    ("window and cap", {"local_window_size": 3, "softcap": 2.0}, False, np.float32),
    ("window and smooth", {"local_window_size": 2, "smooth_softmax": 1}, False, np.float32),
    ("window and sink", {"local_window_size": 3}, True, np.float32),
    ("sink and turned", {"do_rotary": 1}, True, np.float32),
]


@pytest.mark.parametrize(
    ("attributes", "has_sink", "dtype"), [form[1:] for form in FORMS], ids=[one[0] for one in FORMS]
)
@pytest.mark.parametrize("is_known", [True, False])
def test_prompts_shorter_than_their_positions(
    attributes: dict[str, Any], has_sink: bool, dtype: Any, is_known: bool
) -> None:
    """In the body and in the reference; of several samples the body is written where the prompt is known to be one."""
    lengths = [2, 6, 0] if is_known else [3]
    rng, batch, new, heads, own, size = np.random.default_rng(0), len(lengths), 7, 4, 2, 16

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    inputs: dict[str, np.ndarray | None] = {
        "q": normal(batch, new, heads * size), "k": normal(batch, new, own * size), "v": normal(batch, new, own * size),
        "past_key": None, "past_value": None, "lengths": np.array(lengths, np.int32), "total": np.array(new, np.int32),
        **dict.fromkeys(("cosine", "sine", "positions", "added", "sink")),
    }  # fmt: skip
    if "do_rotary" in attributes:
        inputs |= {"cosine": normal(8, 8), "sine": normal(8, 8)}
    if has_sink:
        inputs["sink"] = normal(heads)
    rows = (batch, own, new, size)
    graph, values = graph_of(
        "GroupQueryAttention", inputs, {"y": (batch, new, heads * size), "key": rows, "value": rows},
        {"num_heads": heads, "kv_num_heads": own, **attributes}, domain="com.microsoft", opset=21,
        constants=("total",) if is_known else (),
    )  # fmt: skip
    assert_alike(graph, values)
    expanded = expand(graph)
    assert expanded.bodies
    wanted, found = WholeModel(graph).step(values), WholeModel(expanded.graph).step(values)
    for name, whole in wanted.items():
        np.testing.assert_allclose(
            found[name].astype(float), whole.astype(float), atol=5e-6 if dtype == np.float32 else 8e-3
        )


def test_padded_prompts_cut_by_keys_are_verified(tmp_path: Path) -> None:
    graph = read(
        "(float[1, 16, 32] q, float[1, 16, 16] k, float[1, 16, 16] v, int32[1] n) => (float[1, 16, 32] y,"
        " float[1, 2, 16, 8] ck, float[1, 2, 16, 8] cv) <int32 t = {16}>"
        " { y, ck, cv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, , , n, t) }"
    )
    write_model(graph, tmp_path / "m.onnx")
    values = drawn(graph, n=np.array([9], np.int32))
    for way, pins in (("rows", {"y": "S(1)"}), ("keys", {"k": "S(1)", "v": "S(1)"})):
        api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / way, pin=pins)
        ran = api.run(tmp_path / way, inputs=values, verify=True)
        assert ran.verified
        np.testing.assert_allclose(ran.results["y"], WholeModel(graph).step(values)["y"], atol=1e-5)


def _hands_on(graph: Graph, op: Op) -> Kernel | None:
    """Another last state of an RNN: that of the first step is added to it."""
    kernel = kernel_of(graph, op)
    if op.op_type != "RNN" or kernel is None:
        return kernel

    def wrong(op: Op, inputs: Any) -> tuple[np.ndarray, ...]:
        y, *last = kernel(op, inputs)
        return (y, *(array + inputs[5] for array in last))

    return wrong


def test_a_reference_that_is_wrong_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split run that makes the same mistake as the reference is not verified, and a right one is not called wrong."""
    graph = read(
        "(float[3, 2, 2] x, float[1, 4, 2] w, float[1, 4, 4] r, int32[2] n, float[1, 2, 4] h)"
        " => (float[3, 1, 2, 4] z, float[1, 2, 4] yh)"
        " { y, yh = RNN <hidden_size = 4> (x, w, r, , n, h) z = Relu (y) }"
    )
    values = drawn(graph, n=np.array([3, 2], np.int32))
    right = WholeModel(graph).step(values)
    assert Judge(graph).compare(1, right, values)[0].is_same
    monkeypatch.setattr("planner.runtime.judge.reference.kernel_of", _hands_on)
    for split in (right, Reference(graph).step(values)):
        with pytest.raises(
            ModelError, match=r"runtime and the float64 reference disagree.*\(RNN\) makes 'yh'"
        ) as caught:
            Judge(graph).compare(1, split, values)
        assert caught.value.exit_code == 2


def test_a_whole_model_that_is_wrong_as_a_whole_accuses_no_op() -> None:
    """ONNX Runtime fuses a Transpose into a product with a vector, and has it wrong; alone each op is right."""
    graph = read(
        "(float[16, 6] x, float[16] r) => (float[6] g) { t = Transpose <perm = [1, 0]> (x) g = MatMul (t, r) }"
    )
    judge, values = Judge(graph), drawn(graph)
    right = {"g": (values["x"].T.astype(float) @ values["r"]).astype(np.float32)}
    assert judge.compare(1, right, values)[0].is_same


def test_what_float32_does_not_have_accuses_no_formula() -> None:
    graph = read("(float[4] x) => (float[4] root) { square = Mul(x, x) root = Sqrt(square) }")
    (root,) = Reference(graph).step({"x": np.full(4, 1e-25, np.float32)}, checks_ops=True).values()
    np.testing.assert_allclose(root, 1e-25, rtol=1e-6)
