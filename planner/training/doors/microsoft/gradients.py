"""Gradient operators of com.microsoft that are a gradient rule of this package, given its operands by position.

GO is the gradient of the forward op's output, I and O are its inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.graph.core.attributes import attributes_of, axis_of, number, refuse
from planner.graph.core.model import Attribute, Op, Shape
from planner.training.doors.walk import Lowering, Walk


def _of_output(op_type: str, *names: str) -> Lowering:
    """An activation's gradient from (GO, O)."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        dy, y = op.inputs
        attributes = attributes_of(op, *names) if names else {}
        return (walk.rule(op_type, (y,), dy, y=y, name=op.name, attributes=attributes)[0] or "",)

    return lowering


def _of_input(op_type: str, attributes: Mapping[str, Attribute] | None = None) -> Lowering:
    """An activation's gradient from (GO, I), or from (GO, I, bias) where it was added first."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        emit, (dy, x, *bias) = walk.builder, op.inputs
        if bias:
            x = emit.add(x, bias[0])
        stated = dict(attributes or {})
        if op_type == "Swish":
            stated["alpha"] = alpha = number(op, "alpha", 1.702)
            y = emit.mul(x, emit.unary("Sigmoid", emit.scale(x, alpha)))
        else:
            y = emit.one(op_type, [x], emit.shape(x), emit.dtype(x), attributes=stated)
        return (walk.rule(op_type, (x,), dy, y=y, name=op.name, attributes=stated)[0] or "",)

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
        parts = walk.rule(op_type, (x, w, bias), dy, name=op.name, wanted=wanted, attributes=attributes_of(op))
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
    pools = [
        forward
        for name, forward in walk.originals.items()
        if forward.op_type == "AveragePool"
        and walk.builder.shape(name) == shape
        and {key: value for key, value in forward.attributes if value != 0} == stated
    ]
    shapes = {walk.builder.shape(forward.inputs[0]) for forward in pools}
    if len(shapes) != 1:
        raise refuse(op, "which AveragePool it belongs to cannot be told")
    return (walk.rule("AveragePool", (pools[0].inputs[0],), dy, name=op.name, attributes=attributes_of(op))[0] or "",)


def _drop(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (dy, mask, *options) = walk.builder, op.inputs
    ratio = emit.value(options[0]) if options and options[0] else np.array(0.5)
    mode = emit.value(options[1]) if len(options) > 1 and options[1] else np.array(True)
    if ratio is None or mode is None:
        raise refuse(op, "its ratio and its training_mode are not known constants")
    if not bool(mode):
        return (dy,)
    return (emit.where(mask, emit.scale(dy, 1.0 / (1.0 - float(ratio))), emit.scalar(0.0, dy)),)


def _stand_in(walk: Walk, op: Op, position: int, prototype: str) -> str:
    """A tensor of a shape that an operand states: rules read the shape of the forward input and no more."""
    shape: Shape = walk.integers(op, position, "shape")
    return walk.builder.declare(f"{op.name}.x", shape, walk.builder.dtype(prototype))


def _gather(walk: Walk, op: Op) -> tuple[str, ...]:
    _, indices, dy = op.inputs
    x = _stand_in(walk, op, 0, dy)
    op_type = "Gather" if op.op_type == "GatherGrad" else "GatherND"
    return (walk.rule(op_type, (x, indices), dy, name=op.name, attributes=attributes_of(op))[0] or "",)


def _gather_elements(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, _, indices = op.inputs
    x = _stand_in(walk, op, 1, dy)
    return (walk.rule("GatherElements", (x, indices), dy, name=op.name, attributes=attributes_of(op))[0] or "",)


def _slice(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, _, *bounds = op.inputs
    x = _stand_in(walk, op, 1, dy)
    dx = walk.rule("Slice", (x, *bounds), dy, name=op.name)[0]
    return (dx or walk.builder.zeros(walk.builder.shape(x), dy),)


def _resize(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, *operands = op.inputs
    return (walk.rule("Resize", tuple(operands), dy, name=op.name, attributes=attributes_of(op))[0] or "",)


_TANH: Final = {"approximate": "tanh"}
LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "AveragePoolGrad": _average_pool,
        "BiasFastGeluGrad_dX": _of_input("Gelu", _TANH),
        "BiasGeluGrad_dX": _of_input("Gelu"),
        "ConvGrad": _conv("Conv"),
        "ConvTransposeGrad": _conv("ConvTranspose"),
        "DivGrad": _div,
        "DropoutGrad": _drop,
        "FastGeluGrad": _of_input("Gelu", _TANH),
        "GatherElementsGrad": _gather_elements,
        "GatherGrad": _gather,
        "GatherNDGrad": _gather,
        "GeluGrad": _of_input("Gelu"),
        "LeakyReluGrad": _of_output("LeakyRelu", "alpha"),
        "LogSoftmaxGrad": _softmax("LogSoftmax"),
        "LogSoftmaxGrad_13": _softmax("LogSoftmax"),
        "MaxPoolGrad": _max_pool,
        "QuickGeluGrad": _of_input("Swish"),
        "ReluGrad": _of_output("Relu"),
        "ResizeGrad": _resize,
        "SigmoidGrad": _of_output("Sigmoid"),
        "SliceGrad": _slice,
        "SoftmaxGrad": _softmax("Softmax"),
        "SoftmaxGrad_13": _softmax("Softmax"),
        "TanhGrad": _of_output("Tanh"),
    }
)
"""By operator."""
