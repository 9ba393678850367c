"""Helpers of local rules: shapes of a part's arrays, and constants that they add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import ml_dtypes
import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import DType, Shape
from planner.tdl.builder import NodeView
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part

EVERYTHING: Final = slice(None)
"""The index of a dim that is read whole."""


def array_shape(shape: Shape | None, region: Region) -> Shape:
    """Shape of the array that holds a region of a tensor: the region's, and () where the tensor is a scalar."""
    return () if shape == () else region.shape


def output_shape(node: NodeView, part: Part) -> Shape:
    """Shape of the array that a part makes of the first output."""
    return array_shape(node.output_shapes[0], output_region(part))


def output_dtype(node: NodeView) -> DType:
    """Dtype of the first output, for constants that a local rule adds.

    Raises:
        NotLocalError: it is not known.
    """
    dtype = next(iter(node.output_dtypes), None)
    if dtype is None:
        raise NotLocalError("the dtype of output 0 is not known")
    return dtype


def input_region(part: Part, slot: int) -> Region:
    """The region that a part reads of an input that every part reads."""
    region = part.inputs[slot]
    assert region is not None, f"input {slot} is read by every part"
    return region


def output_region(part: Part, position: int = 0) -> Region:
    """The region that a part makes of an output that is not absent."""
    region = part.outputs[position]
    assert region is not None, f"output {position} is made"
    return region


def int64(values: Sequence[int]) -> np.ndarray:
    """A constant input of integers, shape [len(values)]."""
    return np.array(values, dtype=np.int64).reshape(len(values))


def filled(dtype: DType, value: float, shape: Shape) -> np.ndarray:
    """A constant of one value; keep it small, it goes into the worker's model."""
    return np.full(shape, value, dtype=dtype.array_dtype)


def lowest(dtype: DType) -> float:
    """The least number of a dtype: what ONNX Runtime takes for the maximum of nothing."""
    if not dtype.is_float:
        return int(ml_dtypes.iinfo(dtype.array_dtype).min)  # type: ignore[no-untyped-call]
    return float(ml_dtypes.finfo(dtype.array_dtype).min)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it untyped


def constant_result(node: NodeView, part: Part, value: float) -> LocalOp:
    """The local op of a part that is one value everywhere: it reads only padding."""
    array = filled(output_dtype(node), value, ())
    return LocalOp(
        (LocalNode("Expand", ("value", "shape"), ("out0",)),),
        {"value": array, "shape": int64(output_shape(node, part))},
    )
