"""A body computes what its composite computes, whole and in float64; and putting bodies back gives the graph again."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.graph.core.check import check_graph
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.decompositions import Purpose, decompositions, expand, planned_graph
from planner.planning.bodies import decide_with_bodies
from planner.runtime.judge.whole import WholeModel
from planner.search.decide import decide
from planner.search.request import SearchRequest
from stock_runtime import run

FLOAT, INT = DType.FLOAT32, DType.INT64
Arrays = Mapping[str, np.ndarray]


def one_op(
    op_type: str,
    inputs: Arrays,
    outputs: Mapping[str, tuple[int, ...]],
    *,
    opset: int = 21,
    constants: Arrays | None = None,
    **attributes: Attribute,
) -> Graph:
    every = {**inputs, **(constants or {})}
    tensors = {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in every.items()}
    tensors |= {name: Tensor(name, shape, FLOAT) for name, shape in outputs.items()}
    stated = tuple(sorted(attributes.items()))
    domain, _, kind = op_type.rpartition(".")
    return Graph(
        "one",
        tensors,
        (Op("composite", kind, tuple(every), tuple(outputs), stated, domain),),
        tuple(inputs),
        tuple(outputs),
        dict(constants or {}),
        frozenset(constants or {}),
        opset=opset,
    )


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 2.0, shape).astype(np.float32)


def labels(*shape: int, below: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, below, shape)


def normalisation(op_type: str, shape: tuple[int, ...], learned: int, **attributes: Attribute) -> tuple[Graph, Arrays]:
    inputs = {"x": normal(*shape), "scale": normal(learned, seed=1), "bias": normal(learned, seed=2)}
    opset = int(attributes.pop("opset", 21))  # type: ignore[arg-type]
    return one_op(op_type, inputs, {"y": shape}, opset=opset, **attributes), inputs


def convolution(x: tuple[int, ...], w: tuple[int, ...], **attributes: Attribute) -> tuple[Graph, Arrays]:
    inputs = {"x": normal(*x), "w": normal(*w, seed=1), "b": normal(w[0], seed=2)}
    strides, pads = attributes["strides"], attributes.get("pads", (0,) * 2 * (len(x) - 2))
    assert isinstance(strides, tuple)
    assert isinstance(pads, tuple)
    half = len(x) - 2
    made = tuple(
        (x[dim + 2] + int(pads[dim]) + int(pads[dim + half]) - w[dim + 2]) // int(strides[dim]) + 1
        for dim in range(half)
    )
    return one_op("Conv", inputs, {"y": (x[0], w[0], *made)}, **attributes), inputs


def case(name: str) -> tuple[Graph, Arrays]:
    x = normal(3, 7, 5)
    scores, classes = normal(6, 9), labels(6, below=9)
    weights = np.abs(normal(9, seed=3))
    head = normal(2, 4, 6, 8)
    cases = {
        "Softmax": lambda: (one_op("Softmax", {"x": x}, {"y": x.shape}, axis=1), {"x": x}),
        "Softmax of large numbers": lambda: (
            one_op("Softmax", {"x": x * 100}, {"y": x.shape}),
            {"x": x * 100},
        ),
        "Softmax 13": lambda: (one_op("Softmax", {"x": x}, {"y": x.shape}, axis=0, opset=13), {"x": x}),
        "LogSoftmax": lambda: (one_op("LogSoftmax", {"x": x}, {"y": x.shape}), {"x": x}),
        "LayerNormalization": lambda: normalisation("LayerNormalization", (4, 6, 10), 10),
        "LayerNormalization 17": lambda: normalisation("LayerNormalization", (4, 6, 10), 10, opset=17, epsilon=1e-3),
        "InstanceNormalization": lambda: normalisation("InstanceNormalization", (2, 3, 5, 4), 3),
        "GroupNormalization": lambda: normalisation("GroupNormalization", (2, 6, 5, 4), 6, num_groups=3),
        "GroupNormalization 18": lambda: normalisation("GroupNormalization", (2, 6, 5, 4), 3, num_groups=3, opset=18),
        "MeanVarianceNormalization": lambda: (
            one_op("MeanVarianceNormalization", {"x": head}, {"y": head.shape}),
            {"x": head},
        ),
        "LpNormalization": lambda: (one_op("LpNormalization", {"x": x}, {"y": x.shape}, axis=1, p=2), {"x": x}),
        "LpNormalization 1": lambda: (one_op("LpNormalization", {"x": x}, {"y": x.shape}, p=1), {"x": x}),
        "ReduceL2": lambda: (
            one_op("ReduceL2", {"x": x}, {"y": (3, 5)}, constants={"axes": np.array([1])}, keepdims=0),
            {"x": x},
        ),
        "ReduceLogSum": lambda: (one_op("ReduceLogSum", {"x": abs(x)}, {"y": (1, 1, 1)}), {"x": abs(x)}),
        "ReduceLogSumExp": lambda: (
            one_op("ReduceLogSumExp", {"x": x}, {"y": (3, 1, 5)}, constants={"axes": np.array([-2])}),
            {"x": x},
        ),
        "SoftmaxCrossEntropyLoss": lambda: (
            one_op("SoftmaxCrossEntropyLoss", {"x": scores, "t": classes}, {"loss": (), "log_p": scores.shape}),
            {"x": scores, "t": classes},
        ),
        "SoftmaxCrossEntropyLoss with weights and an ignored class": lambda: (
            one_op(
                "SoftmaxCrossEntropyLoss",
                {"x": scores, "t": classes, "w": weights},
                {"loss": ()},
                ignore_index=int(classes[0]),
            ),
            {"x": scores, "t": classes, "w": weights},
        ),
        "SoftmaxCrossEntropyLoss over positions": lambda: (
            one_op(
                "SoftmaxCrossEntropyLoss",
                {"x": head, "t": labels(2, 6, 8, below=4)},
                {"loss": (2, 6, 8)},
                reduction="none",
            ),
            {"x": head, "t": labels(2, 6, 8, below=4)},
        ),
        "NegativeLogLikelihoodLoss": lambda: (
            one_op("NegativeLogLikelihoodLoss", {"x": scores, "t": classes}, {"loss": ()}, reduction="sum"),
            {"x": scores, "t": classes},
        ),
        "Attention": lambda: (
            one_op(
                "Attention",
                {"q": head, "k": normal(2, 4, 7, 8, seed=1), "v": normal(2, 4, 7, 3, seed=2)},
                {"y": (2, 4, 6, 3)},
                opset=23,
            ),
            {"q": head, "k": normal(2, 4, 7, 8, seed=1), "v": normal(2, 4, 7, 3, seed=2)},
        ),
        "Attention of merged heads, causal": lambda: (
            one_op(
                "Attention",
                {"q": normal(2, 6, 12), "k": normal(2, 6, 12, seed=1), "v": normal(2, 6, 12, seed=2)},
                {"y": (2, 6, 12)},
                opset=23,
                q_num_heads=3,
                kv_num_heads=3,
                is_causal=1,
            ),
            {"q": normal(2, 6, 12), "k": normal(2, 6, 12, seed=1), "v": normal(2, 6, 12, seed=2)},
        ),
        "Conv": lambda: convolution((2, 3, 7, 8), (4, 3, 1, 1), strides=(2, 3)),
        "Conv along one dim": lambda: convolution(
            (2, 4, 7, 8), (4, 2, 1, 3), strides=(2, 2), group=2, pads=(0, 1, 0, 1)
        ),
        "SimplifiedLayerNormalization": lambda: (
            one_op("SimplifiedLayerNormalization", {"x": x, "s": normal(5, seed=1)}, {"y": x.shape}, epsilon=1e-3),
            {"x": x, "s": normal(5, seed=1)},
        ),
        "RMSNormalization": lambda: (
            one_op("RMSNormalization", {"x": x, "s": normal(5, seed=1)}, {"y": x.shape}, opset=23),
            {"x": x, "s": normal(5, seed=1)},
        ),
        "TensorScatter": lambda: written("linear", 2, axis=2),
        "TensorScatter in a circle": lambda: written("circular", 6),
        "TensorScatter at the start": lambda: written("linear", None),
    }
    graph, values = cases[name]()
    return graph, values


def written(mode: str, start: int | None, **attributes: Attribute) -> tuple[Graph, Arrays]:
    inputs: dict[str, np.ndarray] = {"cache": normal(2, 3, 7, 4), "rows": normal(2, 3, 3, 4, seed=1)}
    inputs |= {} if start is None else {"starts": np.array([start, 1])}
    return one_op("TensorScatter", inputs, {"y": (2, 3, 7, 4)}, opset=24, mode=mode, **attributes), inputs


def batch_normalization() -> tuple[Graph, Arrays]:
    inputs = {"x": normal(4, 3, 5)}
    inputs |= {part: np.abs(normal(3, seed=number)) for number, part in enumerate(("scale", "bias", "mean", "var"))}
    outputs = {"y": (4, 3, 5), "mean.next": (3,), "var.next": (3,)}
    return one_op("BatchNormalization", inputs, outputs, training_mode=1, momentum=0.7), inputs


CASES = (
    "Softmax",
    "Softmax of large numbers",
    "Softmax 13",
    "LogSoftmax",
    "LayerNormalization",
    "LayerNormalization 17",
    "InstanceNormalization",
    "GroupNormalization",
    "GroupNormalization 18",
    "MeanVarianceNormalization",
    "LpNormalization",
    "LpNormalization 1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "SoftmaxCrossEntropyLoss",
    "SoftmaxCrossEntropyLoss with weights and an ignored class",
    "SoftmaxCrossEntropyLoss over positions",
    "NegativeLogLikelihoodLoss",
    "Attention",
    "Attention of merged heads, causal",
    "RMSNormalization",
    "Conv",
    "Conv along one dim",
    "SimplifiedLayerNormalization",
    "BatchNormalization",
    "TensorScatter",
    "TensorScatter in a circle",
    "TensorScatter at the start",
)


@pytest.mark.parametrize("name", CASES)
def test_a_body_computes_what_the_composite_computes(name: str) -> None:
    graph, values = batch_normalization() if name == "BatchNormalization" else case(name)
    expanded = expand(graph)
    check_graph(expanded.graph)
    assert [body.op.name for body in expanded.bodies] == ["composite"]
    wanted, got = WholeModel(graph).step(values), WholeModel(expanded.graph).step(values)
    for output in graph.outputs:
        largest = np.abs(wanted[output]).max()
        assert np.abs(wanted[output] - got[output]).max() <= 3e-6 * max(largest, 1e-30), output


def test_sums_of_a_large_batch_in_float16_are_finite() -> None:
    """Each channel's elements add up to more than the largest number in float16."""
    _, values = batch_normalization()
    values = {**values, "x": normal(64, 3, 1024).astype(np.float16)}
    outputs = {"y": (64, 3, 1024), "mean.next": (3,), "var.next": (3,)}
    graph = one_op("BatchNormalization", values, outputs, training_mode=1)
    graph = replace(graph, tensors={**graph.tensors, "y": Tensor("y", outputs["y"], DType.FLOAT16)})
    expanded = expand(graph)
    check_graph(expanded.graph)
    wanted, got = WholeModel(graph).step(values), WholeModel(expanded.graph).step(values)
    assert len(wanted) == len(graph.outputs) == 3
    for output in graph.outputs:
        np.testing.assert_allclose(got[output], wanted[output], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shift", [0.0, 9.0, -9.0, None])
def test_the_body_of_dynamic_quantisation_is_exact(shift: float | None) -> None:
    """Data on both sides of zero, above it, below it, and zero alone: of these the runtime takes 1 for the scale."""
    x = np.zeros((3, 7), np.float32) if shift is None else normal(3, 7) + np.float32(shift)
    graph = one_op("DynamicQuantizeLinear", {"x": x}, {"y": x.shape, "scale": (), "zero": ()})
    tensors = dict(graph.tensors)
    tensors |= {name: Tensor(name, tensors[name].shape, DType.UINT8) for name in ("y", "zero")}
    graph = replace(graph, tensors=tensors)
    expanded = expand(graph)
    check_graph(expanded.graph)
    wanted, got = WholeModel(graph).step({"x": x}), WholeModel(expanded.graph).step({"x": x})
    assert all(np.array_equal(wanted[output], got[output]) for output in graph.outputs)


def test_what_becomes_blocks_stays_whole_where_nobody_shares_it() -> None:
    graph = one_op("CumSum", {"x": normal(2, 64)}, {"y": (2, 64)}, constants={"axis": np.array(1)})
    assert expand(graph).bodies == expand(graph, workers=1).bodies == ()
    assert [op.op_type for op in expand(graph, workers=4).graph.ops].count("CumSum") == 2
    few = one_op("CumSum", {"x": normal(2, 32)}, {"y": (2, 32)}, constants={"axis": np.array(1)})
    assert expand(few, workers=4).bodies == ()


def test_every_body_has_a_case() -> None:
    exact = {"ArgMax", "ArgMin", "DynamicQuantizeLinear", "Hardmax", "Pad"}
    drawn = {"com.microsoft.GroupQueryAttention", "com.microsoft.MultiHeadAttention"}  # test_attention_along_keys.py
    blocks = {"CumProd", "CumSum", "TopK"}  # test_cut_along_the_axis.py
    assert {name.split()[0] for name in CASES} | exact | drawn | blocks == set(decompositions(Purpose.PARTS))


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("select_last_index", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((40, 3), 0), ((2, 50, 3), 1), ((4, 33), -1)])
def test_the_place_of_an_extreme(
    op_type: str, dtype: str, select_last_index: int, shape: tuple[int, ...], axis: int
) -> None:
    """Of several, the first or the last, as ONNX Runtime has it."""
    x = np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)
    keepdims = select_last_index
    made = np.expand_dims(x.max(axis), axis).shape if keepdims else x.max(axis).shape
    stated = {"axis": axis, "select_last_index": select_last_index, "keepdims": keepdims}
    graph = one_op(op_type, {"x": x}, {"y": made}, **stated)
    graph = replace(graph, tensors={**graph.tensors, "y": Tensor("y", made, INT)})
    expanded = expand(graph)
    check_graph(expanded.graph)
    assert op_type not in {op.op_type for op in expanded.graph.ops}
    np.testing.assert_array_equal(run(expanded.graph, {"x": x})["y"], run(graph, {"x": x})["y"])


