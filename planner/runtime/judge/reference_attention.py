"""ONNX Runtime's own attention and rotary embedding in NumPy."""

from __future__ import annotations

import numpy as np

from planner.graph.attributes import integer, number
from planner.graph.model import Op
from planner.runtime.judge.kernel_arguments import Arrays, OtherFormError, maybe, operand

_FILTER = -10000.0
"""What ONNX Runtime adds to the scores of keys that a mask leaves out, unless it is told otherwise."""


def by_head(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, positions, heads * size] as [batch, heads, positions, size]; what has four dims has that form."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def side_by_side(x: np.ndarray) -> np.ndarray:
    """[batch, heads, positions, size] as [batch, positions, heads * size]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def weighted(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The values by the softmax of the scores along their last dim."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True) @ v)


def scale_of(op: Op, size: int) -> float:
    """What the products of queries and keys of this size are multiplied by."""
    return number(op, "scale", 0.0) or 1 / np.sqrt(size)


def _is_valid(mask: np.ndarray, keys: int) -> np.ndarray:
    """Which keys a mask leaves, to broadcast against [batch, heads, queries, keys]."""
    if mask.ndim == 1:
        return np.arange(keys) < mask[:, None, None, None]
    return np.asarray(mask[:, None] > 0 if mask.ndim == 3 else mask[:, None, None] > 0)


def multi_head_attention(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Without past keys: those are joined to the others before."""
    heads = integer(op, "num_heads", 0)
    q, k, v = (by_head(operand(inputs, position), heads) for position in range(3))
    scores = scale_of(op, q.shape[-1]) * (q @ k.swapaxes(-1, -2))
    mask, added = maybe(inputs, 4), maybe(inputs, 5)
    if added is not None:
        scores = scores + added
    if mask is not None:
        scores = scores + np.where(_is_valid(mask, k.shape[2]), 0.0, number(op, "mask_filter_value", _FILTER))
    if integer(op, "unidirectional", 0):
        scores = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), scores, -np.inf)
    return (side_by_side(weighted(scores, v)),)


def turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, *, interleaved: bool) -> np.ndarray:
    """The first elements of each head turned in pairs: neighbours, or an element of each half.

    Args:
        x: [batch, heads, positions, size].
        cosine: of the angles, [batch, positions, pairs].
        sine: the same.
        interleaved: whether neighbours are a pair.
    """
    pairs = cosine.shape[-1]
    cosine, sine = cosine[:, None], sine[:, None]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    output = x.copy()
    output[..., first] = x[..., first] * cosine - x[..., second] * sine
    output[..., second] = x[..., second] * cosine + x[..., first] * sine
    return output


def rotary_embedding(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Angles by the position of each element, or by that of the first, from which the others count.

    ONNX Runtime's kernel takes no notice of ``scale``.
    """
    x, positions, cosine, sine = (operand(inputs, position) for position in range(4))
    size = 2 * cosine.shape[1]
    heads = x.shape[1] if x.ndim == 4 else integer(op, "num_heads", 0) or x.shape[2] // size
    split = by_head(x, heads)
    if positions.ndim == 1:
        positions = np.broadcast_to(positions[0] + np.arange(split.shape[2]), (split.shape[0], split.shape[2]))
    interleaved = bool(integer(op, "interleaved", 0))
    output = turned(split, cosine[positions], sine[positions], interleaved=interleaved)
    return (output if x.ndim == 4 else side_by_side(output),)


def group_query_attention(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Sample by sample, for each has its own number of past positions.

    Raises:
        OtherFormError: a window, and padding behind a prompt, of which each of ONNX Runtime's kernels has its own.
    """
    heads, keys = integer(op, "num_heads", 0), integer(op, "kv_num_heads", 0)
    q, k, v = (by_head(operand(inputs, slot), of) for slot, of in ((0, heads), (1, keys), (2, keys)))
    lengths, total = operand(inputs, 5).reshape(-1), int(operand(inputs, 6).item())
    pasts, positions = (maybe(inputs, 3), maybe(inputs, 4)), q.shape[2]
    starts = np.zeros_like(lengths) if positions == total else lengths + 1 - positions
    if integer(op, "local_window_size", -1) > 0 and (starts + positions > lengths + 1).any():
        raise OtherFormError("a window, and samples shorter than the prompt")
    if integer(op, "do_rotary", 0):
        stated = maybe(inputs, 9)
        where = starts[:, None] + np.arange(positions) if stated is None else stated
        # In a prompt ONNX Runtime reads the first position alone, and counts on from it for every sample.
        if stated is not None and positions == total:
            where = np.broadcast_to(stated[0, 0] + np.arange(positions), stated.shape)
        angles = [operand(inputs, slot)[where] for slot in (7, 8)]
        q, k = (turned(x, *angles, interleaved=bool(integer(op, "rotary_interleaved", 0))) for x in (q, k))
    rows = max(total, 0 if pasts[0] is None else pasts[0].shape[2])
    caches = []
    for current, past in zip((k, v), pasts, strict=True):
        cache = np.zeros((*current.shape[:2], rows, current.shape[3]))
        for sample, start in enumerate(starts):
            if past is not None:
                cache[sample, :, :start] = past[sample, :, :start]
            cache[sample, :, start : start + positions] = current[sample]
        caches.append(cache)
    output = np.empty_like(q)
    for sample, (start, last) in enumerate(zip(starts, lengths, strict=True)):
        k, v = caches[0][sample], caches[1][sample]
        output[sample] = _grouped_sample(op, q[sample], k, v, int(start), int(last), inputs, sample)
    return side_by_side(output), caches[0], caches[1]


def _grouped_sample(
    op: Op, q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int, last: int, inputs: Arrays, sample: int
) -> np.ndarray:
    """What the queries of one sample, [heads, positions, size], have of its keys and values up to its last one."""
    heads, positions, size = q.shape
    k, v = (np.repeat(cache[:, : start + positions], heads // len(cache), axis=0) for cache in (k, v))
    scores = scale_of(op, size) * (q @ k.swapaxes(-1, -2))
    cap, window = number(op, "softcap", 0.0), op.attribute("local_window_size", -1)
    if cap:
        scores = cap * np.tanh(scores / cap)
    added, sink = maybe(inputs, 10), maybe(inputs, 11)
    if added is not None:
        scores = scores + added[min(sample, len(added) - 1), :, :, : start + positions]
    query, key = start + np.arange(positions)[:, None], np.arange(start + positions)
    seen = key <= np.minimum(query, last)
    if isinstance(window, int) and window > 0:
        seen &= key > query - window
    scores = np.where(seen, scores, -np.inf)
    if sink is None and integer(op, "smooth_softmax", 0) != 1:
        return weighted(scores, v)
    column = np.zeros(heads) if sink is None else sink
    scores = np.concatenate([np.broadcast_to(column[:, None, None], (heads, positions, 1)), scores], axis=-1)
    return weighted(scores, np.concatenate([np.zeros((heads, 1, size)), v], axis=1))
