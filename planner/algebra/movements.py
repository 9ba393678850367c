"""Tables of what moves between divisions of an index space: asked for one by one, counted together.

Whatever moves is of one form: what workers are to hold, less what they have of it already. An op's input is what it
needs less what is owned; an output is what is owned less what was made; and partial results are what is held in the
middle, where they are reduced, once for each contribution, less what was made, and then what is owned less the middle.
So the tables of a whole solution, a few numbers each, are some long arrays of pairs of divisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from planner.algebra.counts import Counts
from planner.algebra.divisions import Divisions
from planner.algebra.partial import IMPOSSIBLE, partial_cuts, settled
from planner.algebra.tiling import Tiling
from planner.algebra.ways import Ints

_TOGETHER = 1 << 12
"""Entries up to which a table is counted together with others: a call takes longer than what there is to be done."""


class Block(NamedTuple):
    """A table of moved elements: from each division of one list (rows) to each division of another (columns).

    All divisions are of one index space.
    """

    divisions: Divisions
    owned: Sequence[int]
    """Numbers of tilings: the rows."""
    columns: Sequence[int]
    """Numbers of what is needed, or of the tilings in which it is made: the columns."""
    is_made: bool
    place: tuple[Sequence[int], Sequence[int]] | None = None
    """The rows and columns of its table; None: it is all of it."""


class Movements(NamedTuple):
    """A table to be counted: what is in none of its blocks is impossible (``planner.algebra.partial``)."""

    shape: tuple[int, int]
    blocks: tuple[Block, ...]


def read(
    divisions: Divisions, owned: Sequence[int], needed: Sequence[int], strategies: Sequence[Tiling] = ()
) -> Movements:
    """Elements that workers need and do not own, over all workers, shape [owned, needed].

    Args:
        divisions: of the index space.
        owned: numbers of tilings: how the tensor is.
        needed: numbers of what workers need.
        strategies: those that need it, where some are partial: what is partial at other cuts than its reader cannot be
            read.
    """
    shape = (len(owned), len(needed))
    if not strategies and not divisions.has_partial(owned):
        return Movements(shape, (Block(divisions, owned, needed, False),))
    rows = _places([partial_cuts(divisions.tiling(number)) for number in owned])
    columns = _places([partial_cuts(strategy) for strategy in strategies] or [()] * len(needed))
    places = [(rows[cuts], columns[cuts]) for cuts in rows if cuts in columns]
    return Movements(
        shape,
        tuple(
            Block(divisions, [owned[row] for row in place[0]], [needed[column] for column in place[1]], False, place)
            for place in places
        ),
    )


def made(divisions: Divisions, owned: Sequence[int], sources: Sequence[int]) -> Movements:
    """Elements that move to bring a tensor from how an op makes it to where it is owned, shape [owned, sources].

    What arrives at the workers that reduce needs no look at who sends it: the tiles of the cuts that shard a partial
    result make up the whole of it, so a region is met by as many contributions as the partial cuts have groups. Where
    the tensor is owned as contributions, these are not joined at all.

    Args:
        divisions: of the index space.
        owned: numbers of tilings: how the tensor is.
        sources: numbers of tilings: how it is made. Partial results say more than who holds them.
    """
    shape = (len(owned), len(sources))
    if not divisions.has_partial(owned):
        return Movements(shape, (Block(divisions, owned, sources, True),))
    goals = [divisions.tiling(number) for number in owned]
    blocks = []
    for rows in _places([partial_cuts(goal) for goal in goals]).values():
        inside = [settled(divisions.tiling(source), goals[rows[0]]) for source in sources]
        columns = [column for column, source in enumerate(inside) if source is not None]
        inner_sources = divisions.numbers([source for source in inside if source is not None])
        blocks.append(Block(divisions, [owned[row] for row in rows], inner_sources, True, (rows, columns)))
    return Movements(shape, tuple(blocks))


def _places(values: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """The places of each value."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(value, []).append(place)
    return places


def counted(tables: Sequence[Movements]) -> list[Ints]:
    """The tables, in elements."""
    blocks = iter(_counted(list(chain.from_iterable(table.blocks for table in tables))))
    return [_put_together(table, blocks) for table in tables]