def test_windows_of_a_pool_are_searched_whole() -> None:
    graph = one_op("ArgMax", {"x": normal(4, 9)}, {"y": (4, 1)}, axis=1)
    assert expand(graph).bodies == ()


BORDERS = [
    ((4, 5), (1, 2, 3, 0), None),
    ((3, 2), (2, 1, 0, 1), None),
    ((2, 3, 4), (2, 1), (-2,)),
    ((1, 2, 5, 6), (0, 0, 2, 1, 0, 0, 4, 1), None),
]


@pytest.mark.parametrize("mode", ["wrap", "reflect", "edge"])
@pytest.mark.parametrize(("shape", "pads", "axes"), BORDERS)
def test_a_border_is_slices_side_by_side(
    mode: str, shape: tuple[int, ...], pads: tuple[int, ...], axes: tuple[int, ...] | None
) -> None:
    x = normal(*shape)
    dims = tuple(range(len(shape))) if axes is None else axes
    made = list(shape)
    for number, dim in enumerate(dims):
        made[dim] += pads[number] + pads[len(dims) + number]
    constants = {"pads": np.array(pads), **({} if axes is None else {"axes": np.array(axes)})}
    graph = one_op("Pad", {"x": x}, {"y": tuple(made)}, constants=constants, mode=mode)
    if axes is not None:
        graph = replace(graph, ops=(replace(graph.ops[0], inputs=("x", "pads", "", "axes")),))
    expanded = expand(graph)
    check_graph(expanded.graph)
    assert "Pad" not in {op.op_type for op in expanded.graph.ops}
    np.testing.assert_array_equal(run(expanded.graph, {"x": x})["y"], run(graph, {"x": x})["y"])


