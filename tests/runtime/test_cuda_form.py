"""Models in the form for the CUDA provider: what is changed, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner.errors import UsageError
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.runtime.engine.core.sessions import SessionMaker
from planner.runtime.engine.gpu.cuda_form import CudaForm, cuda_form, with_copies
from planner.runtime.engine.gpu.cuda_kernels import has_cuda_kernel
from planner.runtime.judge.foreign import check_kernels

T = TensorProto
Values = Sequence[tuple[str, int, tuple[int, ...]]]


def model_of(nodes: Sequence[NodeProto], inputs: Values, outputs: Values) -> ModelProto:
    values = [[helper.make_tensor_value_info(*value) for value in part] for part in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "g", *values)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def inputs_of(model: ModelProto) -> dict[str, np.ndarray]:
    """Numbers for a model's inputs."""
    rng = np.random.default_rng(0)
    given = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        drawn = rng.uniform(0.1, 1.4, [dim.dim_value for dim in kind.shape.dim])
        array = drawn > 0.7 if kind.elem_type == T.BOOL else drawn
        given[value.name] = array.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return given


def numbers(model: ModelProto) -> list[np.ndarray]:
    """The model's results on a CPU."""
    found: list[np.ndarray] = SessionMaker(1).session(model, is_judge=True).run(None, inputs_of(model))
    return found


def lacking(form: CudaForm) -> list[str]:
    """Ops of the form that have no CUDA kernel."""
    import onnx

    from planner.runtime.engine.core.halves import kinds_of

    kinds = kinds_of(onnx.shape_inference.infer_shapes(form.model))
    opsets = {one.domain: one.version for one in form.model.opset_import}
    nodes = (node for node in form.model.graph.node if node.op_type != "Constant")
    return [node.op_type for node in nodes if not has_cuda_kernel(node, kinds, opsets)]


def one(op_type: str, inputs: Values, outputs: Values, **attributes: Any) -> ModelProto:
    names = ([value[0] for value in part] for part in (inputs, outputs))
    return model_of([helper.make_node(op_type, *names, **attributes)], inputs, outputs)


X, Y = ("x", T.FLOAT, (3, 4, 5)), ("y", T.FLOAT, (3, 4, 5))
STATISTICS = tuple((name, T.FLOAT, (4,)) for name in ("scale", "bias", "mean", "variance"))
FOUND = tuple((name, T.FLOAT, (4,)) for name in ("next_mean", "next_variance"))


