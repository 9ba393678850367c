"""The cheapest plan within a residence, where prices lead to a mixture of plans: branch and bound.

At the prices of the cheapest mixture (``planner.search.memory_prices``) no plan is cheaper than it, but it is no plan:
it takes a share of one that has too much residence, and a share of one that has room to spare. These two differ in how
many bytes some variable takes. No plan takes as many as the one and as few as the other, so all plans are divided into
those that take few there and those that take many; each part has a mixture of its own, and a plan within the residence
that costs no more than a part's mixture ends the search in that part (Barnhart et al., "Branch-and-price: column
generation for solving huge integer programs", 1998).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.priced import rounded
from planner.search.memory_prices import cheapest_mixture

P = TypeVar("P")
Ints: TypeAlias = NDArray[np.int64]
Prices: TypeAlias = Mapping[int, Fraction]
Spans: TypeAlias = Mapping[int, tuple[int, int]]
"""By variable, the least and the most bytes that it may take."""
UNBOUNDED = 1 << 62
"""More than any variable takes."""
_COLUMNS = 2
"""Prices that are tried before plans are divided."""


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


Solve: TypeAlias = Callable[[Prices, Spans], "Answer[P] | None"]
"""The plan for prices among those in spans; None if there are none."""


@dataclass(frozen=True, slots=True)
class Branched(Generic[P]):
    """What was found."""

    best: Column[P] | None
    """The cheapest plan within the residence that was accepted, if it is below the given objective."""
    least: Fraction
    """No plan within the residence has less; at most the best one's objective, or the given one."""
    solved: int
    """How often plans were searched for."""


def branched(
    known: Sequence[Column[P]],
    solve: Solve[P],
    room: Ints,
    lives: tuple[Ints, Ints],
    below: int,
    accept: Callable[[Column[P]], bool],
    highest_price: Fraction,
    most_solved: int,
    tolerance: Fraction = Fraction(0),
) -> Branched[P]:
    """Searches for the cheapest plan within a residence.

    Args:
        known: plans; at least one.
        solve: the plan for prices.
        room: residence that there is, by moment.
        lives: the first and the last moment at which what a variable takes lies there, by variable.
        below: the objective of a plan that is known already: only cheaper ones are of interest.
        accept: says of a plan within the residence that is cheaper than all before whether it will do.
        highest_price: of a byte: more than having it could ever save.
        most_solved: how often ``solve`` is asked at most.
        tolerance: a part of the plans is left if none there can be cheaper by more than this share.
    """
    search = _Branches(list(known), solve, room, lives, accept, highest_price, most_solved, tolerance)
    return search.run(below)


class _Branches(Generic[P]):
    def __init__(
        self,
        columns: list[Column[P]],
        solve: Solve[P],
        room: Ints,
        lives: tuple[Ints, Ints],
        accept: Callable[[Column[P]], bool],
        highest_price: Fraction,
        most_solved: int,
        tolerance: Fraction,
    ) -> None:
        self._columns, self._solve, self._room = columns, solve, room
        self._lives = lives
        self._accept, self._most_solved, self._tolerance = accept, most_solved, tolerance
        self._highest_price = highest_price
        self._solved = 0
        self._below = 0
        self._best: Column[P] | None = None
        self._prices: Prices = {}
        self._refused: set[int] = set()

    def run(self, below: int) -> Branched[P]:
        self._below = below
        for column in sorted(self._columns, key=lambda one: one.objective):
            self._consider(column)
        open_parts: list[tuple[Fraction, int, dict[int, tuple[int, int]]]] = [(Fraction(0), 0, {})]
        left: list[Fraction] = []
        count = 1
        while open_parts and self._solved < self._most_solved and not self._is_idle(open_parts[0][0]):
            least, _, spans = heapq.heappop(open_parts)
            own, apart = self._relaxed(spans)
            least = max(least, own)
            if self._is_idle(least) or apart is None:
                left.append(least)
            else:
                variable, most = apart
                low, high = spans.get(variable, (0, UNBOUNDED))
                for span in ((low, most), (most + 1, high)):
                    heapq.heappush(open_parts, (least, count, {**spans, variable: span}))
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

    def _relaxed(self, spans: Spans) -> tuple[Fraction, tuple[int, int] | None]:
        """What a mixture of plans in the spans costs at least; which variable divides them, and at what bytes."""
        least = Fraction(0)
        tried: list[Prices] = []
        columns = [column for column in self._columns if column.is_in(spans)]
        while True:
            prices = self._priced(columns) if columns else self._prices
            if prices in tried or self._solved >= self._most_solved:
                break
            tried.append(prices)
            self._prices = prices
            self._solved += 1
            answer = self._solve(prices, spans)
            if answer is None:
                return Fraction(self._below), None
            if answer.least is not None:
                worth = sum((price * int(self._room[moment]) for moment, price in prices.items()), Fraction(0))
                least = max(least, answer.least - worth)
            self._columns.append(answer.column)
            if not answer.column.is_in(spans):
                break
            columns.append(answer.column)
            self._consider(answer.column)
            if self._is_idle(least) or (len(tried) >= _COLUMNS and self._apart(columns, spans) is not None):
                break
        return least, None if self._is_idle(least) else self._apart(columns, spans)

    def _priced(self, columns: Sequence[Column[P]]) -> Prices:
        moments = sorted({int((column.residence - self._room).argmax()) for column in columns})
        excesses = [(column.residence[moments] - self._room[moments]).tolist() for column in columns]
        mixture = cheapest_mixture([column.objective for column in columns], excesses, self._highest_price)
        return {moment: rounded(price) for moment, price in zip(moments, mixture.prices, strict=True) if price}

    def _apart(self, columns: Sequence[Column[P]], spans: Spans) -> tuple[int, int] | None:
        """Where the cheapest plan that will not do takes other bytes than the cheapest that does.

        Of the plans in the spans, or else of all. A variable, and the fewer bytes of the two.
        """
        over = [column for column in columns if not self._is_good(column)]
        if not over:
            return None
        one = min(over, key=lambda column: column.objective)
        # What is not there when the plan is fullest matters less.
        fullest = int((one.residence - self._room).argmax())
        is_there = (self._lives[0] <= fullest) & (fullest <= self._lives[1])
        for other in (*self._ranked(columns), *self._ranked(self._columns)):
            differing, fewer = np.abs(one.taken - other.taken), np.minimum(one.taken, other.taken)
            for variable, (low, high) in spans.items():
                if not low <= fewer[variable] < high:
                    differing[variable] = 0
            for weights in (np.where(is_there, differing, 0), differing):
                if weights.any():
                    variable = int(weights.argmax())
                    return variable, int(fewer[variable])
        return None

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
