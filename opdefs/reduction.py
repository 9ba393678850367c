"""Reductions over dims: Reduce*, ArgMax and ArgMin, global pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from planner.opdefs.broadcast import normal_axes, normal_axis
from planner.opdefs.parts import filled, int64, output_dtype
from planner.tdl.builder import Ix, Max, Min, NodeView, Opaque, Prod, Sum, TensorArg, Val, call, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part, same_op

REDUCERS = {
    "ReduceSum": Sum,
    "ReduceMean": Sum,
    "ReduceL1": Sum,
    "ReduceL2": Sum,
    "ReduceSumSquare": Sum,
    "ReduceLogSum": Sum,
    "ReduceLogSumExp": Sum,
    "ReduceMax": Max,
    "ReduceMin": Min,
    "ReduceProd": Prod,
}
BEFORE: dict[str, Callable[[Val], Val]] = {
    "ReduceL1": lambda x: call("Abs", x),
    "ReduceL2": lambda x: x * x,
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSumExp": lambda x: call("Exp", x),
}
"""What is done to each element before it is reduced."""
AFTER = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}
"""What is done to the total: then partial results cannot be joined by the reducer alone."""


def _itself(value: Val) -> Val:
    return value


def reduced_axes(node: NodeView, rank: int) -> tuple[int, ...]:
    """The dims that a Reduce operator reduces over: an attribute or a constant input; all, where neither is said."""
    stated: Sequence[int] = node.attribute("axes") or ()
    if node.has(1):
        stated = [int(axis) for axis in node.constant(1).ravel()]
    if not stated:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return normal_axes(stated, rank)


def kept_indices(rank: int, axes: Sequence[int], keepdims: bool, i: Sequence[Ix], inner: Sequence[Ix]) -> list[Ix]:
    """The index of each input dim: an inner variable for reduced dims, an output variable for the others."""
    outer = iter([var for dim, var in enumerate(i) if dim not in axes] if keepdims else i)
    reduced = iter(inner)
    return [next(reduced) if dim in axes else next(outer) for dim in range(rank)]


def reduce_local(node: NodeView, part: Part) -> LocalOp:
    """The same op; but a mean of a part of its elements is their sum over the count of all."""
    if node.op.op_type != "ReduceMean" or _is_whole(part):
        return same_op(node, part)
    shape = node.input_shape(0)
    axes = reduced_axes(node, len(shape))
    return scaled_sum(node, axes, bool(node.attribute("keepdims", 1)), prod(shape[dim] for dim in axes))


def _is_whole(part: Part) -> bool:
    return all(part.ranges[name] == (0, part.extents[name]) for name in part.reduction_variables)


def scaled_sum(node: NodeView, axes: Sequence[int], keepdims: bool, count: int) -> LocalOp:
    """ReduceSum, then a product with 1/count.

    Raises:
        NotLocalError: the mean is of integers, which rounds.
    """
    dtype = output_dtype(node)
    if not dtype.is_float:
        raise NotLocalError("a mean of integers rounds: its parts cannot be joined")
    return LocalOp(
        (
            LocalNode("ReduceSum", ("in0", "axes"), ("sum",), {"keepdims": int(keepdims)}),
            LocalNode("Mul", ("sum", "share"), ("out0",)),
        ),
        {"axes": int64(axes), "share": filled(dtype, 1.0 / count, ())},
    )


@op(*REDUCERS, local=reduce_local, always_local=lambda node: node.op.op_type != "ReduceMean")
def reduce(node: NodeView, X: TensorArg, axes: TensorArg | None = None) -> object:
    """Reduces over axes; with keepdims they stay, with size 1."""
    over = reduced_axes(node, X.rank)
    keepdims = bool(node.attribute("keepdims", 1))
    name = node.op.op_type
    before, reducer = BEFORE.get(name, _itself), REDUCERS[name]

    def value(*i: Ix) -> Val:
        total = reducer(lambda *r: before(X[tuple(kept_indices(X.rank, over, keepdims, i, r))]), count=len(over))
        if name == "ReduceMean":
            return total / prod(node.size(0, dim) for dim in over)
        return call(AFTER[name], total) if name in AFTER else total

    return value


def global_pool_local(node: NodeView, part: Part) -> LocalOp:
    """The same op; but an average of a part of the positions is their sum over the count of all."""
    if node.op.op_type == "GlobalMaxPool" or _is_whole(part):
        return same_op(node, part)
    shape = node.input_shape(0)
    return scaled_sum(node, range(2, len(shape)), True, prod(shape[2:]))


@op("GlobalAveragePool", "GlobalMaxPool", local=global_pool_local)
def global_pool(node: NodeView, X: TensorArg) -> object:
    """One value for each sample and channel; the spatial dims stay, with size 1."""
    rank = X.rank - 2
    if node.op.op_type == "GlobalMaxPool":
        return lambda b, c, *y: Max(lambda *r: X[(b, c, *r)], count=rank)
    positions = prod(node.size(0, 2 + dim) for dim in range(rank))
    return lambda b, c, *y: Sum(lambda *r: X[(b, c, *r)], count=rank) / positions


@op("ArgMax", "ArgMin")
def arg_extreme(node: NodeView, X: TensorArg) -> object:
    """The position of the extreme along axis: opaque, for the position of a part's extreme is not the whole's."""
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    keepdims = bool(node.attribute("keepdims", 1))

    def value(*i: Ix) -> Val:
        index = [var for dim, var in enumerate(i) if dim != axis] if keepdims else list(i)
        result = Opaque(node.op.op_type)(X[(*index[:axis], slice(None), *index[axis:])])
        return result[(i[axis],) if keepdims else ()]

    return value
