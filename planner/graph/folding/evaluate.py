"""Evaluation of one op on known values, in NumPy: what shape arithmetic needs, and no more."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import NodeProto, numpy_helper, reference

from planner.graph.core.attributes import integer
from planner.graph.core.model import Op, Tensor
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
BOUNDED_BY_INPUTS: Final = frozenset({"Compress", "NonZero", "Unique"})
"""Those whose result cannot be large if their operands are small, though its size is not known beforehand."""


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
    if node.op_type == "ConstantOfShape" and first is not None:
        return (np.broadcast_to(_fill_value(node), tuple(int(size) for size in first)),)
    if node.op_type == "Expand" and first is not None and is_fill(first):
        target = operands[1]
        assert target is not None, "the schema requires Expand's shape"
        shape = np.broadcast_shapes(first.shape, tuple(int(size) for size in target))
        return (np.broadcast_to(first[(slice(0, 1),) * first.ndim].reshape(()), shape),)
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


def extent(op: Op, tensor: Tensor) -> np.ndarray:
    """The result of a Shape, of all dims or from ``start`` to ``end``, or of a Size.

    Args:
        op: a Shape or a Size.
        tensor: what it reads.
    """
    if op.op_type == "Size":
        return np.array(tensor.elements, np.int64)
    shape = tensor.shape
    return np.array(shape[integer(op, "start", 0) : integer(op, "end", len(shape))], np.int64)


def _fill_value(node: NodeProto) -> np.ndarray:
    for attribute in node.attribute:
        if attribute.name == "value":
            return np.array(numpy_helper.to_array(attribute.t)).reshape(())
    return np.zeros((), np.float32)
