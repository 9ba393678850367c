"""Sizes of outputs where ONNX's inference says other ones than ONNX Runtime makes, or says none.

What the runtime makes is what a plan must be of: a tensor that is one element longer in the plan cannot be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import NodeProto, helper

from planner.errors import ModelError
from planner.graph.core.model import Shape, Tensor

_Known: TypeAlias = Sequence[np.ndarray | None]
"""The values of an op's operands by position, None where one is absent or not known."""
_Rule: TypeAlias = Callable[[Shape, _Known, Mapping[str, Any]], Shape | None]


def runtime_sizes(
    node: NodeProto,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, np.ndarray | None],
    types: Mapping[str, Tensor | None],
) -> dict[str, Tensor | None]:
    """The outputs of an op of the default domain, of the sizes that ONNX Runtime makes.

    Args:
        node: the op.
        tensors: static types of what it reads.
        values: what is known of that.
        types: its outputs by ONNX's inference; None where that says nothing.

    Raises:
        ModelError: a size that an operand states cannot be.
    """
    rule = _RULES.get(node.op_type)
    if rule is None:
        return dict(types)
    first, operands = tensors[node.input[0]], [values.get(name) for name in node.input]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    shape = rule(first.shape, [*operands, *[None] * 3], attributes)
    if shape is None:
        return dict(types)
    return {
        name: replace(tensor or first, name=name, shape=shape) if tensor is not None or name == node.output[0] else None
        for name, tensor in types.items()
    }


def _resized(before: Shape, operands: _Known, attributes: Mapping[str, Any]) -> Shape | None:
    """A Resize by scales: the runtime multiplies in float32, where 9 times 1.6666666 is 15.

    ONNX's inference multiplies in float64, and says 14.
    """
    scales = operands[2]
    if scales is None or not scales.size:
        return None
    sizes = list(before)
    axes = attributes.get("axes") or range(len(sizes))
    for axis, scale in zip(axes, scales.astype(np.float32).ravel(), strict=True):
        sizes[axis] = int(np.float32(sizes[axis]) * scale)
    return tuple(sizes)


def _pooled(before: Shape, operands: _Known, attributes: Mapping[str, Any]) -> Shape | None:
    """A pool that rounds up: a window that would begin beyond the input and the padding before it is none.

    So ONNX has it since opset 19, PyTorch and the runtime always; ONNX's inference counts it at every opset.
    """
    mode = attributes.get("auto_pad", b"NOTSET")
    if not attributes.get("ceil_mode", 0) or mode not in (b"NOTSET", b"VALID"):
        return None
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    pads = (attributes.get("pads") if mode == b"NOTSET" else None) or [0] * (2 * rank)
    return (*before[:2], *map(_windows_begun, before[2:], kernel, strides, dilations, pads[:rank], pads[rank:]))


def _windows_begun(size: int, kernel: int, stride: int, dilation: int, front: int, back: int) -> int:
    """How many windows there are along a dim, the last one perhaps reaching beyond the padding at its end."""
    room = size + front + back - (kernel - 1) * dilation - 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + front else count


def _unpooled(before: Shape, operands: _Known, attributes: Mapping[str, Any]) -> Shape | None:
    """A MaxUnpool of a stated size, which ONNX's inference leaves out."""
    stated = operands[2]
    if stated is None:
        return None
    shape = tuple(int(size) for size in stated.ravel())
    if len(shape) != len(before) or shape[:2] != before[:2]:
        raise ModelError(f"its output size is stated as {list(shape)}, and its input is {list(before)}")
    return shape


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pooled),
    "MaxUnpool": _unpooled,
    "Resize": _resized,
}
