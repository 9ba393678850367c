"""A Pad that repeats what it pads, as slices side by side: so it is cut along the dims that it pads.

A border that is wrapped lies at the other end, and the box of what a part of the whole op reads there holds all that is
between: a Pad would be cut nowhere. A slice is a box by itself, and is brought to those alone that make the border.
"""

from __future__ import annotations

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for

_BEFORE_FIRST = -(2**63 - 1)
"""Where a Slice backwards ends that goes to the first element."""


@stands_for("Pad", purpose=Purpose.PARTS)
def pad(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Modes wrap, reflect and edge (ONNX, Pad), one dim after the other, as NumPy has them.

    None for a constant border, for pads that are not known or cut off, and for borders that repeat more than there is.
    """
    mode, x = op.attribute("mode", "constant"), op.inputs[0]
    widths = emitter.value(op.inputs[1]) if op.has_input(1) else None
    if mode not in ("wrap", "reflect", "edge") or widths is None:
        return None
    axes = tuple(range(emitter.rank(x)))
    if op.has_input(3):
        stated = emitter.value(op.inputs[3])
        if stated is None:
            return None
        axes = tuple(int(axis) % emitter.rank(x) for axis in stated.ravel())
    pads = [int(width) for width in widths.ravel()]
    for number, dim in enumerate(axes):
        before, after, size = pads[number], pads[len(axes) + number], emitter.shape(x)[dim]
        limit = {"wrap": size, "reflect": size - 1, "edge": max(before, after)}[str(mode)]
        if min(before, after) < 0 or max(before, after) > limit:
            return None
        x = _bordered(emitter, str(mode), x, dim, before, after)
    return None if x == op.inputs[0] else (x,)


def _bordered(emitter: Emitter, mode: str, x: str, dim: int, before: int, after: int) -> str:
    shape, dtype = emitter.shape(x), emitter.dtype(x)
    size = shape[dim]
    bounds = {
        "wrap": ((size - before, size, 1), (0, after, 1)),
        "reflect": ((before, 0, -1), (size - 2, size - 2 - after if size - 2 - after >= 0 else _BEFORE_FIRST, -1)),
        "edge": ((0, 1, 1), (size - 1, size, 1)),
    }[mode]
    parts = [x]
    for width, (start, end, step), part in zip((before, after), bounds, ("before", "after"), strict=True):
        if not width:
            continue
        named = f"{part}.{dim}"
        limits = [
            emitter.ints([value], f"{named}.{name}")
            for value, name in ((start, "start"), (end, "end"), (dim, "dim"), (step, "step"))
        ]
        border_shape = (*shape[:dim], 1 if mode == "edge" else width, *shape[dim + 1 :])
        border = emitter.one("Slice", (x, *limits), border_shape, dtype, hint=named)
        if mode == "edge" and width > 1:
            wide = (*shape[:dim], width, *shape[dim + 1 :])
            sizes = emitter.ints(wide, f"{named}.shape")
            border = emitter.one("Expand", (border, sizes), wide, dtype, hint=f"{named}.wide")
        parts = [border, *parts] if part == "before" else [*parts, border]
    return emitter.concat(parts, dim, f"bordered.{dim}")