def _put_together(table: Movements, counted_blocks: Iterator[Ints]) -> Ints:
    """A table, of whose blocks the counted ones come next."""
    if len(table.blocks) == 1 and table.blocks[0].place is None:
        return next(counted_blocks)
    elements: Ints = np.full(table.shape, IMPOSSIBLE, dtype=np.int64)
    for block in table.blocks:
        assert block.place is not None, "several blocks have places"
        elements[np.ix_(*block.place)] = next(counted_blocks)
    return elements


def _counted(blocks: Sequence[Block]) -> list[Ints]:
    tables: dict[int, Ints] = {}
    together: dict[Counts, list[int]] = {}
    for number, block in enumerate(blocks):
        if len(block.owned) * len(block.columns) > _TOGETHER:
            tables[number] = _large(block)
        else:
            together.setdefault(block.divisions.counts, []).append(number)
    for numbers in together.values():
        tables.update(zip(numbers, _alike([blocks[number] for number in numbers]), strict=True))
    return [tables[number] for number in range(len(blocks))]


def _large(block: Block) -> Ints:
    """A large table, by itself: rows against columns where nothing is reduced on the way."""
    counts, columns = block.divisions.counts, np.array(block.columns, dtype=np.int64)
    rows = np.array(block.owned, dtype=np.int64)
    counts.take_in()
    is_partial = counts.contributions(columns) > 0 if block.is_made else np.zeros(len(columns), dtype=np.bool_)
    table: Ints = np.empty((len(rows), len(columns)), dtype=np.int64)
    if not is_partial.all():
        direct = columns[~is_partial]
        common = counts.table(rows, direct)
        table[:, ~is_partial] = counts.elements(rows[:, None] if block.is_made else direct) - common
    if is_partial.any():
        [table[:, is_partial]] = _alike([block._replace(columns=columns[is_partial].tolist())])
    return table


def _alike(blocks: Sequence[Block]) -> list[Ints]:
    """Tables of the same cuts, entry by entry."""
    counts = blocks[0].divisions.counts
    heights = np.array([len(block.owned) for block in blocks], dtype=np.int64)
    widths = np.array([len(block.columns) for block in blocks], dtype=np.int64)
    sizes = heights * widths
    stops = sizes.cumsum()
    of = np.repeat(np.arange(len(blocks)), sizes)
    place = np.arange(len(of)) - (stops - sizes)[of]
    down, along = np.divmod(place, widths[of])
    owned = _flat(block.owned for block in blocks)[(heights.cumsum() - heights)[of] + down]
    columns = _flat(block.columns for block in blocks)[(widths.cumsum() - widths)[of] + along]
    is_made = np.array([block.is_made for block in blocks], dtype=np.bool_)[of]
    counts.take_in()
    goal, source = np.where(is_made, owned, columns), np.where(is_made, columns, owned)
    contributions = np.where(is_made, counts.contributions(columns), 0)
    # Where partial results are reduced, the goal is the middle first, and then where the tensor is owned.
    reduced = np.flatnonzero(contributions)
    last, made_as = owned[reduced], columns[reduced]
    middle = goal[reduced] = _middles(blocks, of[reduced], made_as, last)
    counts.take_in()
    counts.count(np.concatenate([goal, last]), np.concatenate([source, middle]))
    elements = counts.elements(goal) * np.maximum(contributions, 1) - counts.in_common(goal, source)
    elements[reduced] += counts.elements(last) - counts.in_common(last, middle)
    shapes = zip(heights.tolist(), widths.tolist(), strict=True)
    ends = [0, *stops.tolist()]
    return [elements[ends[number] : ends[number + 1]].reshape(shape) for number, shape in enumerate(shapes)]


def _middles(blocks: Sequence[Block], of: Ints, made_as: Ints, owned: Ints) -> Ints:
    """The divisions in which partial results are reduced, of entries of these blocks."""
    _, first, inverse = np.unique(made_as << 32 | owned, return_index=True, return_inverse=True)
    pairs = zip(of[first].tolist(), made_as[first].tolist(), owned[first].tolist(), strict=True)
    middles = [blocks[number].divisions.middle(source, goal) for number, source, goal in pairs]
    return np.array(middles, dtype=np.int64)[inverse]


def _flat(numbers: Iterable[Sequence[int]]) -> Ints:
    return np.array(list(chain.from_iterable(numbers)), dtype=np.int64)
