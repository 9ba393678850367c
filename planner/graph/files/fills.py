"""Constants of one value seen at every index, which are no larger in a file than they are in memory.

The zeros that an embedding's gradient is added to are as large as the embedding (2.5 GB of GPT-3's 50257 × 12288). In
memory a fill is a view of one element; in a file a large one is a ConstantOfShape that reads a Constant, which any
runtime evaluates and ``fold`` makes a constant of again.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
from onnx import NodeProto, helper, numpy_helper

from planner.errors import ModelError
from planner.graph.core.model import of_types
from planner.graph.files.protos import shape_fault, stored_array

LARGE_BYTES: Final = 2**20
"""A fill from this size on is written as an op."""
_WRITABLE: Final = frozenset("fiub")
"""Kinds of NumPy dtypes that ConstantOfShape makes at every opset; bfloat16 is none."""
_OPSET_OF_BFLOAT16: Final = 20
"""From which on ConstantOfShape makes bfloat16, too."""


def is_fill(array: np.ndarray) -> bool:
    """Whether an array is one value seen at every index (so that it takes the memory of one element)."""
    spread = [stride for stride, size in zip(array.strides, array.shape, strict=True) if size > 1]
    return array.size > 0 and not any(spread)


def is_large_fill(array: np.ndarray, opset: int) -> bool:
    """Whether an array is a fill that is to be written as an op of this opset."""
    if array.nbytes < LARGE_BYTES or not is_fill(array):
        return False
    return array.dtype.kind in _WRITABLE or (array.dtype == ml_dtypes.bfloat16 and opset >= _OPSET_OF_BFLOAT16)


def fill_nodes(name: str, array: np.ndarray, shape_name: str) -> list[NodeProto]:
    """The two nodes that make a fill: its shape (ONNX Constant), and the fill (ONNX ConstantOfShape)."""
    shape = numpy_helper.from_array(np.array(array.shape, np.int64))
    value = numpy_helper.from_array(np.ascontiguousarray(array[(0,) * array.ndim]).reshape(1))
    return [
        helper.make_node("Constant", [], [shape_name], value=shape),
        helper.make_node("ConstantOfShape", [shape_name], [name], value=value),
    ]


def is_fill_node(node: NodeProto) -> bool:
    """Whether a node is of the kinds that ``fill_nodes`` writes."""
    return of_types(node, ("Constant", "ConstantOfShape")) is not None


def fills_of(nodes: list[NodeProto]) -> dict[str, np.ndarray]:
    """The fills that nodes written by ``fill_nodes`` make, by name, as views of one element.

    Raises:
        ModelError: they are not what ``fill_nodes`` writes.
    """
    shapes = {node.output[0]: _value(node) for node in nodes if of_types(node, ("Constant",)) and node.output}
    fills = {}
    for node in (node for node in nodes if of_types(node, ("ConstantOfShape",))):
        shape = shapes.get(node.input[0]) if node.input and node.output else None
        value = _value(node)
        is_shape = shape is not None and shape.ndim == 1 and shape.dtype == np.int64
        if shape is None or not is_shape or shape_fault(shape.tolist()) or value.size != 1:
            raise ModelError(f"node {node.name!r} (ConstantOfShape) has no shape or value that can be read")
        fills[node.output[0]] = np.broadcast_to(value.reshape(()), tuple(shape.tolist()))
    return fills


def _value(node: NodeProto) -> np.ndarray:
    if len(node.attribute) != 1:
        raise ModelError(f"node {node.name!r} ({node.op_type}) does not state one value")
    return stored_array(node.attribute[0].t, f"node {node.name!r} ({node.op_type})")
