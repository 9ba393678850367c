"""Reductions over dims: Reduce*, ArgMax and ArgMin, global pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

from planner.opdefs.broadcast import normal_axes, normal_axis
from planner.opdefs.parts import filled, int64, output_dtype
from planner.tdl.builder import Ix, Max, Min, NodeView, Opaque, Prod, Sum, TensorArg, Val, call, op
from planner.tdl.local import LocalNode, LocalOp, LocalRule, NotLocalError, Part, same_op

_Map: TypeAlias = "Callable[[Val], Val]"


def _itself(value: Val) -> Val:
    return value


def _square(value: Val) -> Val:
    return value * value


REDUCTIONS: dict[str, tuple[_Map, Callable[..., Val], _Map]] = {
    "ReduceL1": (partial(call, "Abs"), Sum, _itself),
    "ReduceL2": (_square, Sum, partial(call, "Sqrt")),
    "ReduceLogSum": (_itself, Sum, partial(call, "Log")),
    "ReduceLogSumExp": (partial(call, "Exp"), Sum, partial(call, "Log")),
    "ReduceMax": (_itself, Max, _itself),
    "ReduceMin": (_itself, Min, _itself),
    "ReduceProd": (_itself, Prod, _itself),
    "ReduceSum": (_itself, Sum, _itself),
    "ReduceSumSquare": (_square, Sum, _itself),
}
"""The function of each element, the reducer, and the function of the total: with one, partial results cannot be joined
by the reducer alone."""


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


def _mean_local(dims: Callable[[NodeView, int], Sequence[int]]) -> LocalRule:
    """The same op; but a mean of a part of its elements is their sum over the count of all."""

    def local(node: NodeView, part: Part) -> LocalOp:
        if _is_whole(part):
            return same_op(node, part)
        shape = node.input_shape(0)
        axes = dims(node, len(shape))
        return scaled_sum(node, axes, bool(node.attribute("keepdims", 1)), prod(shape[dim] for dim in axes))

    return local


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


def _reduced(node: NodeView, X: TensorArg, reducer: Callable[..., Val], before: _Map) -> Callable[..., Val]:
    """Each element of the total; with keepdims the reduced dims stay, with size 1."""
    axes, keepdims = reduced_axes(node, X.rank), bool(node.attribute("keepdims", 1))

    def total(*i: Ix) -> Val:
        return reducer(lambda *r: before(X[tuple(kept_indices(X.rank, axes, keepdims, i, r))]), count=len(axes))

    return total


@op(*REDUCTIONS)
def reduce(node: NodeView, X: TensorArg, axes: TensorArg | None = None) -> object:
    """Reduces over axes."""
    before, reducer, after = REDUCTIONS[node.op.op_type]
    total = _reduced(node, X, reducer, before)
    return lambda *i: after(total(*i))


@op("ReduceMean", local=_mean_local(reduced_axes))
def reduce_mean(node: NodeView, X: TensorArg, axes: TensorArg | None = None) -> object:
    """The mean over axes."""
    total, count = _reduced(node, X, Sum, _itself), prod(node.size(0, dim) for dim in reduced_axes(node, X.rank))
    return lambda *i: total(*i) / count


@op("GlobalAveragePool", local=_mean_local(lambda node, rank: range(2, rank)))
def global_average_pool(node: NodeView, X: TensorArg) -> object:
    """The mean for each sample and channel; the spatial dims stay, with size 1."""
    positions = prod(node.size(0, dim) for dim in range(2, X.rank))
    return lambda b, c, *y: Sum(lambda *r: X[(b, c, *r)], count=X.rank - 2) / positions


@op("GlobalMaxPool")
def global_max_pool(node: NodeView, X: TensorArg) -> object:
    """The maximum for each sample and channel; the spatial dims stay, with size 1."""
    return lambda b, c, *y: Max(lambda *r: X[(b, c, *r)], count=X.rank - 2)


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