def test_other_borders_stay() -> None:
    for pads, mode in (((1, 1), "constant"), ((-1, 0), "edge"), ((9, 0), "wrap")):
        graph = one_op("Pad", {"x": normal(4)}, {"y": (4 + sum(pads),)}, constants={"pads": np.array(pads)}, mode=mode)
        assert expand(graph).bodies == ()


def test_the_largest_of_what_is_cut_moves_values_and_places() -> None:
    """Greedy decoding: a row of scores for each of 2 samples, whose weights are cut along the words."""
    x, w = normal(2, 8), normal(8, 400, seed=1)
    scores = one_op("MatMul", {"x": x}, {"s": (2, 400)}, constants={"w": w})
    found = Op("found", "ArgMax", ("s",), ("y",), (("axis", 1), ("keepdims", 0)))
    graph = replace(
        scores, ops=(*scores.ops, found), outputs=("y",), tensors={**scores.tensors, "y": Tensor("y", (2,), INT)}
    )
    ask = SearchRequest(4)
    decided = decide_with_bodies(graph, opdefs.standard(), ask)
    # Maxima of 4 bytes and places of 8, each joined from four workers and brought to four.
    assert decided.moved_bytes <= 2 * (4 + 8) * 2 * 3
    assert decided.cost < 400 * 8 * 4


