"""Rotations of pairs of a head's elements by angles that depend on the position."""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.core.emitter import Emitter


def angles(emitter: Emitter, tables: Sequence[str], positions: str, head_dim: int) -> tuple[str, str]:
    """Cosine and sine of the angles at positions, [batch, positions, pairs] with a dim of one head put in.

    Args:
        emitter: writes the ops.
        tables: of cosines and of sines, [positions, pairs].
        positions: [batch, positions].
        head_dim: the dim of heads.
    """
    columns = []
    for table, part in zip(tables, ("cosine", "sine"), strict=True):
        shape = (*emitter.shape(positions), emitter.shape(table)[1])
        row = emitter.one("Gather", (table, positions), shape, emitter.dtype(table), hint=f"{part}.rows")
        columns.append(emitter.reshape(row, (*shape[:head_dim], 1, *shape[head_dim:]), part))
    return columns[0], columns[1]


def rotated(emitter: Emitter, x: str, cosine: str, sine: str, part: str, *, interleaved: bool) -> str:
    """(a, b) becomes (a cos - b sin, a sin + b cos) for pairs of elements (Su et al. 2021); those that are left stay.

    Args:
        emitter: writes the ops.
        x: [..., elements of a head].
        cosine: of the angles of pairs, to broadcast against [..., pairs].
        sine: the same.
        part: what the result is called.
        interleaved: pairs are neighbours, or else elements of the first half and of the second of 2 * pairs.
    """
    *lead, size = emitter.shape(x)
    pairs, dtype = emitter.shape(cosine)[-1], emitter.dtype(x)

    def picked(low: int, high: int, pace: int, named: str) -> str:
        bounds = (low, high, len(lead), pace)
        limits = [emitter.ints([bound], f"{part}.{named}.{number}") for number, bound in enumerate(bounds)]
        shape = (*lead, len(range(low, high, pace)))
        return emitter.one("Slice", (x, *limits), shape, dtype, hint=f"{part}.{named}")

    if interleaved:
        first, second = (picked(start, 2 * pairs, 2, named) for start, named in ((0, "first"), (1, "second")))
    else:
        first, second = (picked(start, start + pairs, 1, named) for start, named in ((0, "first"), (pairs, "second")))
    products = {
        f"{named}.{with_}": emitter.each("Mul", f"{part}.{named}.{with_}", value, angle)
        for value, named in ((first, "first"), (second, "second"))
        for angle, with_ in ((cosine, "cosine"), (sine, "sine"))
    }
    low = emitter.each("Sub", f"{part}.low", products["first.cosine"], products["second.sine"])
    high = emitter.each("Add", f"{part}.high", products["first.sine"], products["second.cosine"])
    if interleaved:
        low, high = (
            emitter.reshape(half, (*lead, pairs, 1), f"{part}.{named}.column")
            for half, named in ((low, "low"), (high, "high"))
        )
        column_pairs = emitter.concat((low, high), len(lead) + 1, f"{part}.pairs")
        parts = [emitter.reshape(column_pairs, (*lead, 2 * pairs), f"{part}.turned")]
    else:
        parts = [low, high]
    # A rotary embedding may turn the first elements of a head only.
    if 2 * pairs < size:
        parts.append(picked(2 * pairs, size, 1, "rest"))
    if len(parts) == 1:
        return parts[0]
    return emitter.concat(parts, len(lead), part)
