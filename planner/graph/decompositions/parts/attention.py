"""Attention as two products and a softmax (ONNX, Attention, function body), cut along the keys too.

What ONNX leaves open is as ONNX Runtime has it: a query that sees no key has 0.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from planner.graph.core.attributes import integer, number
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import ELEM_TYPES, DType, Op
from planner.graph.decompositions.parts.weighted_sums import (
    Placed,
    body_output,
    by_head,
    in_groups,
    placed,
    scores_of,
    side_by_side,
    weighted_sum,
    where_seen,
)
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.files.fills import is_fill

_WINDOWS = ("left_window_size", "right_window_size")
"""Since opset 25."""
_DTYPES = MappingProxyType({number: dtype for dtype, number in ELEM_TYPES.items()})


@stands_for("Attention", purpose=Purpose.PARTS)
def attention(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """softmax(cap(scale * Q K') + mask) V, for heads that share keys, too, and with the keys and values joined to
    those of a cache.

    None, so that the op stays whole, where the scores are an output: they are larger than all that moves. And where
    one causal query has several new keys behind those of a cache, of which ONNX Runtime's kernel shows it all.
    """
    if any(op.outputs[3:]):
        return None
    heads, kv_heads = _counts(emitter, op)
    q, k, v = (
        by_head(emitter, name, of, part)
        for name, of, part in zip(op.inputs[:3], (heads, kv_heads, kv_heads), "qkv", strict=True)
    )
    queries, before = emitter.shape(q)[2], 0
    if op.has_input(4) and op.attribute("is_causal", 0) and queries == 1 < emitter.shape(k)[2]:
        return None
    if op.has_input(4):
        before = emitter.shape(op.inputs[4])[2]
        k, v = (_after(emitter, past, kv, part) for past, kv, part in zip(op.inputs[4:6], (k, v), "kv", strict=True))
    cap, factor = number(op, "softcap", 0.0), number(op, "scale", 1 / math.sqrt(emitter.shape(q)[3]))
    back, ahead = (_window(op, name) for name in _WINDOWS)
    ahead = 0 if op.attribute("is_causal", 0) else ahead
    mask = emitter.value(op.inputs[3]) if op.has_input(3) else None
    is_whole = mask is not None and not is_fill(mask) and mask.shape[-2:] == (queries, emitter.shape(k)[2])
    is_far = before or op.has_input(6) or (op.has_input(3) and not is_whole)
    # Blocks need a reach that is known now: past keys, lengths and computed masks give none.
    near = (-1, -1) if is_far else (back, ahead) if mask is None else _reach(mask, back, ahead)
    place = placed(emitter, q, k, v, *near)
    scores = scores_of(emitter, place.q, place.k, factor, cap)
    groups, keys = kv_heads if kv_heads != heads else 0, emitter.shape(k)[2]
    masks = _places(emitter, op, place, back, ahead, before, groups)
    bias = ""
    if mask is not None and place.is_in_blocks:
        bias = emitter.constant(place.of_blocks(mask, 0 if mask.dtype == bool else -math.inf), "mask.blocks")
    elif op.has_input(3):
        bias = _whole_mask(emitter, op.inputs[3], keys)
    bias = in_groups(emitter, bias, groups, "mask.groups") if bias else ""
    if bias and emitter.dtype(bias) is DType.BOOL:
        masks.append(bias)
    elif bias:
        scores = emitter.each("Add", "biased", scores, bias)
    scores = where_seen(emitter, scores, masks)
    may_see_none = bool(bias) or op.has_input(6) or any(_window(op, name) >= 0 for name in _WINDOWS)
    y = weighted_sum(emitter, scores, place.v, may_see_none=may_see_none, wide=_precision(emitter, op, q))
    y = place.all_queries(emitter, y, queries)
    output = y if emitter.rank(op.inputs[0]) == 4 else side_by_side(emitter, y)
    return (output, *(body_output(emitter, name, f"{part}.out") for name, part in ((k, "k"), (v, "v"))))[
        : max(len(op.outputs), 1)
    ]


def _counts(emitter: Emitter, op: Op) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    if emitter.rank(op.inputs[0]) == 4:
        return emitter.shape(op.inputs[0])[1], emitter.shape(op.inputs[1])[1]
    return integer(op, "q_num_heads"), integer(op, "kv_num_heads")


def _after(emitter: Emitter, past: str, kv: str, part: str) -> str:
    return emitter.concat((past, kv), 2, f"{part}.all")


def _precision(emitter: Emitter, op: Op, q: str) -> DType | None:
    """What the softmax is to be computed in, if that is wider than the queries."""
    stated = op.attribute("softmax_precision")
    dtype = _DTYPES.get(stated) if isinstance(stated, int) else None
    return dtype if dtype is DType.FLOAT64 and emitter.dtype(q) is not DType.FLOAT64 else None


def _places(emitter: Emitter, op: Op, place: Placed, back: int, ahead: int, before: int, groups: int) -> list[str]:
    """Which keys are seen for where they stand: those that are there, and those that are near enough to the query."""
    has_length = op.has_input(6)
    columns, rows = emitter.constant(place.columns, "columns"), emitter.constant(place.rows + before, "rows")
    masks = []
    if has_length:
        batch = emitter.shape(op.inputs[6])[0]
        ends = emitter.reshape(op.inputs[6], (batch, 1, 1, 1), "ends")
        masks.append(emitter.each("Less", "is_there", columns, ends, dtype=DType.BOOL))
        first = emitter.each("Sub", "first", ends, emitter.scalar(len(place.rows), DType.INT64, "queries"))
        rows = emitter.each("Add", "rows.last", rows, first)
    if ahead >= 0:
        last = emitter.each("Add", "rows.right", rows, emitter.scalar(ahead, DType.INT64, "right")) if ahead else rows
        masks.append(emitter.each("GreaterOrEqual", "is_past", last, columns, dtype=DType.BOOL))
    if back >= 0:
        least = emitter.each("Sub", "rows.left", rows, emitter.scalar(back, DType.INT64, "left")) if back else rows
        masks.append(emitter.each("LessOrEqual", "is_near", least, columns, dtype=DType.BOOL))
    return [in_groups(emitter, mask, groups, f"{mask.removeprefix(emitter.prefix)}.groups") for mask in masks]


def _window(op: Op, name: str) -> int:
    """How many positions on a side of its own a query sees; -1 for all."""
    return integer(op, name, -1)


def _reach(mask: np.ndarray, back: int, ahead: int) -> tuple[int, int]:
    """How far before and behind its own position a query sees keys by a mask and a window; -1 for any number."""
    is_flag = mask.dtype == bool
    seen = mask if is_flag else mask > np.finfo(mask.dtype).min / 2
    if not (is_flag or seen.any(-1).all()):  # equally low scores of all keys are a mean of their values
        return back, ahead
    row, column = np.nonzero(seen.any(tuple(range(seen.ndim - 2))))
    far = row - column
    reach = int(far.max(initial=0)), int((-far).max(initial=0))
    return min(reach[0], back if back >= 0 else reach[0]), min(reach[1], ahead if ahead >= 0 else reach[1])


def _whole_mask(emitter: Emitter, mask: str, keys: int) -> str:
    """The mask for all keys: none is seen that it does not reach."""
    shape, dtype = emitter.shape(mask), emitter.dtype(mask)
    if shape[-1] in (1, keys):
        return mask
    padding, is_flag = (*shape[:-1], keys - shape[-1]), dtype is DType.BOOL
    unseen = np.zeros(padding, bool) if is_flag else np.full(padding, -math.inf, dtype.array_dtype)
    parts = (mask, emitter.constant(unseen, "mask.unseen"))
    return emitter.concat(parts, len(shape) - 1, "mask.all")