@given(st.data())
@examples(60)
def test_a_convolution_of_what_is_picked_has_the_same_bits(data: st.DataObject) -> None:
    """Windows of one element along some dims, strides beyond them: as ONNX Runtime computes both."""
    rank = data.draw(st.integers(1, 3))
    kernel = tuple(data.draw(st.sampled_from([1, 1, 2])) for _ in range(rank))
    strides = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    group, channels = data.draw(st.sampled_from([(1, 3), (2, 4), (3, 3)]))
    sizes = tuple(data.draw(st.integers(2, 9)) for _ in range(rank))
    x, w = (data.draw(st.integers(1, 3)), channels, *sizes), (2 * group, channels // group, *kernel)
    graph, values = convolution(x, w, strides=strides, group=group)
    expanded = expand(graph)
    check_graph(expanded.graph)
    leaves_out = any(size == 1 and stride > 1 for size, stride in zip(kernel, strides, strict=True))
    assert len(expanded.bodies) == leaves_out
    wanted, got = run(graph, values)["y"], run(expanded.graph, values)["y"]
    assert np.array_equal(wanted, got)


@pytest.mark.parametrize("attributes", [{"pads": (1, 1)}, {"strides": (1,)}, {"kernel_shape": (3,)}])
def test_other_convolutions_have_no_body(attributes: dict[str, Attribute]) -> None:
    width = 3 if "kernel_shape" in attributes else 1
    graph, _ = convolution((1, 2, 9), (2, 2, width), **{"strides": (2,), **attributes})
    assert expand(graph).bodies == ()


def test_a_convolution_brings_what_it_reads_and_no_more() -> None:
    """1024 to 2048 features, every other row and column of 14 x 14, batch 32, on 8 workers: 27.7 MB, not 38.0."""
    graph, _ = convolution((32, 64, 14, 14), (128, 64, 1, 1), strides=(2, 2))
    tensors = {name: Tensor(name, shape, FLOAT) for name, shape in {
        "x": (32, 1024, 14, 14), "w": (2048, 1024, 1, 1), "b": (2048,), "y": (32, 2048, 7, 7)
    }.items()}  # fmt: skip
    graph = replace(graph, tensors=tensors, ops=(replace(graph.ops[0], inputs=("x", "w")),), inputs=("x", "w"))
    ask = SearchRequest(8, partitioned_inputs=True)
    found = decide_with_bodies(graph, opdefs.standard(), ask)
    assert found.moved_bytes == 27_656_192
    assert found.certified_gap == 0
    assert decide(graph, opdefs.standard().bind_all(graph), ask).moved_bytes == 38_010_880


def test_what_is_short_or_needs_its_whole_operand_stays_whole() -> None:
    x = normal(3, 4)
    assert not expand(one_op("Hardmax", {"x": x}, {"y": x.shape})).bodies
    frozen, _ = batch_normalization()
    op = frozen.ops[0]
    still = Op(op.name, op.op_type, op.inputs, op.outputs[:1])
    assert not expand(Graph("g", frozen.tensors, (still,), frozen.inputs, ("y",), {})).bodies


def test_a_plan_of_the_whole_ops_is_of_the_graph_itself() -> None:
    graph, _ = case("LayerNormalization")
    assert planned_graph(graph, {"composite"}, 2) is graph or planned_graph(graph, {"composite"}, 2).ops == graph.ops
    expanded = expand(graph).graph
    names = {op.name for op in expanded.ops}
    assert planned_graph(graph, names, 2) == expanded
    without = planned_graph(graph, {name for name in names if "/input" not in name}, 2)
    check_graph(without)
    assert not any(op.op_type == "Identity" for op in without.ops)
    assert len(without.ops) == len(expanded.ops) - 1


def test_names_of_a_body_do_not_meet_the_graphs() -> None:
    graph, _ = case("Softmax")
    clash = Tensor("composite/max", (1,), FLOAT)
    crowded = Graph("g", {**graph.tensors, clash.name: clash}, graph.ops, ("x", clash.name), ("y",), {})
    expanded = expand(crowded)
    check_graph(expanded.graph)
    assert all(op.name.startswith("composite.2/") for op in expanded.bodies[0].ops)
