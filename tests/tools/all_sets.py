"""Plans within limits on memory, against every set of activations to be computed again and every tiling.

Small training steps are drawn at random, chains and graphs with branches, of at most 12 forward ops; and for each a
limit between what every plan takes at least and what the plan without a limit takes. The plan of ``--recompute auto``
is held against the least cost of all plans: for each set of activations an independent solver (``integer_programme``)
finds the cheapest tilings and strategies whose residence is within the limit at every moment. Programs take more than
that, so that this is a bound of what fits. Where a plan is more than 5% above it, the cheaper plans are enumerated, by
cost, until a program of one fits: that one is the best of all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache, cached_property
from heapq import heappop, heappush
from itertools import chain, combinations
from pathlib import Path

from integer_programme import Programme
from partial_plans import plan_of
from planner import opdefs
from planner.cost.by_op import recomputing
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import Activations, recomputed
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target
from planner.planning.request import ModelSource, PlanRequest
from planner.planning.session import Session
from planner.search.decision import Decision
from planner.search.model.problem import Problem

WORKERS = 2
MOST_FORWARD = 12
"""Ops of the forward pass, the loss among them."""
MOST_SETS = 16
"""Steps with more different sets of activations are drawn again."""
NEAR = 1.05
"""A plan is near the best one where it costs at most so many times as much."""
SHARES = (0.4, 1.0)
"""Of what lies between the least residence of all plans and what the plan without a limit takes: what a limit adds."""
MOST_ENUMERATED = 10
"""Cheaper plans of which programs are made, of one step."""


def drawn(number: int) -> Graph:
    """A training step in its canonical form, with few enough sets of activations."""
    source = random.Random(number)
    while True:
        form = canonical(_step(source)).graph
        activations = Activations(form)
        forward = len(form.ops) - len(activations.backward)
        if activations.held and forward <= MOST_FORWARD and len(sets_of(form)) <= MOST_SETS:
            return form


def _step(source: random.Random) -> Graph:
    """A step that trains products, activations, sums and gates, one after the other or in branches."""
    model = Forward("step")
    x = model.input("x", source.choice((64, 128, 256)), source.choice((16, 32, 64)))
    there, is_chain = [x], source.random() < 0.5
    for number in range(source.randint(1, 4)):
        name = there[-1] if is_chain else source.choice(there[-2:])
        alike = [other for other in there if other != name and model.shape(other) == model.shape(name)]
        kind = source.choice(("product", "product", "Relu", "Tanh", "Sigmoid", "Exp", "Add", "Mul"))
        if kind == "product":
            there.append(model.project(f"p{number}", name, source.choice((16, 32, 64)), bias=source.random() < 0.3))
        elif kind not in ("Add", "Mul"):
            there.append(model.each(f"e{number}", kind, name))
        elif alike:
            there.append(model.each(f"s{number}", kind, name, source.choice(alike)))
    last = model.project("last", there[-1], source.choice((16, 32)))
    return training_step(model, last, loss="mse", optimizer="sgd")


def sets_of(form: Graph) -> tuple[tuple[str, ...], ...]:
    """Every set of activations that can be computed again, each once: of sets that lead to the same copies, one."""
    activations = Activations(form)
    names = tuple(activations.all)
    sets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    return tuple(dict.fromkeys(map(activations.copied, sets)))


@dataclass(frozen=True)
class Judged:
    """What a step's plan within a limit is worth."""

    number: int
    """Of the drawing."""
    limit: int
    """Bytes that each worker has."""
    sets: int
    """Different sets of activations."""
    found: Decision | None
    """What ``--recompute auto`` found; None: no plan."""
    best: int | None
    """The least cost of all plans with any set whose residence is within the limit; None: there is none."""
    lower: int | None
    """The bound that was stated with the plan; None: none was."""
    fitting: int | None
    """Of plans whose programs fit, the least cost, where ``found`` is not near ``best``, and it could be told."""
    enumerated: int
    """Plans of which programs were made to tell it."""

    @property
    def is_met(self) -> bool:
        """Whether a plan is known that fits."""
        return self.found is not None or self.fitting is not None

    @property
    def optimum(self) -> int | None:
        """What the plan is held against: at most what the best plan costs."""
        return self.best if self.fitting is None else self.fitting

    @property
    def is_near(self) -> bool:
        """Whether the plan costs at most 5% more than the best one."""
        return self.found is not None and (self.optimum is None or self.found.cost <= NEAR * self.optimum)

    @property
    def is_best(self) -> bool:
        """Whether no plan costs less."""
        return self.found is not None and (self.optimum is None or self.found.cost <= self.optimum)

    @property
    def is_below(self) -> bool:
        """Whether the plan, or any other that fits, is below the bound that was stated; residence alone tells it."""
        known = [cost for cost in (self.best, self.found and self.found.cost) if cost is not None]
        return self.lower is not None and min(known) < self.lower

    def __str__(self) -> str:
        cost = "no plan found" if self.found is None else f"cost {self.found.cost:,}"
        best = "none within the limit" if self.best is None else f"{self.best:,}"
        facts = [f"step {self.number}, limit {self.limit:,} B, {self.sets} sets: {cost}", f"best by residence {best}"]
        if self.enumerated:
            fitting = "" if self.fitting is None else f", the best that fits {self.fitting:,}"
            facts.append(f"programs of {self.enumerated} plans{fitting}")
        return "; ".join([*facts, f"bound {self.lower}"])


