"""The passes of ``planner.search.bound.dual`` over many variables at once, for thousands of small tables.

Between variables of one level, the longest way from a first variable, there is no table: all of a level are passed
together, in few calls that are as long as the level is wide. The sum of what is given is the same as with one variable
after the other, but for rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.search.bound.dual import Dual, Floats

_Ints = NDArray[np.intp]


def reprice(dual: Dual, costs: Sequence[Floats]) -> None:
    """Goes on with other costs of the same values: what is given stays, and the bound is that of the next pass."""
    dual.own = list(costs)
    dual.lower = -np.inf
    dual._order()


@dataclass(frozen=True, slots=True)
class _Tables:
    """Tables from variables of one level and of one number of values.

    Attributes:
        given: where what they gave to these variables is: begin and end.
        values: of each of these variables.
        tables: side by side, shape [values, values of all the other variables].
        column: which table a column is of; shape [values of all the other variables].
        target: where what they give to the others is; of the same shape.
    """

    given: slice
    values: int
    tables: Floats
    column: _Ints
    target: _Ints


@dataclass(frozen=True, slots=True)
class _Side:
    """What a level has on one side, of earlier or of later variables.

    Attributes:
        given: where what tables gave to the level's variables is: begin and end.
        cell: to which value of the level; of the same length.
        kept: by variable of the level, the share of its least that its tables on this side do not take.
        tables: of this side.
    """

    given: slice
    cell: _Ints
    kept: Floats
    tables: list[_Tables]


@dataclass(frozen=True, slots=True)
class _End:
    """One end of all tables, the earlier or the later one.

    Attributes:
        variable: by table.
        order: the tables by the level and the number of values of that variable; so lies what they gave to it.
        begin: by table where that begins.
    """

    variable: _Ints
    order: _Ints
    begin: _Ints


@dataclass(frozen=True, slots=True)
class _Level:
    """Variables without tables between them.

    Attributes:
        cells: where their values are: begin and end.
        variables: their numbers.
        first: of each the place of its first value in the level.
        owner: of each value its variable's place in the level.
        share: of each value, what one table takes of what it has.
        before: the tables to earlier variables.
        after: those to later ones.
        row: of what ``before`` gave, the place in all tables of the row for the earlier variable's first value, and the
            length of a row.
        earlier: of the same, the earlier variable.
    """

    cells: slice
    variables: _Ints
    first: _Ints
    owner: _Ints
    share: Floats
    before: _Side
    after: _Side
    row: _Ints
    width: _Ints
    earlier: _Ints


class GroupedDual(Dual):
    """As ``Dual``; what pairs have given are views of two arrays, so that it is changed in place only."""

    def __init__(self, own: Sequence[Floats], pairs: Sequence[tuple[int, int, Floats]]) -> None:
        """As of ``Dual``; pairs may be in any order of the variables."""
        self._levels: list[_Level] = []
        self._most = np.inf
        super().__init__(own, pairs)

    def _order(self) -> None:
        if not self._levels:
            self._group()
        flat = np.concatenate([*self.own, np.zeros(0)])
        self._flat = flat[self._cells]
        self._alone = float(sum(float(self.own[variable].min()) for variable in self._single))

    def keep(self, values: Sequence[NDArray[np.int64]]) -> None:
        """As of ``Dual``."""
        self._levels = []
        super().keep(values)

    def _group(self) -> None:
        """Lays values, what is given, and tables out level by level."""
        sizes = np.array([len(costs) for costs in self.own], dtype=np.intp)
        ends = np.array([(pair.first, pair.second) for pair in self.pairs], dtype=np.intp).reshape(-1, 2)
        rank = _wide_order(len(sizes), ends)
        turned = rank[ends[:, 0]] > rank[ends[:, 1]]
        first, second = np.where(turned, ends.T[::-1], ends.T)
        depth = _depths(rank, first, second)
        joined = np.zeros(len(sizes), dtype=np.bool_)
        joined[ends] = True
        self._single = np.flatnonzero(~joined).tolist()
        order = np.flatnonzero(joined)
        order = order[np.argsort(depth[order], kind="stable")]
        self._cells = _ranges((np.cumsum(sizes) - sizes)[order], sizes[order])
        place = _places(sizes, order)
        earlier, later = (_End(own, by, _places(sizes[own], by)) for own, by in _sorted(first, second, sizes, depth))
        self._to_first, self._to_second = (np.zeros(int(sizes[own].sum())) for own in (first, second))
        tables = []
        for number, (pair, is_turned) in enumerate(zip(self.pairs, turned.tolist(), strict=True)):
            tables.append(pair.table.T if is_turned else pair.table)
            one, other = self._to_first[earlier.begin[number] :], self._to_second[later.begin[number] :]
            one, other = one[: len(tables[-1])], other[: tables[-1].shape[1]]
            one[:], other[:] = (pair.to_second, pair.to_first) if is_turned else (pair.to_first, pair.to_second)
            pair.to_first, pair.to_second = (other, one) if is_turned else (one, other)
        self._entries = np.concatenate([*(table.ravel() for table in tables), np.zeros(0)])
        lengths = sizes[first] * sizes[second]
        rows = np.cumsum(lengths) - lengths
        degrees = [np.bincount(own, minlength=len(sizes)) for own in (first, second)]
        share = 1 / np.maximum(1, np.maximum(*degrees))
        for variables in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
            if not len(variables):
                continue
            begin, widths = int(place[variables[0]]), sizes[variables]
            sides = []
            for end, other_end, degree, is_later in (
                (earlier, later, degrees[0], False),
                (later, earlier, degrees[1], True),
            ):
                here = end.order[depth[end.variable[end.order]] == depth[variables[0]]]
                sent = sizes[end.variable[here]]
                low = int(end.begin[here[0]]) if len(here) else 0
                side = _Side(
                    slice(low, low + int(sent.sum())),
                    _ranges(place[end.variable[here]] - begin, sent),
                    1 - share[variables] * degree[variables],
                    [
                        _side_by_side(
                            [tables[one].T if is_later else tables[one] for one in same], same, end, other_end
                        )
                        for same in np.split(here, np.flatnonzero(np.diff(sent)) + 1)
                        if len(same)
                    ],
                )
                sides.append(side)
            # ``here`` and ``sent`` are those of the later end: of tables to earlier variables.
            self._levels.append(
                _Level(
                    slice(begin, begin + int(widths.sum())),
                    variables,
                    np.cumsum(widths) - widths,
                    np.repeat(np.arange(len(variables)), widths),
                    np.repeat(share[variables], widths),
                    before=sides[1],
                    after=sides[0],
                    row=_ranges(rows[here], sent),
                    width=np.repeat(sent, sent),
                    earlier=np.repeat(first[here], sent),
                )
            )

    def given(self) -> tuple[Floats, Floats]:
        """What pairs have given, to be gone on with by ``give``."""
        return self._to_first.copy(), self._to_second.copy()

    def give(self, given: tuple[Floats, Floats]) -> None:
        """Goes on with what pairs had given, as far as that is not more than what tables were cut off at."""
        for own, before in zip((self._to_first, self._to_second), given, strict=True):
            np.clip(before, -self._most, self._most, out=own)

    def cut_off(self, most: float) -> None:
        """Goes on with this instead of all that is more."""
        for pair in self.pairs:
            np.minimum(pair.table, most, out=pair.table)
        self._most = most
        self.give((self._to_first, self._to_second))
        np.minimum(self._entries, most, out=self._entries)
        for level in self._levels:
            for some in (*level.before.tables, *level.after.tables):
                np.minimum(some.tables, most, out=some.tables)

    def forward(self) -> list[int]:
        """One pass in the order of the levels.

        Returns:
            An assignment: each variable's best value, given those before it and what those after it seem to cost.
        """
        values = np.zeros(len(self.own), dtype=np.intp)
        values[self._single] = [self.own[variable].argmin() for variable in self._single]
        lower = self._alone
        for level in self._levels:
            total = self._flat[level.cells] + _summed(level.after, self._to_first, level.cells)
            rows = self._entries[level.row + values[level.earlier] * level.width]
            choice = total + np.bincount(level.before.cell, rows, minlength=len(total))
            least = np.minimum.reduceat(choice, level.first)
            places = np.flatnonzero(choice == least[level.owner])
            owners = level.owner[places][::-1]
            values[level.variables[owners]] = places[::-1] - level.first[owners]  # of equal ones the first
            total += _summed(level.before, self._to_second, level.cells)
            lower += float(np.minimum.reduceat(total, level.first) @ level.after.kept)
            _send(level, level.after, total, self._to_first, self._to_second)
        self.lower = max(self.lower, lower)
        return [int(value) for value in values]

    def backward(self) -> None:
        """One pass in the opposite order."""
        lower = self._alone
        for level in reversed(self._levels):
            total = self._flat[level.cells] + _summed(level.after, self._to_first, level.cells)
            total += _summed(level.before, self._to_second, level.cells)
            lower += float(np.minimum.reduceat(total, level.first) @ level.before.kept)
            _send(level, level.before, total, self._to_second, self._to_first)
        self.lower = max(self.lower, lower)


def _summed(side: _Side, given: Floats, cells: slice) -> Floats:
    """By value of a level what tables gave to it."""
    found: Floats = np.bincount(side.cell, given[side.given], minlength=cells.stop - cells.start).astype(np.float64)
    return found


def _send(level: _Level, side: _Side, total: Floats, own: Floats, others: Floats) -> None:
    """Takes each table's share of what variables have, and gives the rest of the tables to the other variables."""
    own[side.given] -= (total * level.share)[side.cell]
    for some in side.tables:
        given = np.ascontiguousarray(own[some.given].reshape(-1, some.values).T)
        rest = given.take(some.column, axis=1, mode="clip")  # a tenth of the time of an index, and of new arrays
        others[some.target] = np.minimum.reduce(np.subtract(some.tables, rest, out=rest), axis=0)


