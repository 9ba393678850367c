"""Tiles as a drawing in text: which worker has which box of an index space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from planner.algebra.region import Region
from planner.graph.core.patterns import ranges

_MOST_CELLS = 16
"""Boxes along one direction that are drawn; of more the tiles are listed."""
_MOST_LISTED = 8


def drawn(tiles: Sequence[Region], shape: Sequence[int], axes: Sequence[str], columns: int) -> list[str]:
    r"""Lines that show the tiles: a grid of the directions that are divided, or a list where that has no room.

    >>> tiles = [Region((0, 0), (2, 4)), Region((0, 4), (2, 8)), Region((2, 0), (4, 4)), Region((2, 4), (4, 8))]
    >>> print("\n".join(drawn(tiles, (4, 8), ("0", "1"), 80)))
         0:4  4:8
    0:2  0    1
    2:4  2    3

    Args:
        tiles: by worker; empty where a worker has none.
        shape: of the index space.
        axes: names of its directions.
        columns: how wide lines may be.
    """
    space = Region((0,) * len(shape), tuple(shape))
    if all(tile == space for tile in tiles):
        return [f"replicated: worker{'s' if len(tiles) > 1 else ''} {worker_ranges(range(len(tiles)))}"]
    divided = [
        dim for dim in range(len(shape)) if any((tile.lo[dim], tile.hi[dim]) != (0, shape[dim]) for tile in tiles)
    ]
    lines = _grid(tiles, divided) if len(divided) <= 2 else []
    if lines and max(map(len, lines)) <= columns:
        return lines
    return [f"{region}: {who}" for region, who in by_region(tiles, shape, _MOST_LISTED)]


def by_region(tiles: Sequence[Region], shape: Sequence[int], limit: int) -> list[tuple[str, str]]:
    """Different regions of a shape and who has them, ``workers 0-3``; at the end ``and`` how many more there are."""
    workers_of: dict[Region, list[int]] = {}
    for worker, tile in enumerate(tiles):
        key = Region((0,) * tile.rank, (0,) * tile.rank) if tile.is_empty else tile
        workers_of.setdefault(key, []).append(worker)
    rows = [
        (region.text(shape), f"worker{'s' if len(workers) > 1 else ''} {worker_ranges(workers)}")
        for region, workers in list(workers_of.items())[:limit]
    ]
    return rows + ([("and", f"{len(workers_of) - limit} more (--json)")] if len(workers_of) > limit else [])


def worker_ranges(workers: Iterable[int]) -> str:
    """``0-3, 6`` for ascending numbers."""
    return ", ".join(ranges((worker,) for worker in workers))


def _grid(tiles: Sequence[Region], divided: Sequence[int]) -> list[str]:
    """The boxes that the tiles' borders make, with the workers that have each; [] where these are many."""
    down = divided[0] if len(divided) == 2 else None
    across = divided[-1]
    rows = [(0, 1)] if down is None else _pieces(tiles, down)
    columns = _pieces(tiles, across)
    if len(rows) > _MOST_CELLS or len(columns) > _MOST_CELLS:
        return []
    # No border crosses a cell: a worker that has its first corner has all of it.
    cells = [
        [
            worker_ranges(
                worker
                for worker, tile in enumerate(tiles)
                if tile.lo[across] <= column < tile.hi[across]
                and (down is None or tile.lo[down] <= row < tile.hi[down])
                and not tile.is_empty
            )
            or "-"
            for column, _ in columns
        ]
        for row, _ in rows
    ]
    heads = [f"{lo}:{hi}" for lo, hi in columns]
    sides = ["" if down is None else f"{lo}:{hi}" for lo, hi in rows]
    widths = [max(len(head), *(len(row[number]) for row in cells)) for number, head in enumerate(heads)]
    side = max(map(len, sides))
    table = [("", heads), *zip(sides, cells, strict=True)]
    return [
        (f"{label:>{side}}  " if side else "")
        + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for label, row in table
    ]


def _pieces(tiles: Sequence[Region], dim: int) -> list[tuple[int, int]]:
    """Where the pieces between all borders along a direction begin and end."""
    ends = sorted({end for tile in tiles if not tile.is_empty for end in (tile.lo[dim], tile.hi[dim])})
    return list(pairwise(ends))
