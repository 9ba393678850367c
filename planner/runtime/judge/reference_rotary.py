"""ONNX Runtime's own rotary embedding in NumPy."""

from __future__ import annotations

import numpy as np

from planner.graph.attributes import integer
from planner.graph.model import Op
from planner.runtime.judge.kernel_arguments import Arrays, operand


def by_head(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, positions, heads * size] as [batch, heads, positions, size]; what has four dims has that form."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def side_by_side(x: np.ndarray) -> np.ndarray:
    """[batch, heads, positions, size] as [batch, positions, heads * size]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


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