def _side_by_side(tables: Sequence[Floats], numbers: _Ints, end: _End, other: _End) -> _Tables:
    """Tables from variables of one level with equally many values.

    Args:
        tables: these ones, each of shape [values of the level's variable, values of the other one].
        numbers: theirs among all.
        end: the one at the level.
        other: the other one.
    """
    values = len(tables[0])
    widths = np.array([table.shape[1] for table in tables], dtype=np.intp)
    low = int(end.begin[numbers[0]])
    return _Tables(
        slice(low, low + values * len(tables)),
        values,
        np.concatenate(tables, axis=1),
        np.repeat(np.arange(len(tables)), widths),
        _ranges(other.begin[numbers], widths),
    )


def _sorted(first: _Ints, second: _Ints, sizes: _Ints, depth: _Ints) -> Iterator[tuple[_Ints, _Ints]]:
    """Of both ends the variables by table, and the tables by those variables' levels and numbers of values."""
    for own in (first, second):
        yield own, np.lexsort((sizes[own], depth[own]))


def _places(lengths: _Ints, order: _Ints) -> _Ints:
    """Where each part begins if some parts, in an order, lie one after the other."""
    found = np.zeros(len(lengths), dtype=np.intp)
    found[order] = np.cumsum(lengths[order]) - lengths[order]
    return found


