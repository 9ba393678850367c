"""Constants of one value seen at every index, which are no larger in a file than they are in memory.

The zeros that an embedding's gradient is added to are as large as the embedding (2.5 GB of GPT-3's 50257 × 12288). In
memory a fill is a view of one element; in a file a large one is a ConstantOfShape that reads a Constant, which any
runtime evaluates and ``fold`` makes a constant of again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import NodeProto, helper, numpy_helper

LARGE_BYTES: Final = 2**20
"""A fill from this size on is written as an op."""
_WRITABLE: Final = frozenset("fiub")
"""Kinds of NumPy dtypes that ConstantOfShape makes at every opset; bfloat16 is none."""


def is_fill(array: np.ndarray) -> bool:
    """Whether an array is one value seen at every index (so that it takes the memory of one element)."""
    spread = [stride for stride, size in zip(array.strides, array.shape, strict=True) if size > 1]
    return array.size > 0 and not any(spread)


def is_large_fill(array: np.ndarray) -> bool:
    """Whether an array is a fill that is to be written as an op."""
    return array.nbytes >= LARGE_BYTES and array.dtype.kind in _WRITABLE and is_fill(array)


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
    return not node.domain and node.op_type in ("Constant", "ConstantOfShape")


def fills_of(nodes: list[NodeProto]) -> dict[str, np.ndarray]:
    """The fills that nodes written by ``fill_nodes`` make, by name, as views of one element."""
    shapes = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t) for node in nodes if node.op_type == "Constant"
    }
    return {
        node.output[0]: np.broadcast_to(
            numpy_helper.to_array(node.attribute[0].t).reshape(()), tuple(int(size) for size in shapes[node.input[0]])
        )
        for node in nodes
        if node.op_type == "ConstantOfShape"
    }
