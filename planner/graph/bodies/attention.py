"""Attention as two products and a softmax (ONNX, Attention, function body), without a cache of keys and values."""

from __future__ import annotations

import math

import numpy as np

from planner.graph.bodies.softmax import softmax_of
from planner.graph.emitter import Emitter
from planner.graph.model import DType, Op

_PAST = (4, 5, 6)
"""Inputs past_key, past_value, nonpad_kv_seqlen."""


def attention(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """softmax(scale * Q K' + mask) V, for as many query heads as key heads.

    None, so that the op stays whole, with a cache, a soft cap, a precision of its own, shared key heads, a mask that
    is shorter than the keys, or with a second output.
    """
    if any(slot < len(op.inputs) and op.inputs[slot] for slot in _PAST) or any(op.outputs[1:]):
        return None
    if op.attribute("softcap", 0.0) or op.attribute("softmax_precision") is not None:
        return None
    heads = _heads(emitter, op)
    if heads is None:
        return None
    q, k, v = heads
    (batch, count, queries, depth), keys = emitter.shape(q), emitter.shape(k)[2]
    scale = op.attribute("scale")
    assert scale is None or isinstance(scale, int | float), "scale is a number"
    factor = emitter.scalar(1 / math.sqrt(depth) if scale is None else float(scale), emitter.dtype(q), "scale")
    turned = emitter.emit(
        "Transpose", (k,), "turned", (batch, count, depth, keys), emitter.dtype(k), {"perm": (0, 1, 3, 2)}
    )
    scores_shape = (batch, count, queries, keys)
    scores = emitter.emit("MatMul", (emitter.each("Mul", "scaled", q, factor), turned), "scores", scores_shape,
                          emitter.dtype(q))  # fmt: skip
    masked = _masked(emitter, op, scores)
    if masked is None:
        return None
    weights = softmax_of(emitter, masked, 3)
    y = emitter.emit("MatMul", (weights, v), "y", (batch, count, queries, emitter.shape(v)[3]), emitter.dtype(v))
    if emitter.rank(op.inputs[0]) == 4:
        return (y,)
    wide = emitter.shape(y)[3]
    back = emitter.emit(
        "Transpose", (y,), "y.turned", (batch, queries, count, wide), emitter.dtype(y), {"perm": (0, 2, 1, 3)}
    )
    return (emitter.reshape(back, (batch, queries, count * wide), "y.merged"),)


def _heads(emitter: Emitter, op: Op) -> tuple[str, str, str] | None:
    """Q, K and V as [batch, heads, positions, depth]."""
    if emitter.rank(op.inputs[0]) == 4:
        q, k, v = op.inputs[:3]
        return (q, k, v) if emitter.shape(q)[1] == emitter.shape(k)[1] == emitter.shape(v)[1] else None
    count = op.attribute("q_num_heads")
    if not isinstance(count, int) or op.attribute("kv_num_heads") != count:
        return None
    found = []
    for name, part in zip(op.inputs[:3], ("q", "k", "v"), strict=True):
        batch, positions, width = emitter.shape(name)
        split = emitter.reshape(name, (batch, positions, count, width // count), f"{part}.split")
        shape = (batch, count, positions, width // count)
        found.append(
            emitter.emit("Transpose", (split,), f"{part}.heads", shape, emitter.dtype(name), {"perm": (0, 2, 1, 3)})
        )
    return found[0], found[1], found[2]


def _masked(emitter: Emitter, op: Op, scores: str) -> str | None:
    dtype, (queries, keys) = emitter.dtype(scores), emitter.shape(scores)[2:]
    masks = []
    if op.attribute("is_causal", 0):
        rows = emitter.constant(np.arange(queries, dtype=np.int64).reshape(-1, 1), "rows")
        columns = emitter.constant(np.arange(keys, dtype=np.int64), "columns")
        masks.append(emitter.each("GreaterOrEqual", "is_past", rows, columns, dtype=DType.BOOL))
    given = op.inputs[3] if len(op.inputs) > 3 else ""
    if given and (emitter.rank(given) > 4 or emitter.shape(given)[-1] != keys):
        return None
    if given and emitter.dtype(given) is DType.BOOL:
        masks.append(given)
    elif given:
        scores = emitter.each("Add", "biased", scores, given)
    for number, mask in enumerate(masks):
        lowest = emitter.scalar(-math.inf, dtype, f"lowest{number}")
        scores = emitter.each("Where", f"masked{number}", mask, scores, lowest)
    return scores
