"""Values summed along keys with the softmax of scores as weights: what the bodies of all attentions share.

A maximum, a sum and the weighted sum are taken along the keys, so that they can be cut: the maximum is joined first,
then what each worker's keys contribute to the two sums, in the order of the workers. Of n workers an element of a
head's result costs as much as of any all-reduce, and a query of a head two elements more.

Tensors have five dims, [batch, key heads, query heads to each, queries, keys or elements]; four where every query head
has keys of its own. Where a query sees few keys beside its own position, there is a dim of blocks behind the batch: to
each block of queries belong the keys that they see, so that over a border no others are brought.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Shape
from planner.graph.decompositions.parts.blocks import are_worth_blocks, between_neighbours, in_blocks, joined

_NOWHERE = 2**31 - 1
"""The position of a key that there is not: behind all that a query sees."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Queries, keys and values by head, and their positions, which broadcast against each other."""

    q: str
    k: str
    v: str
    rows: np.ndarray
    columns: np.ndarray

    @property
    def is_in_blocks(self) -> bool:
        """Whether there is a dim of blocks behind the batch."""
        return self.columns.ndim > 1

    def of_blocks(self, mask: np.ndarray, unseen: float) -> np.ndarray:
        """A mask of queries and keys, by blocks of queries; ``unseen`` of keys that there are not."""
        padding, keys = self.rows.size - mask.shape[-2], mask.shape[-1]
        wide = np.pad(mask, [(0, 0)] * (mask.ndim - 2) + [(0, padding), (0, 1)], constant_values=unseen)
        blocks = wide[..., self.rows[:, 0], np.minimum(self.columns, keys)[:, 0]]
        return np.moveaxis(blocks, -4, -3) if mask.ndim > 2 else blocks[:, None]

    def all_queries(self, emitter: Emitter, y: str, queries: int) -> str:
        """The result of so many queries, [batch, heads, queries, size]."""
        if not self.is_in_blocks:
            return y
        return joined(emitter, emitter.transpose(y, (0, 2, 1, 3, 4), "y.blocks"), 2, queries, "y.whole")