def judged(number: int) -> Judged:
    """Plans a drawn step within a drawn limit, and holds the plan against all others."""
    form = drawn(number)
    every = EverySet(form)
    most = max(_planned(form, None).partitioned.program.peak_bytes)
    least = min(most, -(-every.leanest() // WORKERS))
    limit = least + int(random.Random(-1 - number).uniform(*SHARES) * (most - least))
    try:
        trial = _planned(form, limit)
    except InfeasibleError:
        trial = None
    found = None if trial is None else trial.decided
    best = every.least(limit, None if found is None else found.cost)
    best = best if best is not None or found is None else found.cost
    fitting, enumerated = None, 0
    if best is not None and (found is None or found.cost > NEAR * best):
        fitting, enumerated = every.least_fitting(limit, None if found is None else found.cost)
    lower = None if found is None or found.certified_gap is None else round(found.cost / (1 + found.certified_gap))
    return Judged(number, limit, len(every.sets), found, best, lower, fitting, enumerated)


def _planned(form: Graph, limit: int | None) -> Trial:
    """The plan within a limit.

    Raises:
        InfeasibleError: none was found.
    """
    source = ModelSource(Path("step"), ReadOptions(), opdefs.standard(), None, make=lambda: form)
    limits = None if limit is None else (limit,) * WORKERS
    options = PlanOptions(model=source.model, memory=limit, share="none")
    request = PlanRequest(options, source, Target(WORKERS), limits)
    return Session(request).planned().trial


class EverySet:
    """All plans of a step, with every set of activations computed again.

    Attributes:
        sets: of activations, each once.
    """

    def __init__(self, form: Graph) -> None:
        """Takes a step in its canonical form."""
        self.sets = sets_of(form)
        self._form, self._tables = form, CostTables()

    @cached_property
    def _ordered(self) -> list[tuple[int, tuple[str, ...]]]:
        """The sets, and what every plan's residence is at least with each, the leanest first."""
        found = []
        for again in self.sets:
            graph = recomputed(self._form, again)
            found.append((int(Residence(graph, opdefs.standard().bind_all(graph)).least().max()), again))
        return sorted(found)

    @cache  # noqa: B019  one object is judged, and goes
    def _programme(self, again: tuple[str, ...]) -> tuple[Problem, Programme, Residence]:
        graph = recomputed(self._form, again)
        ops = opdefs.standard().bind_all(graph)
        problem = Problem(graph, ops, WORKERS, with_partial_sums=True, with_nests=True, tables=self._tables)
        programme = Programme(problem, (WORKERS,), first=recomputing(graph, ops, self._tables))
        residence = Residence(graph, ops)
        programme.add_residence(residence)
        return problem, programme, residence

    def _possible(self, limit: int) -> list[tuple[Problem, Programme, Residence]]:
        """With sets that no plan's residence rules out."""
        return [self._programme(again) for least, again in self._ordered if least <= WORKERS * limit]

    def leanest(self) -> int:
        """The least that lies on all workers together in any plan, at its fullest moment."""
        best = None
        for least, again in self._ordered:
            if best is None or least < best:
                found = self._programme(again)[1].leanest()
                best = found if best is None else min(best, found)
        assert best is not None, "there is a plan"
        return best

    def least(self, limit: int, known: int | None) -> int | None:
        """The least cost of plans within a limit by residence; None if none costs less than what is known, or is there.

        Args:
            limit: bytes that each worker has.
            known: the cost of a plan; None: none is known.
        """
        best = None
        for problem, programme, residence in self._possible(limit):
            found = programme.least(below=known if best is None else best, room=WORKERS * limit)
            if found is None:
                continue
            best, tilings = found
            there = residence.of(plan_of(problem, tilings)).max()
            assert there <= WORKERS * limit, f"{there:,} B lie on the workers, each of which has {limit:,}"
        return best

    def least_fitting(self, limit: int, known: int | None) -> tuple[int | None, int]:
        """The least cost of all plans whose programs fit, and of how many plans programs were made.

        Args:
            limit: bytes that each worker has.
            known: the cost of a plan that fits: where no cheaper one does, this is the least.

        Returns:
            None for the cost where too many would have to be made.
        """
        queue: list[tuple[int, int, tuple[object, ...]]] = []

        programmes = self._possible(limit)

        def add(number: int) -> None:
            found = programmes[number][1].least(below=known, room=WORKERS * limit)
            if found is not None:
                heappush(queue, (found[0], number, found[1]))

        for number in range(len(programmes)):
            add(number)
        for count in range(MOST_ENUMERATED):
            if not queue:
                return known, count
            cost, number, tilings = heappop(queue)
            problem, programme, _ = programmes[number]
            plan = plan_of(problem, tilings)
            if any(Trial(plan, is_lean=lean, limit_bytes=limit).fits((limit,) * WORKERS) for lean in (False, True)):
                return cost, count + 1
            programme.rule_out(tilings)
            add(number)
        return None, MOST_ENUMERATED
