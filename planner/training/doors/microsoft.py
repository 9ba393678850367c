"""What stands for com.microsoft's gradient operators, which onnxruntime-training's gradient builder emits.

Most are a gradient rule of this package, given its operands by position: GO the gradient of the forward op's output,
I and O its inputs and outputs. Operand orders are those of the operators' schemas in onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.model import Attribute, Op, Shape
from planner.training.attributes import axis_of, integer, label, number, refuse, text
from planner.training.doors.walk import Lowering, Walk
from planner.training.labelled import Labelled, labelled
from planner.training.normal_forms import normalised
from planner.training.rules.normalisation import per_channel

DOMAIN: Final = "com.microsoft"


def _attributes(op: Op, *names: str) -> Mapping[str, Attribute]:
    return {key: value for key, value in op.attributes if not names or key in names}


def _of_output(op_type: str, *names: str) -> Lowering:
    """An activation's gradient from (GO, O)."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        dy, y = op.inputs
        attributes = _attributes(op, *names) if names else {}
        return (walk.rule(op_type, (y,), dy, y=y, name=op.name, attributes=attributes)[0] or "",)

    return lowering


def _of_input(op_type: str, attributes: Mapping[str, Attribute] | None = None) -> Lowering:
    """An activation's gradient from (GO, I), or from (GO, I, bias) where it was added first."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        dy, x, *bias = op.inputs
        if bias:
            x = walk.builder.add(x, bias[0])
        stated = dict(attributes or {})
        if op_type == "Swish":
            stated["alpha"] = number(op, "alpha", 1.702)
        return (walk.rule(op_type, (x,), dy, name=op.name, attributes=stated)[0] or "",)

    return lowering


def _softmax(op_type: str) -> Lowering:
    """SoftmaxGrad_13 works along one dim; SoftmaxGrad, of older opsets, along all from ``axis`` on together."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        emit, (dy, y) = walk.builder, op.inputs
        shape = emit.shape(y)
        is_new = op.op_type.endswith("_13")
        axis = axis_of(op, len(shape), -1 if is_new else 1)
        if not is_new and axis != len(shape) - 1:
            flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
            dy, y, axis = emit.reshape(dy, flat), emit.reshape(y, flat), 1
        dx = walk.rule(op_type, (y,), dy, y=y, name=op.name, attributes={"axis": axis})[0]
        assert dx is not None, "softmax always has a gradient"
        return (emit.reshape(dx, shape),)

    return lowering


