"""RotaryEmbedding written out: rotations of pairs of elements by angles that depend on the position."""

from __future__ import annotations

from planner.graph.core.attributes import integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.decompositions.rotary import angles, rotated


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
    rotated_size = integer(op, "rotary_embedding_dim", 0) or emit.shape(x)[-1]
    if positions and positions[0]:
        cos, sin = angles(emit, (cos, sin), positions[0], head_dim)
    else:
        cos, sin = (emit.unsqueeze(cache, [head_dim]) for cache in (cos, sin))
    cos, sin = (_first(emit, cache, rotated_size // 2) for cache in (cos, sin))
    y = rotated(emit, x, cos, sin, "rotary", interleaved=bool(integer(op, "interleaved", 0)))
    return (emit.reshape(y, shape),)


def _first(emit: Builder, x: str, count: int) -> str:
    """The first elements of the last dim."""
    *lead, _ = emit.shape(x)
    return emit.slice(x, [0] * (len(lead) + 1), [*lead, count])
