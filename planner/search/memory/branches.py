"""The cheapest plan within a residence, where prices lead to a mixture of plans: branch and bound.

At the prices of the cheapest mixture (``planner.search.memory.prices``) no plan is cheaper than it, but it is no plan:
it takes a share of one that has too much residence, and a share of one that has room to spare. These two differ in how
many bytes some variable takes. No plan takes as many as the one and as few as the other, so all plans are divided into
those that take few there and those that take many; each part has a mixture of its own, and a plan within the residence
that costs no more than a part's mixture ends the search in that part (Barnhart et al., "Branch-and-price: column
generation for solving huge integer programs", 1998).

Where layers are equal, what one of them does not take another takes, and to divide by one of them says little. So plans
are divided by what equal variables take together, too, where that comes in steps: so many bytes at most, or a step more
at least. No variable's candidates tell that; so it has a price in such a part, as memory has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.priced import rounded
from planner.search.effort import PRICES_BEFORE_BRANCHES, PRICES_WITHOUT_BRANCHES, UNBOUNDED
from planner.search.memory.prices import cheapest_mixture

P = TypeVar("P")
Ints: TypeAlias = NDArray[np.int64]
Prices: TypeAlias = Mapping[int, Fraction]
Spans: TypeAlias = Mapping[int, tuple[int, int]]
"""By variable, the least and the most bytes that it may take."""
Sums: TypeAlias = Mapping[tuple[int, ...], tuple[int, int]]
"""By variables, the least and the most bytes that they may take together."""
Charges: TypeAlias = Mapping[int, Fraction]
"""By variable, the price of a byte that it takes; negative where plans are to take more."""


@dataclass(frozen=True, slots=True, eq=False)
class Column(Generic[P]):
    """A plan, by what it costs and takes."""

    plan: P
    objective: int
    residence: Ints
    """Bytes on all workers together, by moment."""
    taken: Ints
    """Bytes on all workers together, by variable: how plans are told apart."""

    def is_in(self, spans: Spans) -> bool:
        """Whether it takes what the spans say."""
        return all(least <= self.taken[variable] <= most for variable, (least, most) in spans.items())


@dataclass(frozen=True, slots=True)
class Answer(Generic[P]):
    """The plan for prices."""

    column: Column[P]
    least: Fraction | None
    """No plan in the spans has a smaller sum of objective and priced residence; None where that is not known."""


Solve: TypeAlias = Callable[[Prices, Spans, Charges], "Answer[P] | None"]
"""The plan for prices among those in spans; None if there are none."""


@dataclass(frozen=True, slots=True)
class Variables:
    """What is known of the variables of all plans, by variable."""

    first: Ints
    """The first moment at which what it takes lies there."""
    last: Ints
    """The last one."""
    kind: Ints
    """Equal for those that may take the same; -1 for one that has no price (``Charges``)."""
    step: Ints
    """The bytes that two variables of a kind may take differ by multiples of this number."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How far a search goes."""

    most_solved: int
    """How often plans are searched for at most."""
    tolerance: Fraction = Fraction(0)
    """A part of the plans is left if none there can be cheaper by more than this share."""


@dataclass(frozen=True, slots=True)
class Branched(Generic[P]):
    """What was found."""

    best: Column[P] | None
    """The cheapest plan within the residence that was accepted, if it is below the given objective."""
    least: Fraction
    """No plan within the residence has less; at most the best one's objective, or the given one."""
    solved: int
    """How often plans were searched for."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the plans."""

    spans: Spans
    sums: Sums
    centre: _Centre

    def within(self, column: Column[P]) -> bool:
        """Whether a plan belongs to it."""
        return column.is_in(self.spans) and all(
            least <= total(column, variables) <= most for variables, (least, most) in self.sums.items()
        )

    def divided(self, by: tuple[int, ...], at: int, step: int, centre: _Centre) -> Iterator[_Part]:
        """Those that take at most so many bytes there, and those that take a step more at least."""
        if len(by) == 1:
            low, high = self.spans.get(by[0], (0, UNBOUNDED))
            for span in ((low, at), (at + step, high)):
                yield _Part({**self.spans, by[0]: span}, self.sums, centre)
        else:
            low, high = self.sums.get(by, (0, UNBOUNDED))
            for span in ((low, at), (at + step, high)):
                yield _Part(self.spans, {**self.sums, by: span}, centre)