def placed(emitter: Emitter, q: str, k: str, v: str, before: int, after: int) -> Placed:
    """The elements that belong together, in blocks where queries see that many keys before and after their own
    position.

    Args:
        emitter: writes the ops.
        q: [batch, heads, queries, size].
        k: [batch, key heads, keys, size].
        v: like the keys.
        before: how many keys a query sees at most that are before its own position; -1 for any number.
        after: the same of those behind.
    """
    queries, keys = emitter.shape(q)[2], emitter.shape(k)[2]
    places = -(-queries // emitter.workers)
    is_near = min(before, after) >= 0 and before + places + after < keys == queries
    if not (is_near and are_worth_blocks(emitter, q, 2)):
        return Placed(q, k, v, np.arange(queries).reshape(-1, 1), np.arange(keys))
    rows = np.arange(emitter.workers * places).reshape(-1, 1, places, 1)
    columns = rows[:, :, :1] + np.arange(-before, places + after)
    columns[(columns < 0) | (columns >= keys)] = _NOWHERE
    blocks = [in_blocks(emitter, x, 2, 0.0) for x in (q, k, v)]
    names = [blocks[0].name, *(between_neighbours(emitter, block, before, after) for block in blocks[1:])]
    q, k, v = (emitter.transpose(x, (0, 2, 1, 3, 4), f"{part}.blocks") for x, part in zip(names, "qkv", strict=True))
    return Placed(q, k, v, rows, columns)


def by_head(emitter: Emitter, x: str, heads: int, part: str) -> str:
    """[batch, positions, heads * size] as [batch, heads, positions, size]; what has four dims has that form."""
    if emitter.rank(x) == 4:
        return x
    batch, positions, width = emitter.shape(x)
    split = emitter.reshape(x, (batch, positions, heads, width // heads), f"{part}.split")
    return emitter.transpose(split, (0, 2, 1, 3), f"{part}.heads")


def side_by_side(emitter: Emitter, y: str) -> str:
    """[batch, heads, positions, size] as [batch, positions, heads * size]."""
    batch, heads, positions, size = emitter.shape(y)
    return emitter.reshape(emitter.transpose(y, (0, 2, 1, 3), "y.turned"), (batch, positions, heads * size), "y.merged")


def body_output(emitter: Emitter, x: str, part: str) -> str:
    """A tensor that an op of the body makes, as an output must be: a copy of one that the body only reads."""
    return x if x in emitter.tensors else emitter.unary("Identity", x, part)


def in_groups(emitter: Emitter, x: str, keys: int, part: str) -> str:
    """A tensor that is broadcast to [batch, heads, queries, ...], its heads in groups that share keys.

    Args:
        emitter: writes a Reshape if it takes one.
        x: of at most four dims.
        keys: heads of keys; 0 if every head has its own, so that there are no groups.
        part: what a new tensor is called.
    """
    shape = emitter.shape(x)
    if not keys or len(shape) < 3:
        return x
    *batch, heads = shape[:-2]
    return emitter.reshape(x, (*batch, *((1, 1) if heads == 1 else (keys, heads // keys)), *shape[-2:]), part)


def scores_of(emitter: Emitter, q: str, k: str, scale: float, cap: float = 0.0) -> str:
    """Scale * Q K', and of that cap * tanh(scores / cap) where there is a cap.

    Args:
        emitter: writes the ops.
        q: [batch, heads, queries, size], or with blocks.
        k: [batch, key heads, keys, size], or with blocks.
        scale: of the queries, before the product.
        cap: the largest score; 0 for none.

    Returns:
        Scores in groups, of the queries' dtype.
    """
    *batch, heads, _, size = emitter.shape(q)
    kv_heads, keys = emitter.shape(k)[-3:-1]
    dtype = emitter.dtype(q)
    scaled = emitter.each("Mul", "scaled", q, emitter.scalar(scale, dtype, "scale"))
    last = emitter.rank(k) - 1
    turned = emitter.transpose(k, (*range(last - 1), last, last - 1), "turned")
    if heads != kv_heads:
        scaled = in_groups(emitter, scaled, kv_heads, "q.groups")
        turned = emitter.reshape(turned, (*batch, kv_heads, 1, size, keys), "k.groups")
    scores = emitter.matmul(scaled, turned, "scores")
    if cap:
        parts = emitter.each("Mul", "cap.parts", scores, emitter.scalar(1 / cap, dtype, "cap.inverse"))
        bent = emitter.each("Tanh", "tanh", parts)
        scores = emitter.each("Mul", "capped", bent, emitter.scalar(cap, dtype, "cap"))
    return scores


def where_seen(emitter: Emitter, scores: str, masks: Sequence[str]) -> str:
    """The scores, -inf where one of the masks is false; masks broadcast to the scores."""
    if not masks:
        return scores
    seen, *further_masks = masks
    for number, mask in enumerate(further_masks):
        seen = emitter.each("And", f"seen{number}", seen, mask, dtype=DType.BOOL)
    return emitter.each("Where", "masked", seen, scores, emitter.scalar(-math.inf, emitter.dtype(scores), "lowest"))


def weighted_sum(
    emitter: Emitter, scores: str, v: str, *, sink: str = "", may_see_none: bool = False, wide: DType | None = None
) -> str:
    """The values by the softmax of the scores along their last dim: [batch, heads, queries, size], or with blocks.

    What is summed is divided behind the product with the values, so that both sums are joined at once. Where the
    values are of 16 bits it is divided before: sums of many keys are beyond their range.

    Args:
        emitter: writes the ops.
        scores: in groups.
        v: [batch, key heads, keys, size], or with blocks.
        sink: a score beside those of the keys, whose value is 0, to broadcast against the scores; "" for none.
        may_see_none: whether a query's scores may all be -inf, whose result then is 0.
        wide: what the softmax is computed in, if not in the scores' dtype, or in 32 bits where that is of 16.
    """
    *batch, kv_heads, keys, size = emitter.shape(v)
    dtype, last = emitter.dtype(v), emitter.rank(scores) - 1
    if emitter.rank(scores) > emitter.rank(v):
        v = emitter.reshape(v, (*batch, kv_heads, 1, keys, size), "v.groups")
    wide = wide or (DType.FLOAT32 if emitter.dtype(scores).is_half else emitter.dtype(scores))
    scores = emitter.cast(scores, wide, "scores.wide")
    top = emitter.reduce("ReduceMax", scores, (last,), "max")
    if sink:
        sink = emitter.cast(sink, wide, "sink.wide")
        top = emitter.each("Max", "max.sink", top, sink)
    if may_see_none:
        lowest = float(np.finfo(wide.array_dtype).min)
        top = emitter.each("Max", "max.finite", top, emitter.scalar(lowest, wide, "least"))
    raised = emitter.each("Exp", "exp", emitter.each("Sub", "shifted", scores, top))
    total = emitter.reduce("ReduceSum", raised, (last,), "sum")
    if sink:
        beside = emitter.each("Exp", "sink.exp", emitter.each("Sub", "sink.shifted", sink, top))
        total = emitter.each("Add", "sum.sink", total, beside)
    if may_see_none:
        # The largest score gives 1. Less than a half is of no key; its square, in the gradient, is no zero.
        total = emitter.each("Max", "sum.positive", total, emitter.scalar(0.5, wide, "half"))
    before = wide is not dtype
    if before:
        raised = emitter.cast(emitter.each("Div", "softmax", raised, total), dtype, "weights")
    shape: Shape = (*emitter.shape(scores)[:-1], size)
    y = emitter.matmul(raised, v, "weighted")
    if not before:
        y = emitter.each("Div", "y", y, total)
    heads = math.prod(shape[len(batch) : -2])
    assert heads % kv_heads == 0, "heads share keys"
    return emitter.reshape(y, (*batch, heads, *shape[-2:]), "y.heads")
