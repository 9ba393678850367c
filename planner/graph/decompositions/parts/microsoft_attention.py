"""ONNX Runtime's own attentions as weighted sums along keys, and a decoder's cache position by position.

What the runtime does is measured: a position of a cache behind a sample's last is 0, a sample's prompt begins at the
first position whatever its length is, and no query of a prompt sees a key behind its sample's length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.graph.core.attributes import integer, number
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
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
from planner.graph.decompositions.rotary import angles, rotated

_FILTER = -10000.0
"""What is added to the scores of keys that a mask leaves out, unless the op says otherwise."""


@stands_for("com.microsoft.MultiHeadAttention", purpose=Purpose.PARTS)
def multi_head_attention(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """softmax(scale * Q K' + added + mask) V.

    None where queries, keys and values are packed into one tensor, or keys are past: those are written in other
    operators before a plan is made.
    """
    packed = not (op.has_input(1) and op.has_input(2)) or emitter.rank(op.inputs[0]) != 3
    if packed or any(op.has_input(slot) for slot in (3, 6, 7, 8, 9)) or any(op.outputs[1:]) or emitter.opset < 13:
        return None
    heads = integer(op, "num_heads")
    q, k, v = (by_head(emitter, name, heads, part) for name, part in zip(op.inputs[:3], "qkv", strict=True))
    queries, keys, dtype = emitter.shape(q)[2], emitter.shape(k)[2], emitter.dtype(q)
    scores = scores_of(emitter, q, k, _scale(op, emitter.shape(q)[3]))
    if op.has_input(5):
        scores = emitter.each("Add", "biased", scores, op.inputs[5])
    if op.has_input(4):
        valid = _valid(emitter, op.inputs[4], keys)
        low = emitter.scalar(number(op, "mask_filter_value", _FILTER), dtype, "filter")
        left_out = emitter.each("Where", "filtered", valid, emitter.scalar(0.0, dtype, "nought"), low)
        scores = emitter.each("Add", "left_out", scores, left_out)
    masks = []
    if integer(op, "unidirectional", 0):
        rows = emitter.constant(np.arange(queries, dtype=np.int64).reshape(-1, 1), "rows")
        columns = emitter.constant(np.arange(keys, dtype=np.int64), "columns")
        masks.append(emitter.each("GreaterOrEqual", "is_past", rows, columns, dtype=DType.BOOL))
    return (side_by_side(emitter, weighted_sum(emitter, where_seen(emitter, scores, masks), v)),)


def _valid(emitter: Emitter, mask: str, keys: int) -> str:
    """Which keys a mask leaves, to broadcast against [batch, heads, queries, keys]: lengths, or a flag for each key."""
    shape, dtype = emitter.shape(mask), emitter.dtype(mask)
    middle = shape[1:-1] if len(shape) == 3 else (1,)
    last = shape[-1:] if len(shape) > 1 else (1,)
    mask = emitter.reshape(mask, (shape[0], 1, *middle, *last), "mask.broad")
    compared = emitter.scalar(0, dtype, "zero")
    if len(shape) == 1:
        compared = emitter.constant(np.arange(keys, dtype=dtype.array_dtype), "mask.columns")
    return emitter.each("Greater", "is_valid", mask, compared, dtype=DType.BOOL)


@dataclass(frozen=True, slots=True)
class _Step:
    """The place of a decoder's positions."""

    heads: int
    """Of queries."""
    kv_heads: int
    """Of keys and values."""
    count: int
    """Positions of queries, and so of new keys."""
    rows: int
    """Positions of the caches that come out."""
    starts: str
    """The first new position of each sample, [batch, 1, 1, 1]; "" where it is 0 for all."""
    is_prompt: str
    """A flag that is true where all positions are new, if that is not known before; else ""."""
    dtype: DType
    """Of positions."""


@stands_for("com.microsoft.GroupQueryAttention", purpose=Purpose.PARTS)
def group_query_attention(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """softmax(cap(scale * Q K') + added) V over the keys up to each query's own, in a window if there is one; keys and
    values are those of the cache, the new ones put where they belong.

    None for quantised or normalised keys and for the scores as an output, which nobody describes; where it is not
    known how many positions the caches have; where a bias is added that is longer than they are; and for several new
    positions of several samples behind others, of which ONNX Runtime's kernel takes one sample at a time.
    """
    quantised = any(op.attribute(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type"))
    unknown = any(op.inputs[12:]) or any(op.outputs[3:]) or quantised or emitter.opset < 13
    if unknown or not (op.has_input(1) and op.has_input(2)) or emitter.rank(op.inputs[0]) != 3:
        return None
    step = _step(emitter, op)
    if step is None or (op.has_input(10) and emitter.shape(op.inputs[10])[-1] > step.rows):
        return None
    counts = (step.heads, step.kv_heads, step.kv_heads)
    q, k, v = (by_head(emitter, name, of, part) for name, of, part in zip(op.inputs[:3], counts, "qkv", strict=True))
    if integer(op, "do_rotary", 0):
        cosine, sine = _angles(emitter, op, step)
        interleaved = bool(integer(op, "rotary_interleaved", 0))
        q, k = (
            rotated(emitter, x, cosine, sine, part, interleaved=interleaved)
            for x, part in ((q, "q.rotary"), (k, "k.rotary"))
        )
    pasts = [op.inputs[slot] if op.has_input(slot) else "" for slot in (3, 4)]
    window = integer(op, "local_window_size", -1)
    lengths = emitter.value(op.inputs[5])
    is_before_own = _is_in_blocks(op) or (lengths is not None and lengths.min() >= step.count - 1)
    is_far = step.starts or op.has_input(10) or not is_before_own
    current_kv = k, v
    k, v = (_cache(emitter, step, current, past, part) for current, past, part in zip((k, v), pasts, "kv", strict=True))
    place = placed(emitter, q, *((k, v) if is_far else current_kv), -1 if is_far else window - 1, 0)
    scores = scores_of(emitter, place.q, place.k, _scale(op, emitter.shape(q)[3]), number(op, "softcap", 0.0))
    groups = step.kv_heads if step.kv_heads != step.heads else 0
    if op.has_input(10):
        added = in_groups(emitter, _longer(emitter, op.inputs[10], 3, step.rows, "added"), groups, "added.groups")
        scores = emitter.each("Add", "biased", scores, added)
    scores = where_seen(emitter, scores, _seen(emitter, op, step, place, groups))
    may_see_none = window > 0 and _is_in_blocks(op)
    sink = _sink(emitter, op, scores, groups)
    y = weighted_sum(emitter, scores, place.v, sink=sink, may_see_none=may_see_none)
    y = place.all_queries(emitter, y, step.count)
    return (
        side_by_side(emitter, y),
        *(body_output(emitter, name, f"{part}.out") for name, part in ((k, "k"), (v, "v"))),
    )


def _step(emitter: Emitter, op: Op) -> _Step | None:
    count, total, lengths = emitter.shape(op.inputs[0])[1], emitter.value(op.inputs[6]), op.inputs[5]
    dtype = emitter.dtype(lengths)
    present_key = op.outputs[1] if len(op.outputs) > 1 else ""
    past = emitter.shape(op.inputs[3])[2] if op.has_input(3) else 0
    if total is not None:
        rows = max(past, int(total.item()))
    elif present_key:
        rows = emitter.shape(present_key)[2]
    else:
        return None
    heads, kv_heads = integer(op, "num_heads"), integer(op, "kv_num_heads")
    if rows < max(past, count) or heads % kv_heads:
        return None
    is_known_prompt = total is not None and int(total.item()) == count
    if count > 1 and emitter.shape(op.inputs[0])[0] > 1 and not is_known_prompt:
        return None
    starts = is_prompt = ""
    if not is_known_prompt:
        span = emitter.scalar(count - 1, dtype, "new.less")
        starts = emitter.reshape(lengths, (emitter.shape(lengths)[0], 1, 1, 1), "lengths")
        starts = emitter.each("Sub", "starts", starts, span) if count > 1 else starts
    # Only a run tells whether all positions are new; if so, they begin at 0 in every sample.
    if total is None:
        total_length = emitter.reshape(op.inputs[6], (), "total")
        prompt_length = emitter.scalar(count, emitter.dtype(total_length), "new")
        is_prompt = emitter.each("Equal", "is_prompt", total_length, prompt_length, dtype=DType.BOOL)
        starts = emitter.each("Where", "starts.or_0", is_prompt, emitter.scalar(0, dtype, "first"), starts)
    return _Step(heads, kv_heads, count, rows, starts, is_prompt, dtype)


def _rows(emitter: Emitter, step: _Step, part: str) -> str:
    """The position of each query, [batch, 1, queries, 1], the batch 1 where all samples begin at 0."""
    numbers = emitter.constant(np.arange(step.count, dtype=step.dtype.array_dtype).reshape(1, 1, -1, 1), f"{part}.new")
    if step.count == 1 and step.starts:
        return step.starts
    return emitter.each("Add", part, step.starts, numbers) if step.starts else numbers


def _columns(emitter: Emitter, step: _Step, part: str, *after: int) -> str:
    """The positions of a cache, with dims of size 1 behind."""
    return emitter.constant(np.arange(step.rows, dtype=step.dtype.array_dtype).reshape(-1, *after), part)


def _seen(emitter: Emitter, op: Op, step: _Step, place: Placed, groups: int) -> list[str]:
    """Which keys a query sees: none behind its own or its sample's last, and those of its window."""
    rows, columns = (
        emitter.constant(at.astype(step.dtype.array_dtype), part)
        for at, part in ((place.rows, "rows"), (place.columns, "columns"))
    )
    last = rows = _rows(emitter, step, "rows") if step.starts else rows
    if step.is_prompt or not step.starts:
        dims = (emitter.shape(op.inputs[5])[0], *(1,) * max(3, place.columns.ndim))
        lengths = emitter.reshape(op.inputs[5], dims, "lengths.prompt")
        last = emitter.each("Min", "rows.last", rows, lengths)
    masks = [emitter.each("GreaterOrEqual", "is_past", last, columns, dtype=DType.BOOL)]
    window = integer(op, "local_window_size", -1)
    # Of a query behind the length, one of the runtime's two kernels has the window before the query, one before its
    # sample's last key.
    rows = rows if _is_in_blocks(op) else last
    if window > 0:
        size = emitter.scalar(window, step.dtype, "window")
        first = emitter.each("Sub", "rows.left", rows, size)
        masks.append(emitter.each("Less", "is_near", first, columns, dtype=DType.BOOL))
    # One head of them all: the groups' dim is beside it.
    return [in_groups(emitter, mask, groups, f"{mask.removeprefix(emitter.prefix)}.groups") for mask in masks]


def _is_in_blocks(op: Op) -> bool:
    """Whether ONNX Runtime takes its kernel in blocks (flash attention), of a plain softmax."""
    return not (number(op, "softcap", 0.0) or integer(op, "smooth_softmax", 0) == 1 or op.has_input(11))


def _sink(emitter: Emitter, op: Op, scores: str, groups: int) -> str:
    """A score beside those of the keys, of each head."""
    if op.has_input(11):
        (heads,) = emitter.shape(op.inputs[11])
        return in_groups(emitter, emitter.reshape(op.inputs[11], (1, heads, 1, 1), "sink"), groups, "sink.groups")
    return emitter.scalar(0.0, emitter.dtype(scores), "sink") if integer(op, "smooth_softmax", 0) == 1 else ""


def _cache(emitter: Emitter, step: _Step, current: str, past: str, part: str) -> str:
    """Keys or values of all positions: the past ones, the new ones behind each sample's last, and 0 behind those."""
    batch, kv_heads, _, size = emitter.shape(current)
    dtype, shape = emitter.dtype(current), (batch, kv_heads, step.rows, size)
    if not step.starts:
        return _longer(emitter, current, 2, step.rows, part)
    nought = emitter.scalar(0.0, dtype, f"{part}.nought")
    columns = _columns(emitter, step, f"{part}.columns", 1)
    cache = nought
    if past:
        is_past = emitter.each("Less", f"{part}.is_past", columns, step.starts, dtype=DType.BOOL)
        cache = emitter.each(
            "Where", f"{part}.past", is_past, _longer(emitter, past, 2, step.rows, f"{part}.past"), nought
        )
    if step.count == 1:
        is_new = emitter.each("Equal", f"{part}.is_new", columns, step.starts, dtype=DType.BOOL)
        return emitter.one("Where", (is_new, current, cache), shape, dtype, hint=f"{part}.all")
    places = emitter.each("Sub", f"{part}.offset", columns, step.starts)
    last, first = (
        emitter.scalar(number, step.dtype, f"{part}.{at}") for number, at in ((step.count - 1, "last"), (0, "0"))
    )
    lower = emitter.each("GreaterOrEqual", f"{part}.begun", places, first, dtype=DType.BOOL)
    upper = emitter.each("LessOrEqual", f"{part}.not_ended", places, last, dtype=DType.BOOL)
    is_new = emitter.each("And", f"{part}.is_new", lower, upper, dtype=DType.BOOL)
    # A Gather may not read beyond the new positions: rows of other positions read the nearest; the Where drops it.
    near = emitter.each("Min", f"{part}.below", emitter.each("Max", f"{part}.above", places, first), last)
    places = emitter.cast(emitter.reshape(near, (step.rows,), f"{part}.flat"), DType.INT64, f"{part}.index")
    placed = emitter.one("Gather", (current, places), shape, dtype, hint=f"{part}.placed", attributes={"axis": 2})
    return emitter.one("Where", (is_new, placed, cache), shape, dtype, hint=f"{part}.all")


def _longer(emitter: Emitter, x: str, dim: int, size: int, part: str) -> str:
    """A tensor with zeros behind, up to a size of a dim."""
    shape = emitter.shape(x)
    if shape[dim] == size:
        return x
    padding = np.zeros((*shape[:dim], size - shape[dim], *shape[dim + 1 :]), emitter.dtype(x).array_dtype)
    return emitter.concat((x, emitter.constant(padding, f"{part}.more")), dim, f"{part}.long")


def _angles(emitter: Emitter, op: Op, step: _Step) -> tuple[str, str]:
    """Cosine and sine of the positions' angles, [batch, 1, positions, pairs]."""
    where = emitter.cast(_rows(emitter, step, "positions"), DType.INT64, "positions.index")
    where = emitter.reshape(where, (emitter.shape(where)[0], step.count), "positions.flat")
    if op.has_input(9):
        where = _stated_positions(emitter, op.inputs[9], step)
    return angles(emitter, op.inputs[7:9], where, 1)


def _stated_positions(emitter: Emitter, stated: str, step: _Step) -> str:
    """Positions as they are stated, [batch, positions]; of a prompt those of all samples count from the first one."""
    if step.starts and not step.is_prompt:
        return stated
    first = emitter.slice(stated, (0, 0), (1, 1))
    numbers = emitter.constant(np.arange(step.count, dtype=emitter.dtype(stated).array_dtype), "positions.numbers")
    counted = emitter.each("Add", "positions.counted", first, numbers)
    if not step.starts:
        return counted
    return emitter.each("Where", "positions.either", step.is_prompt, counted, stated)


def _scale(op: Op, size: int) -> float:
    return number(op, "scale", 0.0) or 1 / math.sqrt(size)