@pytest.mark.parametrize(
    ("model", "expanded"),
    [
        (one("BatchNormalization", [X, *STATISTICS], [Y, *FOUND], training_mode=1, momentum=0.7), "BatchNormalization"),
        (one("Hardmax", [X], [Y], axis=1), "Hardmax"),
        (one("Hardmax", [X], [Y]), "Hardmax"),
        (one("Mean", [X, ("z", T.FLOAT, (4, 5)), ("w", T.FLOAT, (1,))], [Y]), "Mean"),
        (one("Tan", [X], [Y]), "Tan"),
        (one("Celu", [X], [Y], alpha=0.5), "Celu"),
        (one("GroupNormalization", [X, *STATISTICS[:2]], [Y], num_groups=2), "GroupNormalization"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_expanded_gives_the_same_numbers(model: ModelProto, expanded: str) -> None:
    form = cuda_form(model)
    assert form.expanded == {f"{expanded} of float32"}
    assert not form.on_cpu
    assert not lacking(form)
    for before, after in zip(numbers(model), numbers(form.model), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def convolution(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], **attributes: Any) -> ModelProto:
    shapes = [("x", T.FLOAT, x), ("w", T.FLOAT, w)], [("y", T.FLOAT, y)]
    return one("Conv", *shapes, kernel_shape=w[2:], **attributes)


def reduction(op_type: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: int, as_node: bool) -> ModelProto:
    made = [1 if dim in axes else size for dim, size in enumerate(shape) if keepdims or dim not in axes]
    stated = numpy_helper.from_array(np.array(axes), "axes")
    nodes = [helper.make_node("Constant", [], ["axes"], value=stated)] if as_node else []
    nodes.append(helper.make_node(op_type, ["x", "axes"], ["y"], keepdims=keepdims))
    model = model_of(nodes, [("x", T.FLOAT, shape)], [("y", T.FLOAT, tuple(made))])
    model.graph.initializer.extend([] if as_node else [stated])
    return model


@pytest.mark.parametrize(
    ("model", "slow"),
    [
        # What the gradient of a filter is; 3 x 3, with stride 2, with dilation 2, 1 x 1, by groups, of volumes.
        (convolution((3, 4, 9, 9), (5, 4, 9, 9), (3, 5, 3, 3), pads=[1] * 4), "Conv"),
        (convolution((3, 4, 9, 9), (5, 4, 5, 5), (3, 5, 3, 3), pads=[1] * 4, dilations=[2, 2]), "Conv"),
        (convolution((3, 2, 9, 9), (5, 2, 9, 9), (3, 5, 3, 3), pads=[2] * 4, strides=[2, 2]), "Conv"),
        (convolution((6, 2, 8, 7), (4, 2, 8, 7), (6, 4, 1, 1)), "Conv"),
        (convolution((1, 8, 9, 9), (12, 2, 9, 9), (1, 12, 3, 3), pads=[1] * 4, group=4), "Conv"),
        (convolution((3, 8, 9, 9), (12, 2, 9, 9), (3, 12, 3, 3), pads=[1] * 4, group=4), "Conv"),
        (
            convolution((2, 2, 3, 5, 5, 4), (4, 1, 3, 5, 5, 4), (2, 4, 1, 3, 3, 1), pads=[0, 1, 1, 0] * 2, group=2),
            "Conv",
        ),
        (reduction("ReduceSum", (64, 3, 7, 17), (0, 2, 3), 0, as_node=True), "ReduceSum"),
        (reduction("ReduceSum", (64, 3, 7, 17), (1, 3), 1, as_node=True), "none is left but between others"),
        (reduction("ReduceMean", (512, 32), (1,), 1, as_node=False), "ReduceMean"),
        (reduction("ReduceSum", (131072,), (0,), 0, as_node=True), "ReduceSum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_slow_is_written_in_faster_ops(model: ModelProto, slow: str) -> None:
    form = cuda_form(model)
    assert not lacking(form)
    made = {node.op_type for node in form.model.graph.node}
    assert made & {"Gemm", "MatMul"}
    assert slow not in made
    np.testing.assert_allclose(numbers(form.model)[0], numbers(model)[0], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        convolution((3, 4, 9, 9), (5, 4, 3, 3), (3, 5, 9, 9), pads=[1] * 4),
        convolution((2, 3, 8, 8), (5, 3, 4, 4), (2, 5, 2, 2), strides=[4, 4]),  # patches share nothing
        reduction("ReduceSum", (64, 64), (0,), 0, as_node=True),
        reduction("ReduceSum", (16, 64, 64), (1,), 0, as_node=True),
    ],
    ids=["filter", "patches", "small", "between others"],
)
def test_what_is_not_slow_stays(model: ModelProto) -> None:
    assert [node.op_type for node in cuda_form(model).model.graph.node] == [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("samples", [0, "N"])
def test_a_batch_that_is_empty_or_unknown_stays(samples: Any) -> None:
    model = convolution((samples, 4, 9, 9), (5, 4, 9, 9), (samples, 5, 3, 3), pads=[1] * 4)
    assert [node.op_type for node in cuda_form(model).model.graph.node] == ["Conv"]


def test_axes_that_a_caller_may_change_are_no_constant() -> None:
    model = reduction("ReduceSum", (200, 200), (0,), 1, as_node=False)
    model.graph.input.append(helper.make_tensor_value_info("axes", T.INT64, (1,)))
    assert [node.op_type for node in cuda_form(model).model.graph.node] == ["ReduceSum"]


def test_a_stretched_scale_is_multiplied_apart() -> None:
    model = one("RMSNormalization", [X, ("scale", T.FLOAT, (4, 1))], [Y])
    model.opset_import[0].version = 23
    form = cuda_form(model)
    assert form.model.graph.node[-1].op_type == "Mul"
    np.testing.assert_allclose(numbers(form.model)[0], numbers(model)[0], rtol=1e-6)


def test_names_of_what_is_expanded_are_of_nobody_else() -> None:
    nodes = [
        helper.make_node("Mean", ["x", "v"], ["m"]),
        helper.make_node("Neg", ["m"], ["m/total"]),
        helper.make_node("Add", ["m", "m/total"], ["y"]),
    ]
    shaped = [(name, T.FLOAT, (4, 3)) for name in ("x", "v", "y")]
    changed = cuda_form(model_of(nodes, shaped[:2], shaped[2:])).model
    made = [name for node in changed.graph.node for name in node.output]
    assert len(set(made)) == len(made)


ROWS = [("x", (4, 3)), ("i", (2, 1)), ("u", (2, 3)), ("y", (4, 3))]


def scattered(kind: int, reduction: str) -> ModelProto:
    values = [(name, T.INT64 if name == "i" else kind, shape) for name, shape in ROWS]
    return one("ScatterND", values[:3], values[3:], reduction=reduction)


def behind_a_past(kind: int) -> ModelProto:
    width = dict.fromkeys(("k", "v"), 5) | dict.fromkeys(("past_k", "past_v"), 2) | dict.fromkeys(("ks", "vs"), 7)
    values = {name: (name, kind, (2, 3, width.get(name, 5), 4)) for name in ("q", "y", *width)}
    node = helper.make_node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["y", "ks", "vs"])
    given = [values[name] for name in node.input if name]
    model = model_of([node], given, [values[name] for name in node.output])
    model.opset_import[0].version = 23
    return model


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (scattered(T.FLOAT, "add"), ""),
        (scattered(T.DOUBLE, "none"), ""),
        (scattered(T.DOUBLE, "add"), "on_cpu"),
        (scattered(T.INT32, "max"), "on_cpu"),
        (behind_a_past(T.FLOAT), ""),
        (behind_a_past(T.FLOAT16), "widened"),
        (one("ReduceSumSquare", [X], [Y], noop_with_empty_axes=1), "expanded"),
        (one("LpPool", [X], [("y", T.FLOAT, (3, 4, 3))], kernel_shape=[2], strides=[2], ceil_mode=1), "on_cpu"),
        (one("SimplifiedLayerNormalization", [X, ("scale", T.FLOAT, (5,))], [Y]), ""),
    ],
    ids=lambda value: value.graph.node[0].op_type if isinstance(value, ModelProto) else value or "as it is",
)
def test_kernels_that_fail_when_they_run_are_not_taken(model: ModelProto, what: str) -> None:
    form = cuda_form(model)
    assert {name for name in ("widened", "expanded", "on_cpu") if getattr(form, name)} == ({what} if what else set())
    for before, after in zip(numbers(model), numbers(form.model), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-3)


def test_a_sum_of_bfloat16_at_places_is_widened() -> None:
    assert cuda_form(scattered(T.BFLOAT16, "add")).widened == {"ScatterND of bfloat16"}


def test_batch_statistics_of_16_bits_are_widened_and_expanded() -> None:
    half = [(name, T.BFLOAT16, shape) for name, _, shape in (X, *STATISTICS)]
    model = one("BatchNormalization", half, [("y", T.BFLOAT16, X[2])], training_mode=1)
    form = cuda_form(model)
    assert form.widened == {"BatchNormalization of bfloat16"}
    assert form.expanded == {"BatchNormalization of float32"}
    assert not form.on_cpu
    assert not lacking(form)


def test_16_bits_without_a_kernel_are_widened_and_others_stay() -> None:
    values = [(name, T.BFLOAT16, (4,)) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Log", ["z"], ["y"])]
    form = cuda_form(model_of(nodes, values[:1], values[1:]))
    assert form.widened == {"Log of bfloat16"}
    assert [node.op_type for node in form.model.graph.node] == ["Relu", "Cast", "Log", "Cast"]
    assert not lacking(form)


def test_booleans_are_moved_as_bytes() -> None:
    values = [(name, T.BOOL, (3, 4)) for name in "cxzy"]
    model = one("Where", values[:3], values[3:])
    form = cuda_form(model)
    assert form.widened == {"Where of bool"}
    assert not lacking(form)
    given = inputs_of(model)
    np.testing.assert_array_equal(numbers(form.model)[0], np.where(given["c"], given["x"], given["z"]))
    (where,) = (node for node in form.model.graph.node if node.op_type == "Where")
    assert where.input[0] == "c", "the condition stays what it is"


def test_what_is_left_runs_between_copies() -> None:
    """No op of the CPU reads what is bound, nor makes it."""
    nodes = [
        helper.make_node("Cosh", ["x"], ["y"]),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["z"]),
    ]
    model = model_of(nodes, [X], [Y, ("z", T.FLOAT, X[2])])
    form = cuda_form(model)
    assert form.on_cpu == {"Cosh of float32"}
    assert form.is_literal
    (cosh,) = (node for node in form.model.graph.node if node.op_type == "Cosh")
    assert not {*cosh.input, *cosh.output} & {"x", "y", "z"}
    for before, after in zip(numbers(model), numbers(form.model), strict=True):
        np.testing.assert_array_equal(after, before)


def test_a_constant_output_is_made_on_the_gpu() -> None:
    """ONNX Runtime would compute it beforehand, and copy it from the host in each run."""
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.arange(4, dtype=np.float32))
    nodes = [helper.make_node("Constant", [], ["y"], value=value), helper.make_node("Relu", ["x"], ["z"])]
    form = cuda_form(model_of(nodes, [("x", T.FLOAT, (4,))], [("y", T.FLOAT, (4,)), ("z", T.FLOAT, (4,))]))
    assert form.is_literal
    assert [node.op_type for node in form.model.graph.node] == ["Constant", "Relu", "Identity"]
    np.testing.assert_array_equal(numbers(form.model)[0], np.arange(4))
    assert not cuda_form(one("Relu", [X], [Y])).is_literal


def test_a_place_that_is_computed_is_copied_in_each_run() -> None:
    place = [(name, T.INT64, (1,)) for name in ("starts", "ends")]
    model = one("Slice", [("x", T.FLOAT, (8,)), *place], [("y", T.FLOAT, ("n",))])  # type: ignore[list-item]
    form = with_copies(cuda_form(model), ["starts", "ends"])
    assert [node.op_type for node in form.model.graph.node] == ["Identity", "Identity", "Slice"]
    assert form.is_literal
    assert not {"starts", "ends"} & set(form.model.graph.node[-1].input)


def test_kernels_of_a_version_are_told_apart() -> None:
    """The provider's TopK of bfloat16 begins with version 24, its Pad of booleans with 13."""
    topk = helper.make_node("TopK", ["x", "k"], ["y", "i"])
    pad = helper.make_node("Pad", ["x", "p"], ["y"])
    for node, kind, old, new in ((topk, T.BFLOAT16, 11, 24), (pad, T.BOOL, 11, 13)):
        kinds = {"x": int(kind), "y": int(kind), "i": int(T.INT64), "k": int(T.INT64), "p": int(T.INT64)}
        assert [has_cuda_kernel(node, kinds, {"": opset}) for opset in (old, new)] == [False, True]


def test_operators_of_nobody_are_all_named_before_anything_starts() -> None:
    tensors = {name: Tensor(name, (4,), DType.FLOAT32) for name in "xyzw"}
    ops = (
        Op("a", "Mine", ("x",), ("y",), domain="com.example"),
        Op("b", "Yours", ("y",), ("z",), domain="com.example"),
        Op("c", "BiasGelu", ("z", "x"), ("w",), domain="com.microsoft"),
    )
    domains = {"com.example": 1, "com.microsoft": 1}
    graph = Graph("g", tensors, ops, ("x",), ("w",), {}, domains=domains)
    with pytest.raises(UsageError, match=r"com\.example\.Mine, com\.example\.Yours") as caught:
        check_kernels(graph, (), on_gpus=True)
    assert len(caught.value.facts) == 2