@dataclass(frozen=True, slots=True)
class _Centre:
    """Prices: of memory by moment, and of what variables take together."""

    prices: Mapping[int, Fraction]
    charges: Mapping[tuple[int, ...], Fraction]

    def half_way(self, other: _Centre) -> _Centre:
        """The prices between these and others."""
        return _Centre(_half_way(self.prices, other.prices), _half_way(self.charges, other.charges))

    def worth(self, room: Ints, sums: Sums) -> Fraction:
        """What a plan pays at most that takes what there is, and as much or as little as it may elsewhere."""
        found = sum((price * int(room[moment]) for moment, price in self.prices.items()), Fraction(0))
        for variables, price in self.charges.items():
            least, most = sums.get(variables, (0, UNBOUNDED))
            found += price * (most if price > 0 else least)
        return found


K = TypeVar("K", bound=Hashable)


def _half_way(one: Mapping[K, Fraction], other: Mapping[K, Fraction]) -> dict[K, Fraction]:
    keys = dict.fromkeys((*one, *other))
    return {key: rounded((one.get(key, Fraction(0)) + other.get(key, Fraction(0))) / 2) for key in keys}


def total(column: Column[P], variables: tuple[int, ...]) -> int:
    """Bytes that variables take together."""
    return int(column.taken[list(variables)].sum())


def branched(
    known: Sequence[Column[P]],
    solve: Solve[P],
    room: Ints,
    variables: Variables,
    below: int,
    accept: Callable[[Column[P]], bool],
    highest_price: Fraction,
    budget: Budget,
) -> Branched[P]:
    """Searches for the cheapest plan within a residence.

    Args:
        known: plans; at least one.
        solve: the plan for prices.
        room: residence that there is, by moment.
        variables: what they are.
        below: the objective of a plan that is known already: only cheaper ones are of interest.
        accept: says of a plan within the residence that is cheaper than all before whether it will do.
        highest_price: of a byte: more than having it could ever save.
        budget: how far the search goes.
    """
    search = _Branches(list(known), solve, room, variables, accept, highest_price, budget)
    return search.run(below)


