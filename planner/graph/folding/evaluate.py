"""Evaluation of one op on known values, in NumPy: what shape arithmetic needs, and no more."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import NodeProto, numpy_helper, reference

from planner.graph.core.attributes import integer
from planner.graph.core.model import Op
from planner.graph.core.traits import ARITHMETIC, COMPARISONS, LOGIC, LOOKUPS, MOVING, REDUCTIONS, SCATTERS, named
from planner.graph.files.fills import is_fill

MAX_FOLDED_ELEMENTS: Final = 2**20
"""No operand and no result of folding is larger, but for fills, which take no memory."""

FOLDABLE: Final = (LOGIC | COMPARISONS | ARITHMETIC | MOVING | LOOKUPS | SCATTERS | REDUCTIONS).union(
    named(
        "ArgMax ArgMin Cast Concat ConstantOfShape Cos CumSum EyeLike Identity MatMul NonZero OneHot Range Relu "
        "Sigmoid Sin Tanh TopK Unique"
    )
)
"""Operators that are evaluated when all that they read is known: cheap, and the same at every run."""
BOUNDED_BY_INPUTS: Final[Mapping[str, int]] = {"Compress": 1, "NonZero": 0, "Unique": 0}
"""The first operand that decides the size of a result, of operators that make no more than they read, but how much is
not known beforehand."""


def fills(op_type: str, first: np.ndarray | None) -> bool:
    """Whether an op of this type makes a fill, given its first operand."""
    return first is not None and (op_type == "ConstantOfShape" or (op_type == "Expand" and is_fill(first)))


def evaluate(node: NodeProto, operands: Sequence[np.ndarray | None], opset: int) -> tuple[np.ndarray, ...] | None:
    """The results of one op on known operands.

    A fill (ConstantOfShape, Expand of a single value) comes back as a read-only view of one element.

    Args:
        node: an op whose type is in ``FOLDABLE``, of the default domain.
        operands: its inputs by position; None where an optional one is absent.
        opset: version of the default domain.

    Returns:
        One array for each output, or None if this op cannot be evaluated here.
    """
    first = operands[0] if operands else None
    if fills(node.op_type, first):
        *filled, sizes = (operand for operand in operands if operand is not None)
        value = filled[0] if filled else _fill_value(node)
        shape = np.broadcast_shapes(value.shape, tuple(int(size) for size in sizes))
        return (np.broadcast_to(value[(slice(0, 1),) * value.ndim].reshape(()), shape),)
    if node.op_type == "Identity" and first is not None:
        return (first,)
    feeds = {name: array for name, array in zip(node.input, operands, strict=True) if name and array is not None}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            evaluator = reference.ReferenceEvaluator(node, opsets={"": opset})
            results = evaluator.run(None, feeds)
    except Exception:  # noqa: BLE001 -- whatever the reference cannot evaluate stays an op
        return None
    if node.op_type == "ReduceMean" and first is not None and not first.size:
        results = [np.zeros_like(result) for result in results]  # as ONNX Runtime has it, where the evaluator says NaN
    if not isinstance(results, list) or not all(isinstance(result, np.ndarray | np.generic) for result in results):
        return None
    return tuple(np.asarray(result) for result in results)


EXTENTS: Final[Mapping[str, Callable[[Op, Sequence[int]], Any]]] = {
    "Shape": lambda op, shape: np.array(shape[integer(op, "start", 0) : integer(op, "end", len(shape))], np.int64),
    "Size": lambda op, shape: np.array(math.prod(shape), np.int64),
}
"""The result of an op that reads nothing but the shape of its operand."""


def _fill_value(node: NodeProto) -> np.ndarray:
    for attribute in node.attribute:
        if attribute.name == "value":
            return np.array(numpy_helper.to_array(attribute.t)).reshape(())
    return np.zeros((), np.float32)
