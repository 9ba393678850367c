"""Plans of a model for one number of workers, from the fastest to the leanest.

The first are those that are made without a limit on memory. The leaner ones are made at prices of memory at the moments
at which plans are fullest (``planner.cost.priced``): at the highest price the plan takes the least memory, whatever it
moves; a moment that is fullest then gets the price, too. Between the two, where nothing can be computed again, the
first do not fit and the leanest does, one more is made at a price between.

Each is also a plan with activations computed again (``planner.planning.recomputation``), copies being divided as what
they copy: of Llama-3 70B and 405B the leanest one takes 0.2% and 0.1% less so than what a search of the graph with
copies finds, which takes twelve and six times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from planner.cost.priced import PricedTables, payable
from planner.cost.residence import Ints, Residence
from planner.cost.tables import CostTables
from planner.errors import TofuError
from planner.features.fit.sized import Sized
from planner.graph.core.model import Graph
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target
from planner.planning.objective import Times
from planner.planning.recomputation.offers import Offers, fitted_by_copies
from planner.planning.recomputation.with_copies import with_copies
from planner.planning.thresholds import Work
from planner.progress import Progress, in_part
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import HIGHEST_PRICE
from planner.search.literature.methods import CLOSED_FORMS
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES
from planner.tdl.bind import BoundOp

_MOST_LEAN: Final = 4
"""Plans at the highest price, at most."""
_LITTLE_LEANER: Final = Fraction(1, 500)
"""Share of what the leanest plan takes: if the next takes less by less than that, it is the last."""
_BETWEEN: Final = Fraction(1, 4)
"""Price of a byte of memory, in moved bytes, of the plan between the fast ones and the lean ones."""
_PICOSECONDS_BETWEEN: Final = Fraction(2)
"""The same in picoseconds: as if the byte came over 500 GB/s."""


@dataclass(frozen=True, slots=True, eq=False)
class Rung:
    """A plan, and what it takes."""

    decided: Decision
    residence: Ints
    """Bytes on all workers together, by moment."""
    rank: float
    """What is to be small: seconds by the tables of time, or cost in bytes."""
    held_bytes: int
    """Bytes on all workers together at the fullest moment, and no fewer than every plan takes."""
    again: frozenset[str]
    """Activations that are computed again in it."""
    is_of_base: bool
    """It is a plan of the very graph that all batches have (``EveryPlan.planned``)."""

    @property
    def is_exact(self) -> bool:
        """Whether its program tells what it takes; else the arrays that are held op by op do."""
        return Work.COMPARISON.is_done_for(self.decided)


class Ladder:
    """Makes plans for one number of workers.

    Attributes:
        tables: of bytes.
    """

    def __init__(self, sized: Sized, target: Target, times: Times | None, progress: Progress) -> None:
        """Prepares the searches.

        Args:
            sized: the model.
            target: what is planned for.
            times: of the machine; None: plans are for the least cost in bytes.
            progress: told what is being done.
        """
        self._sized, self._times = sized, times
        every = sized.every_plan
        self._graph, self._ops, self._residence = every.planned, every.ops, every.residence
        self._least_bytes = every.least(target.workers).total_bytes
        self._is_exact = Work.TRIALS.is_done(len(self._ops))
        self.tables = CostTables()
        self._ask = SearchRequest(
            target.workers,
            target.cuts,
            rules=replace(NO_RULES, names=frozenset(sized.graph.tensors)),
            tables=self.tables,
            effort="quick",
            progress=in_part(progress, f"{target.workers} workers"),
        )

    def fast(self) -> list[Rung]:
        """Plans without a limit on memory: the search's own for the least cost; on a machine for the least time, and
        the closed forms of the literature. Of a large graph composite ops are taken as they are.

        Raises:
            TofuError: there is no plan of the model.
        """
        decided = decide_with_bodies(
            self._sized.graph, self._sized.source.descriptions, self._ask, through_bodies=self._is_exact
        )
        rungs = [self._rung(decided)]
        if self._times is not None:
            for name in CLOSED_FORMS:
                rungs += self._tried(self._graph, self._ops, replace(self._ask, strategy=name, effort="normal"))
            rungs += self._tried(decided.graph, decided.ops, replace(self._ask, tables=self._times.goal.tables))
        return rungs

    def lean(self, count: int = _MOST_LEAN) -> list[Rung]:
        """Plans that take little memory, the leanest last; none where there is no plan.

        Args:
            count: plans that are made at most; of a large graph one is.
        """
        count = count if self._is_exact else 1
        prices: dict[int, Fraction] = {}
        highest = payable(HIGHEST_PRICE, self._residence, self._ask.workers)
        moment, rungs = int(np.argmax(self._sized.every_plan.by_moment)), list[Rung]()
        while moment not in prices and len(prices) < count:
            prices[moment] = highest
            priced = self._priced(self.tables, prices)
            if not priced:
                break
            rungs += priced
            before = rungs[-2].held_bytes if len(rungs) > 1 else None
            if before is not None and rungs[-1].held_bytes > before * (1 - _LITTLE_LEANER):
                break
            moment = int(np.argmax(rungs[-1].residence))
        return sorted(rungs, key=lambda rung: -rung.held_bytes)

    def between(self, fullest: Rung) -> list[Rung]:
        """The plan at a price between, at the moment at which a plan is fullest that does not fit."""
        moments = {int(np.argmax(self._sized.every_plan.by_moment))}
        if fullest.is_of_base:
            moments.add(int(np.argmax(fullest.residence)))
        if self._times is None:
            return self._priced(self.tables, dict.fromkeys(moments, _BETWEEN))
        return self._priced(self._times.goal.tables, dict.fromkeys(moments, _PICOSECONDS_BETWEEN))

    def with_copies(self, rung: Rung, again: frozenset[str], *, makes_program: bool) -> Rung:
        """A plan with activations computed again; its rank is not counted anew.

        Args:
            rung: in which none are.
            again: the activations.
            makes_program: its program is made; else what it moves is not counted anew, either.
        """
        sized, tables = self._sized, self.tables if makes_program else None
        decided = with_copies(rung.decided, sized.graph, again, sized.source.descriptions, tables)
        held = Residence(decided.graph, decided.ops).of(decided)
        least = sized.whatever_is_again.least(self._ask.workers).total_bytes
        return Rung(decided, held, rung.rank, max(int(held.max(initial=0)), least), again, is_of_base=False)

    def offers(self, rung: Rung) -> Offers:
        """The offers of activations to recompute.

        Args:
            rung: a plan of the model.
        """
        sized, times = self._sized, self._times
        goal = least_cost(self.tables) if times is None else times.goal_by_tables
        return Offers(sized.graph, sized.source.descriptions, self.tables, rung.decided, goal)

    def fitting(
        self, rungs: Sequence[Rung], offers: Offers, limits: Sequence[int], *, makes_program: bool
    ) -> tuple[frozenset[str], Trial] | None:
        """The best of some plans, each with as little computed again as makes it fit; None if none fits.

        Args:
            rungs: plans in which nothing is.
            offers: what may be computed again.
            limits: the memory there is, one entry for each worker, in any order.
            makes_program: programs say what fits; else what lies there op by op does.

        Returns:
            The activations that are computed again, and the plan.
        """
        plans = [Trial(rung.decided, limit_bytes=min(limits)) for rung in rungs]
        fitted = fitted_by_copies(offers, plans, limits, self._ask, makes_program=makes_program)
        return None if fitted is None else (offers.sets[fitted[0]], fitted[1])

    def _priced(self, tables: CostTables, prices: dict[int, Fraction]) -> list[Rung]:
        priced = PricedTables(tables, self._residence, prices)
        return self._tried(self._graph, self._ops, replace(self._ask, tables=priced))

    def _tried(self, graph: Graph, ops: tuple[BoundOp, ...], ask: SearchRequest) -> list[Rung]:
        try:
            return [self._rung(decide(graph, ops, ask).with_costs(self.tables))]
        except TofuError:  # the strategy has no plan of this graph
            return []

    def _rung(self, decided: Decision) -> Rung:
        is_of_base = decided.graph is self._graph
        residence = self._residence if is_of_base else Residence(decided.graph, decided.ops)
        rank = float(decided.cost) if self._times is None else self._times.by_tables(decided)
        held = residence.of(decided)
        # Tiles that lie apart from what the workers need are counted once, so that this can be a little too few.
        return Rung(decided, held, rank, max(int(held.max(initial=0)), self._least_bytes), frozenset(), is_of_base)
