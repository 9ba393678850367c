"""Gradient operators of com.microsoft that are a gradient rule of this package, given its operands by position.

GO is the gradient of the forward op's output, I and O are its inputs and outputs.
"""

from __future__ import annotations

import math

from planner.graph.core.attributes import attributes_of, axis_of, number, refuse
from planner.graph.core.model import Attribute, Op
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.training.doors.rewriting import Rewriting


@stands_for(
    *(f"com.microsoft.{name}Grad" for name in ("LeakyRelu", "Relu", "Sigmoid", "Tanh")), purpose=Purpose.ARTIFACTS
)
def of_output(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """An activation's gradient from (GO, O)."""
    dy, y = op.inputs
    attributes = attributes_of(op, "alpha")
    return emit.gradients(op, op.op_type.removesuffix("Grad"), (y,), dy, y=y, attributes=attributes)


@stands_for(
    *(f"com.microsoft.{name}" for name in ("BiasFastGeluGrad_dX", "BiasGeluGrad_dX", "FastGeluGrad", "GeluGrad")),
    purpose=Purpose.ARTIFACTS,
)
def of_input(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of Gelu from (GO, I), or from (GO, I, bias) where it was added first."""
    dy, x, *bias = op.inputs
    if bias:
        x = emit.add(x, bias[0])
    stated: dict[str, Attribute] = {"approximate": "tanh"} if "Fast" in op.op_type else {}
    y = emit.one("Gelu", [x], emit.shape(x), emit.dtype(x), attributes=stated)
    return emit.gradients(op, "Gelu", (x,), dy, y=y, attributes=stated)


@stands_for("com.microsoft.QuickGeluGrad", purpose=Purpose.ARTIFACTS)
def quick_gelu(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of Swish from (GO, I)."""
    dy, x = op.inputs
    alpha = number(op, "alpha", 1.702)
    y = emit.mul(x, emit.unary("Sigmoid", emit.scale(x, alpha)))
    return emit.gradients(op, "Swish", (x,), dy, y=y, attributes={"alpha": alpha})


@stands_for(
    *(f"com.microsoft.{name}" for name in ("LogSoftmaxGrad", "LogSoftmaxGrad_13", "SoftmaxGrad", "SoftmaxGrad_13")),
    purpose=Purpose.ARTIFACTS,
)
def softmax(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of a softmax from (GO, O).

    SoftmaxGrad_13 works along one dim; SoftmaxGrad, of older opsets, along all from ``axis`` on together.
    """
    dy, y = op.inputs
    shape, (op_type, _, version) = emit.shape(y), op.op_type.partition("Grad")
    axis = axis_of(op, len(shape), -1 if version else 1)
    if not version and axis != len(shape) - 1:
        flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        dy, y, axis = emit.reshape(dy, flat), emit.reshape(y, flat), 1
    return (emit.reshape(emit.gradients(op, op_type, (y,), dy, y=y, attributes={"axis": axis})[0], shape),)


@stands_for("com.microsoft.DivGrad", purpose=Purpose.ARTIFACTS)
def div(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of a quotient from (GO, A, B)."""
    dy, a, b = op.inputs
    return emit.gradients(op, "Div", (a, b), dy, y=emit.div(a, b))


@stands_for("com.microsoft.ConvGrad", "com.microsoft.ConvTransposeGrad", purpose=Purpose.ARTIFACTS)
def conv(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of a convolution from (GO, X, W)."""
    dy, x, w = op.inputs
    bias = emit.declare(f"{op.name}.bias", (emit.shape(dy)[1],), emit.dtype(dy))
    return emit.gradients(op, op.op_type.removesuffix("Grad"), (x, w, bias), dy, attributes=attributes_of(op))


@stands_for("com.microsoft.MaxPoolGrad", "MaxPoolGrad", purpose=Purpose.ARTIFACTS)
def max_pool(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of MaxPool from (GO, indices)."""
    dy, indices = op.inputs
    forward = emit.graph.makers.get(indices)
    if forward is None or forward.op_type != "MaxPool":
        raise refuse(op, "the MaxPool that made its indices is not in the model")
    return emit.gradients(op, "MaxPool", forward.inputs[:1], dy, attributes=attributes_of(forward))


@stands_for("com.microsoft.AveragePoolGrad", "AveragePoolGrad", purpose=Purpose.ARTIFACTS)
def average_pool(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of AveragePool from GO. The pooling that it belongs to says the shape."""
    dy = op.inputs[0]
    stated = {key: value for key, value in op.attributes if value != 0}
    pools = [
        forward
        for name, forward in emit.graph.makers.items()
        if forward.op_type == "AveragePool"
        and emit.shape(name) == emit.shape(dy)
        and {key: value for key, value in forward.attributes if value != 0} == stated
    ]
    if len({emit.shape(forward.inputs[0]) for forward in pools}) != 1:
        raise refuse(op, "which AveragePool it belongs to cannot be told")
    return emit.gradients(op, "AveragePool", pools[0].inputs[:1], dy, attributes=attributes_of(op))


@stands_for("com.microsoft.DropoutGrad", purpose=Purpose.ARTIFACTS)
def drop(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of Dropout from (GO, mask, ratio, training_mode)."""
    dy, mask = op.inputs[:2]
    if op.has_input(3) and not emit.known(op, 3, "training_mode").item():
        return (dy,)
    return emit.gradients(op, "Dropout", (dy, *op.inputs[2:3]), dy, saved={"mask": mask})


def _stand_in(emit: Rewriting, op: Op, position: int, prototype: str) -> str:
    """A tensor of a shape that an operand states: rules read the shape of the forward input and no more."""
    return emit.declare(f"{op.name}.x", tuple(emit.known(op, position, "shape").tolist()), emit.dtype(prototype))


@stands_for("com.microsoft.GatherGrad", "com.microsoft.GatherNDGrad", purpose=Purpose.ARTIFACTS)
def gather(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of a lookup from (shape, indices, GO)."""
    _, indices, dy = op.inputs
    operands = _stand_in(emit, op, 0, dy), indices
    return emit.gradients(op, op.op_type.removesuffix("Grad"), operands, dy, attributes=attributes_of(op))


@stands_for("com.microsoft.GatherElementsGrad", purpose=Purpose.ARTIFACTS)
def gather_elements(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of GatherElements from (GO, shape, indices)."""
    dy, _, indices = op.inputs
    operands = _stand_in(emit, op, 1, dy), indices
    return emit.gradients(op, "GatherElements", operands, dy, attributes=attributes_of(op))


@stands_for("com.microsoft.SliceGrad", purpose=Purpose.ARTIFACTS)
def slices(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of Slice from (GO, shape, bounds)."""
    dy, _, *bounds = op.inputs
    x = _stand_in(emit, op, 1, dy)
    return (emit.gradients(op, "Slice", (x, *bounds), dy)[0] or emit.zeros(emit.shape(x), dy),)


@stands_for("com.microsoft.ResizeGrad", purpose=Purpose.ARTIFACTS)
def resize(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of Resize from GO and the operands of the forward op."""
    dy, *operands = op.inputs
    return emit.gradients(op, "Resize", tuple(operands), dy, attributes=attributes_of(op))