class _Branches(Generic[P]):
    def __init__(
        self,
        columns: list[Column[P]],
        solve: Solve[P],
        room: Ints,
        variables: Variables,
        accept: Callable[[Column[P]], bool],
        highest_price: Fraction,
        budget: Budget,
    ) -> None:
        self._columns, self._solve, self._room = columns, solve, room
        self._variables = variables
        self._accept, self._most_solved, self._tolerance = accept, budget.most_solved, budget.tolerance
        self._highest_price = highest_price
        self._solved = 0
        self._below = 0
        self._best: Column[P] | None = None
        self._refused: set[int] = set()

    def run(self, below: int) -> Branched[P]:
        self._below = below
        for column in sorted(self._columns, key=lambda one: one.objective):
            self._consider(column)
        open_parts: list[tuple[Fraction, int, _Part]] = [(Fraction(0), 0, _Part({}, {}, _Centre({}, {})))]
        left: list[Fraction] = []
        count = 1
        while open_parts and self._solved < self._most_solved and not self._is_idle(open_parts[0][0]):
            least, _, part = heapq.heappop(open_parts)
            own, centre, apart = self._relaxed(part)
            least = max(least, own)
            if self._is_idle(least) or apart is None:
                left.append(least)
            else:
                for smaller in part.divided(*apart, centre):
                    heapq.heappush(open_parts, (least, count, smaller))
                    count += 1
        bounds = [*left, *(least for least, _, _ in open_parts), Fraction(self._below)]
        return Branched(self._best, min(bounds), self._solved)

    def _is_idle(self, least: Fraction) -> bool:
        """Whether no plan that costs at least so much is of interest."""
        return least >= self._below * (1 - self._tolerance)

    def _consider(self, column: Column[P]) -> None:
        if column.objective < self._below and (column.residence <= self._room).all():
            if self._accept(column):
                self._best, self._below = column, column.objective
            else:
                self._refused.add(id(column))

    def _relaxed(self, part: _Part) -> tuple[Fraction, _Centre, tuple[tuple[int, ...], int, int] | None]:
        """What a mixture of plans of a part costs at least, the prices that say so, and where to divide the part."""
        least, centre = Fraction(0), part.centre
        tried: list[_Centre] = []
        columns = [column for column in self._columns if column.is_in(part.spans)]
        while len(tried) < PRICES_WITHOUT_BRANCHES:
            prices = self._next(part, columns, centre, tried)
            if prices is None or self._solved >= self._most_solved:
                break
            tried.append(prices)
            self._solved += 1
            charges = {variable: price for group, price in prices.charges.items() for variable in group}
            answer = self._solve(prices.prices, part.spans, charges)
            if answer is None:
                return Fraction(self._below), centre, None
            if answer.least is not None and answer.least - prices.worth(self._room, part.sums) > least:
                least, centre = answer.least - prices.worth(self._room, part.sums), prices
            self._columns.append(answer.column)
            if not answer.column.is_in(part.spans):
                break
            columns.append(answer.column)
            self._consider(answer.column)
            if self._is_idle(least) or (
                len(tried) >= PRICES_BEFORE_BRANCHES and self._apart(columns, part) is not None
            ):
                break
        return least, centre, None if self._is_idle(least) else self._apart(columns, part)

    def _next(
        self, part: _Part, columns: Sequence[Column[P]], centre: _Centre, tried: Sequence[_Centre]
    ) -> _Centre | None:
        """The prices to try next; None if none are new.

        Those of the cheapest mixture of a few plans lie far off, and bound little. So first the best ones known are
        tried, and then what lies half way from them (du Merle et al., "Stabilized column generation", 1999).
        """
        if not columns or (centre.prices and not tried):
            return None if tried else centre
        mixture = self._priced(part, columns)
        nearer = centre.half_way(mixture) if centre.prices and len(tried) % 2 else mixture
        return next((prices for prices in (nearer, mixture) if prices not in tried), None)

    def _priced(self, part: _Part, columns: Sequence[Column[P]]) -> _Centre:
        moments = sorted({int((column.residence - self._room).argmax()) for column in columns})
        excesses = [(column.residence[moments] - self._room[moments]).tolist() for column in columns]
        for row, column in zip(excesses, columns, strict=True):
            for group, (least, most) in part.sums.items():
                row += [total(column, group) - most, least - total(column, group)]
        found = cheapest_mixture([column.objective for column in columns], excesses, self._highest_price).prices
        prices = {moment: rounded(price) for moment, price in zip(moments, found, strict=False) if price}
        more, less = found[len(moments) :: 2], found[len(moments) + 1 :: 2]
        charges = {group: rounded(up - down) for group, up, down in zip(part.sums, more, less, strict=True)}
        return _Centre(prices, {group: price for group, price in charges.items() if price})

    def _apart(self, columns: Sequence[Column[P]], part: _Part) -> tuple[tuple[int, ...], int, int] | None:
        """Where the cheapest plan that will not do takes other bytes than the cheapest that does.

        Of the plans of the part, or else of all. Variables, bytes, and a step: no plan takes bytes between these and a
        step more.
        """
        over = [column for column in columns if not (self._is_good(column) and part.within(column))]
        if not over:
            return None
        one = min(over, key=lambda column: column.objective)
        # What is not there when the plan is fullest matters less.
        fullest = int((one.residence - self._room).argmax())
        is_there = (self._variables.first <= fullest) & (fullest <= self._variables.last)
        for other in (*self._ranked(columns), *self._ranked(self._columns)):
            together = self._together(one, other, part, is_there, fullest)
            if together is not None:
                return together
            differing, fewer = np.abs(one.taken - other.taken), np.minimum(one.taken, other.taken)
            for variable, (low, high) in part.spans.items():
                if not low <= fewer[variable] < high:
                    differing[variable] = 0
            for weights in (np.where(is_there, differing, 0), differing):
                if weights.any():
                    variable = int(weights.argmax())
                    return (variable,), int(fewer[variable]), 1
        return None

    def _together(
        self, one: Column[P], other: Column[P], part: _Part, is_there: NDArray[np.bool_], fullest: int
    ) -> tuple[tuple[int, ...], int, int] | None:
        """The variables of one kind, there at a moment, that differ the most in what they take together."""
        found: list[tuple[int, tuple[int, ...], int, int]] = []
        for kind in np.unique(self._variables.kind[is_there & (one.taken != other.taken)]).tolist():
            group = tuple(np.flatnonzero(is_there & (self._variables.kind == kind)).tolist())
            if kind < 0 or len(group) < 2:
                continue
            low, high = part.sums.get(group, (0, UNBOUNDED))
            few, many = sorted((total(one, group), total(other, group)))
            step = int(self._variables.step[group[0]])
            # A mixture of the two that has just the room there is takes so much of each.
            room, (less, more) = int(self._room[fullest]), sorted((one.residence[fullest], other.residence[fullest]))
            share = Fraction(int(room - less), int(more - less)) if less < room < more else Fraction(1, 2)
            at = few + int(share * (many - few)) // step * step
            first, last = max(few, low), min(many, high) - step
            if first <= last:
                found.append((many - few, group, min(max(at, first), last), step))
        return max(found)[1:] if found else None

    def _ranked(self, columns: Sequence[Column[P]]) -> list[Column[P]]:
        """Those that will do first, the cheapest of them; then those that exceed the room the least."""
        return sorted(
            columns,
            key=lambda column: (
                (0, column.objective) if self._is_good(column) else (1, int((column.residence - self._room).max()))
            ),
        )

    def _is_good(self, column: Column[P]) -> bool:
        return id(column) not in self._refused and bool((column.residence <= self._room).all())