def _div(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, a, b = op.inputs
    y = walk.builder.div(a, b)
    parts = walk.rule("Div", (a, b), dy, y=y, name=op.name, wanted=(0, 1))
    return tuple(part or "" for part in parts)


def _conv(op_type: str) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        dy, x, w = op.inputs
        wanted = tuple(position for position, name in enumerate(op.outputs) if name)
        bias = walk.builder.declare(f"{op.name}.bias", (walk.builder.shape(dy)[1],), walk.builder.dtype(dy))
        parts = walk.rule(op_type, (x, w, bias), dy, name=op.name, wanted=wanted, attributes=_attributes(op))
        return tuple(part or "" for part in parts)

    return lowering


def _max_pool(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, indices = op.inputs
    forward = walk.originals.get(indices)
    if forward is None or forward.op_type != "MaxPool":
        raise refuse(op, "the MaxPool that made its indices is not in the model")
    dx = walk.rule("MaxPool", (forward.inputs[0],), dy, name=op.name, attributes=dict(forward.attributes))[0]
    return (dx or "",)


def _average_pool(walk: Walk, op: Op) -> tuple[str, ...]:
    """The operator does not say the shape of its result: it is that of the pooling whose gradient this is."""
    dy = op.inputs[0]
    shape = walk.builder.shape(dy)
    stated = {key: value for key, value in op.attributes if value != 0}
    found = [
        forward
        for name, forward in walk.originals.items()
        if forward.op_type == "AveragePool"
        and walk.builder.shape(name) == shape
        and {key: value for key, value in forward.attributes if value != 0} == stated
    ]
    shapes = {walk.builder.shape(forward.inputs[0]) for forward in found}
    if len(shapes) != 1:
        raise refuse(op, "which AveragePool it belongs to cannot be told")
    return (walk.rule("AveragePool", (found[0].inputs[0],), dy, name=op.name, attributes=_attributes(op))[0] or "",)


def _drop(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (dy, mask, *rest) = walk.builder, op.inputs
    ratio = emit.value(rest[0]) if rest and rest[0] else np.array(0.5)
    mode = emit.value(rest[1]) if len(rest) > 1 and rest[1] else np.array(True)
    if ratio is None or mode is None:
        raise refuse(op, "its ratio and its training_mode are not known constants")
    if not bool(mode):
        return (dy,)
    return (emit.where(mask, emit.scale(dy, 1.0 / (1.0 - float(ratio))), emit.scalar(0.0, dy)),)


def _stand_in(walk: Walk, op: Op, position: int, like: str) -> str:
    """A tensor of a shape that an operand states: rules read the shape of the forward input and no more."""
    shape: Shape = walk.known(op, position, "shape")
    return walk.builder.declare(f"{op.name}.x", shape, walk.builder.dtype(like))


def _gather(walk: Walk, op: Op) -> tuple[str, ...]:
    _, indices, dy = op.inputs
    x = _stand_in(walk, op, 0, dy)
    op_type = "Gather" if op.op_type == "GatherGrad" else "GatherND"
    return (walk.rule(op_type, (x, indices), dy, name=op.name, attributes=_attributes(op))[0] or "",)


def _gather_elements(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, _, indices = op.inputs
    x = _stand_in(walk, op, 1, dy)
    return (walk.rule("GatherElements", (x, indices), dy, name=op.name, attributes=_attributes(op))[0] or "",)


def _slice(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, _, *bounds = op.inputs
    x = _stand_in(walk, op, 1, dy)
    dx = walk.rule("Slice", (x, *bounds), dy, name=op.name)[0]
    return (dx or walk.builder.zeros(walk.builder.shape(x), dy),)


def _resize(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, *operands = op.inputs
    return (walk.rule("Resize", tuple(operands), dy, name=op.name, attributes=_attributes(op))[0] or "",)


def _layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, x, scale, mean, inverse = op.inputs
    bias = walk.builder.declare(f"{op.name}.bias", walk.builder.shape(scale), walk.builder.dtype(scale))
    wanted = tuple(position for position, name in enumerate(op.outputs) if name)
    parts = walk.rule(
        "LayerNormalization", (x, scale, bias), dy, name=op.name, wanted=wanted, attributes=_attributes(op, "axis"),
        saved={"mean": mean, "inverse": inverse},
    )  # fmt: skip
    return tuple(part or "" for part in parts)


def _invertible_layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    """From the output: x̂ = (y - bias)/scale, which is x with mean 0 and 1/σ of 1, but for the factor 1/σ."""
    emit, (dy, y, scale, bias, inverse) = walk.builder, op.inputs
    inverse = emit.cast(inverse, emit.dtype(y))
    centred = emit.div(emit.div(emit.sub(y, bias), scale), inverse)
    mean = emit.zeros(emit.shape(inverse), inverse)
    wanted = tuple(position for position, name in enumerate(op.outputs) if name)
    parts = walk.rule(
        "LayerNormalization", (centred, scale, bias), dy, name=op.name, wanted=wanted,
        attributes=_attributes(op, "axis"), saved={"mean": mean, "inverse": inverse},
    )  # fmt: skip
    return tuple(part or "" for part in parts)


def _simplified_layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    """For y = scale x / √(mean x² + epsilon), r = 1/root: dx = r (g - x̂ mean(g x̂)), g = dy scale; dscale = Σ dy x̂."""
    emit, (dy, x, scale, inverse) = walk.builder, op.inputs
    shape = emit.shape(x)
    rows = list(range(axis_of(op, len(shape), -1), len(shape)))
    inverse = emit.cast(inverse, emit.dtype(x))
    normal, g = emit.mul(x, inverse), emit.mul(dy, scale)
    share = 1.0 / math.prod(shape[dim] for dim in rows)
    along = emit.scale(emit.reduce_sum(emit.mul(g, normal), rows, keepdims=True), share)
    dx = emit.mul(inverse, emit.sub(g, emit.mul(normal, along)))
    return dx, emit.unbroadcast(emit.mul(dy, normal), emit.shape(scale))


def _simplified_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (x, scale) = walk.builder, op.inputs
    shape = emit.shape(x)
    rows = list(range(axis_of(op, len(shape), -1), len(shape)))
    share = 1.0 / math.prod(shape[dim] for dim in rows)
    square = emit.scale(emit.reduce_sum(emit.mul(x, x), rows, keepdims=True), share)
    root = emit.unary("Sqrt", emit.add(square, emit.scalar(number(op, "epsilon", 1e-5), x)))
    inverse = emit.unary("Reciprocal", root)
    return emit.mul(emit.mul(x, inverse), scale), inverse


def _batch_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (dy, x, scale, mean, inverse) = walk.builder, op.inputs
    rank = emit.rank(x)
    saved = {
        "centred": emit.sub(x, per_channel(emit, mean, rank)),
        "deviation": emit.unary("Reciprocal", inverse),
        "slope": per_channel(emit, emit.mul(scale, inverse), rank),
    }
    parts = walk.rule("BatchNormalization", (x, scale, scale), dy, name=op.name, wanted=(0, 1, 2), saved=saved)
    return tuple(part or "" for part in parts)


def _batch_normalization_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    """BatchNormInternal: by the batch's statistics; running variance and saved 1/σ as well."""
    emit, (x, scale, bias, mean, variance) = walk.builder, op.inputs
    shape, rank = emit.shape(x), emit.rank(x)
    over = [dim for dim in range(rank) if dim != 1]
    share = shape[1] / math.prod(shape)
    epsilon = number(op, "epsilon", 1e-5)
    own_mean = emit.scale(emit.reduce_sum(x, over), share, "mean")
    centred = emit.sub(x, per_channel(emit, own_mean, rank))
    own_variance = emit.scale(emit.reduce_sum(emit.mul(centred, centred), over), share, "variance")
    normal = normalised(emit, x, over, epsilon)
    y = emit.add(emit.mul(normal, per_channel(emit, scale, rank)), per_channel(emit, bias, rank))
    momentum = number(op, "momentum", 0.9)
    running = [
        emit.add(emit.scale(before, momentum), emit.scale(own, 1.0 - momentum))
        for before, own in ((mean, own_mean), (variance, own_variance))
    ]
    inverse = emit.unary("Reciprocal", emit.unary("Sqrt", emit.add(own_variance, emit.scalar(epsilon, x))))
    return y, *running, own_mean, inverse


def _beside(walk: Walk, op: Op, log_p: str, labels: str, rest: list[str]) -> Labelled:
    emit = walk.builder
    weights = rest[0] if rest and rest[0] else None
    ignored = op.attribute("ignore_index")
    index = integer(op, "ignore_index", 0) if ignored is not None else None
    if len(rest) > 1 and rest[1]:
        value = emit.value(rest[1])
        if value is None:
            raise refuse(op, "its ignore_index is not a known constant")
        index = int(value)
    # Most models are written with -1 or -100 for "none": no label is negative, so nothing is ignored then.
    return labelled(emit, log_p, labels, weights, index)


def _cross_entropy_gradient(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, log_p, labels, *rest = op.inputs
    beside = _beside(walk, op, log_p, labels, rest)
    return (beside.logits_gradient(beside.per_position(dy, text(op, "reduction", "mean"))),)


def _cross_entropy_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (scores, labels, *rest) = walk.builder, op.inputs
    log_p = emit.one("LogSoftmax", [scores], emit.shape(scores), emit.dtype(scores), attributes={"axis": 1})
    beside = _beside(walk, op, log_p, labels, rest)
    forms = {"mean": beside.mean, "sum": beside.sum, "none": beside.values}
    return forms[text(op, "reduction", "mean")](), log_p


def _fused_matmul(walk: Walk, op: Op) -> tuple[str, ...]:
    emit = walk.builder
    operands: list[str] = []
    for name, letter in zip(op.inputs, "AB", strict=True):
        rank = emit.rank(name)
        order = list(range(rank))
        if integer(op, f"transBatch{letter}", 0):
            order = [*order[1:-1], order[0], order[-1]]
        if integer(op, f"trans{letter}", 0):
            order = [*order[:-2], order[-1], order[-2]]
        operands.append(emit.transpose(name, order))
    return (emit.scale(emit.matmul(*operands), number(op, "alpha", 1.0)),)


def _broadcast_axes(walk: Walk, op: Op) -> tuple[str, ...]:
    """BroadcastGradientArgs: along which dims each of two shapes was repeated."""
    shapes = [walk.known(op, position, "shapes") for position in (0, 1)]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    full = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    made: list[str] = []
    for shape, own in zip(shapes, padded, strict=True):
        missing = rank - len(shape)
        axes = [dim for dim in range(rank) if dim < missing or (own[dim] == 1 and full[dim] != 1)]
        made.append(walk.builder.ints(axes, "axes"))
    return tuple(made)


def _reduce_sum(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    rank = emit.rank(x)
    axes = sorted(axis % rank for axis in walk.known(op, 1, "axes"))
    if not axes and not integer(op, "noop_with_empty_axes", 0):
        axes = list(range(rank))
    return (emit.reduce_sum(x, axes, keepdims=bool(integer(op, "keepdims", 1))),)


def _scale(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (x, factor) = walk.builder, op.inputs
    factor = emit.reshape(emit.cast(factor, emit.dtype(x)), ())
    return (emit.div(x, factor) if integer(op, "scale_down", 0) else emit.mul(x, factor),)


def _concat(walk: Walk, op: Op) -> tuple[str, ...]:
    emit = walk.builder
    axis = axis_of(op, emit.rank(op.inputs[0]), 0)
    sizes = [emit.shape(name)[axis] for name in op.inputs]
    return emit.concat(op.inputs, axis), emit.ints(sizes, "sizes")


def _split(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    axis = axis_of(op, emit.rank(x), 0)
    parts: list[str] = []
    start = 0
    for size in walk.known(op, 1, "sizes"):
        starts, ends = [0] * emit.rank(x), list(emit.shape(x))
        starts[axis], ends[axis] = start, start + size
        parts.append(emit.slice(x, starts, ends))
        start += size
    return tuple(parts)


def _zero(walk: Walk, op: Op) -> tuple[str, ...]:
    return (walk.builder.zeros(walk.builder.shape(op.inputs[0]), op.inputs[0]),)


def _trilu(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    return (emit.one("Trilu", op.inputs, emit.shape(x), emit.dtype(x), attributes=_attributes(op)),)


def _gelu(approximate: str) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        emit, (x, *bias) = walk.builder, op.inputs
        if bias and bias[0]:
            x = emit.add(x, bias[0])
        return (emit.one("Gelu", [x], emit.shape(x), emit.dtype(x), attributes={"approximate": approximate}),)

    return lowering


def _quick_gelu(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    return (emit.mul(x, emit.unary("Sigmoid", emit.scale(x, number(op, "alpha", 1.702)))),)


def _accumulate(walk: Walk, op: Op) -> tuple[str, ...]:
    """InPlaceAccumulatorV2(buffer, value, overwrite) → whether it was done.

    The step that is built here uses the value itself; accumulation over micro-batches is a choice of the optimizer's.
    """
    emit = walk.builder
    return (emit.constant(np.ones((1,), np.bool_), f"{op.name}.updated"),)


def _refused(reason: str) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        raise UnsupportedError(f"{label(op)}: {reason}")

    return lowering


_TANH: Final = {"approximate": "tanh"}
_NAMED: Final[Mapping[str, Lowering]] = {
    "AveragePoolGrad": _average_pool,
    "BatchNormInternal": _batch_normalization_forward,
    "BatchNormalizationGrad": _batch_normalization,
    "BiasFastGeluGrad_dX": _of_input("Gelu", _TANH),
    "BiasGelu": _gelu("none"),
    "BiasGeluGrad_dX": _of_input("Gelu"),
    "BroadcastGradientArgs": _broadcast_axes,
    "ConcatTraining": _concat,
    "ConvGrad": _conv("Conv"),
    "ConvTransposeGrad": _conv("ConvTranspose"),
    "DivGrad": _div,
    "DropoutGrad": _drop,
    "FastGelu": _gelu("tanh"),
    "FastGeluGrad": _of_input("Gelu", _TANH),
    "FusedMatMul": _fused_matmul,
    "GatherElementsGrad": _gather_elements,
    "GatherGrad": _gather,
    "GatherNDGrad": _gather,
    "Gelu": _gelu("none"),
    "GeluGrad": _of_input("Gelu"),
    "InPlaceAccumulator": _accumulate,
    "InPlaceAccumulatorV2": _accumulate,
    "InvertibleLayerNormalizationGrad": _invertible_layer_normalization,
    "LayerNormalizationGrad": _layer_normalization,
    "LeakyReluGrad": _of_output("LeakyRelu", "alpha"),
    "LogSoftmaxGrad": _softmax("LogSoftmax"),
    "LogSoftmaxGrad_13": _softmax("LogSoftmax"),
    "MaxPoolGrad": _max_pool,
    "QuickGelu": _quick_gelu,
    "QuickGeluGrad": _of_input("Swish"),
    "ReduceSumTraining": _reduce_sum,
    "ReluGrad": _of_output("Relu"),
    "ResizeGrad": _resize,
    "Scale": _scale,
    "SigmoidGrad": _of_output("Sigmoid"),
    "SimplifiedLayerNormalization": _simplified_forward,
    "SimplifiedLayerNormalizationGrad": _simplified_layer_normalization,
    "SliceGrad": _slice,
    "SoftmaxCrossEntropyLossGrad": _cross_entropy_gradient,
    "SoftmaxCrossEntropyLossInternal": _cross_entropy_forward,
    "SoftmaxCrossEntropyLossInternalGrad": _cross_entropy_gradient,
    "SoftmaxGrad": _softmax("Softmax"),
    "SoftmaxGrad_13": _softmax("Softmax"),
    "SplitTraining": _split,
    "TanhGrad": _of_output("Tanh"),
    "TransposeMatMul": _fused_matmul,
    "Trilu": _trilu,
    "ZeroGradient": _zero,
    "BitmaskDropoutGrad": _refused("a mask of bits has no standard form"),
    "GRUGrad": _refused("recurrent networks are taken as a forward model, where they are unrolled"),
    "LSTMGrad": _refused("recurrent networks are taken as a forward model, where they are unrolled"),
    "NcclAllReduce": _refused("the model is distributed already"),
}
TABLE: Final[Mapping[tuple[str, str], Lowering]] = MappingProxyType(
    {
        **{(DOMAIN, name): lowering for name, lowering in _NAMED.items()},
        ("", "SimplifiedLayerNormalization"): _simplified_forward,
        ("", "SoftmaxCrossEntropyLoss"): _cross_entropy_forward,
    }
)
"""By domain and operator."""
