"""RotaryEmbedding written out: rotations of pairs of elements by angles that depend on the position."""

from __future__ import annotations

from planner.graph.core.attributes import integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("RotaryEmbedding", purpose=Purpose.GRADIENT)
def rotary_embedding(emit: Builder, op: Op) -> tuple[str, ...]:
    """(a, b) becomes (a cos - b sin, a sin + b cos) for each pair of a head's first elements (Su et al. 2021).

    Pairs are element i and i + D/2, or with ``interleaved`` 2i and 2i + 1; what ``rotary_embedding_dim`` leaves stays.
    X is [N, heads, S, D] or [N, S, heads*D]; the caches are [positions, D/2], or [N, S, D/2] without position_ids.
    """
    x, cos, sin, *positions = op.inputs
    shape = emit.shape(x)
    flat = len(shape) == 3
    if flat:
        heads = integer(op, "num_heads", 0)
        if not heads:
            raise refuse(op, "X has 3 dims, and num_heads does not say how many heads there are")
        # By sample, position, head: the caches are the same for all heads.
        x = emit.reshape(x, (shape[0], shape[1], heads, shape[2] // heads))
        head_dim = 2
    else:
        head_dim = 1
    size = emit.shape(x)[-1]
    rotated = integer(op, "rotary_embedding_dim", 0) or size
    if positions and positions[0]:
        cos, sin = (_looked_up(emit, cache, positions[0]) for cache in (cos, sin))
    half = rotated // 2
    cos, sin = (emit.unsqueeze(_stretch(emit, cache, 0, half), [head_dim]) for cache in (cos, sin))
    turning = _stretch(emit, x, 0, rotated)
    if integer(op, "interleaved", 0):
        pairs = emit.reshape(turning, (*emit.shape(turning)[:-1], half, 2))
        a, b = (emit.squeeze(_stretch(emit, pairs, part, part + 1), [4]) for part in (0, 1))
    else:
        a, b = _stretch(emit, turning, 0, half), _stretch(emit, turning, half, rotated)
    first = emit.sub(emit.mul(a, cos), emit.mul(b, sin))
    second = emit.add(emit.mul(a, sin), emit.mul(b, cos))
    if integer(op, "interleaved", 0):
        y = emit.concat([emit.unsqueeze(first, [4]), emit.unsqueeze(second, [4])], 4)
        y = emit.reshape(y, emit.shape(turning))
    else:
        y = emit.concat([first, second], 3)
    if rotated < size:
        y = emit.concat([y, _stretch(emit, x, rotated, size)], 3)
    return (emit.reshape(y, shape),)


def _stretch(emit: Builder, x: str, start: int, end: int) -> str:
    """Elements ``start`` to ``end`` of the last dim."""
    shape = emit.shape(x)
    return emit.slice(x, [*(0 for _ in shape[:-1]), start], [*shape[:-1], end])


def _looked_up(emit: Builder, cache: str, positions: str) -> str:
    shape = (*emit.shape(positions), emit.shape(cache)[1])
    return emit.one("Gather", [cache, positions], shape, emit.dtype(cache), attributes={"axis": 0})