def _wide_order(variables: int, ends: _Ints) -> _Ints:
    """The place of each variable in an order with few levels that goes from one end of the graph to the other.

    Variables go by their distance from one that is far from another, those of a distance by colours, so that what is
    given goes far in a pass.
    """
    near: list[list[int]] = [[] for _ in range(variables)]
    for one, other in ends.tolist():
        near[one].append(other)
        near[other].append(one)
    distance, colour = [-1] * variables, [0] * variables
    for variable in range(variables):
        if distance[variable] < 0:
            far = list(_distances(variable, near))[-1]
            for other, steps in _distances(far, near).items():
                distance[other] = steps
        taken = {colour[other] for other in near[variable] if other < variable}
        colour[variable] = next(one for one in itertools.count() if one not in taken)
    rank = np.empty(variables, dtype=np.intp)
    rank[np.lexsort((colour, distance))] = np.arange(variables)
    return rank


def _distances(variable: int, near: Sequence[Sequence[int]]) -> dict[int, int]:
    """Of all that are connected with a variable how many tables are between; in the order of that."""
    found, reached = {variable: 0}, [variable]
    for one in reached:
        for other in near[one]:
            if other not in found:
                found[other] = found[one] + 1
                reached.append(other)
    return found


def _depths(rank: _Ints, first: _Ints, second: _Ints) -> _Ints:
    """Of each variable the length of the longest way to it, each step to a later one."""
    found = [0] * len(rank)
    by = np.lexsort((rank[first], rank[second]))
    for one, other in zip(first[by].tolist(), second[by].tolist(), strict=True):
        found[other] = max(found[other], found[one] + 1)
    return np.array(found, dtype=np.intp)


def _ranges(begin: _Ints, length: _Ints) -> _Ints:
    """Numbers from each beginning on, so many."""
    ends = np.cumsum(length)
    found: _Ints = np.arange(int(length.sum())) + np.repeat(begin - (ends - length), length)
    return found
