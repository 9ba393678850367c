"""Offers of activations to recompute if memory asks for it, and the smallest of them with which a plan fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from planner.cost.by_op import op_cost
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, UsageError
from planner.graph.core.model import Graph
from planner.graph.decompositions import expand
from planner.graph.rewriting.recomputation import Activations, recomputable, recomputed
from planner.planning.goal import Goal
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.limit.trial import MOST_TIGHTENED, Trial, fullest
from planner.planning.recomputation.chain import chain_of_sets
from planner.planning.recomputation.with_copies import with_copies
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.descriptions import Descriptions
from planner.units import format_bytes

_MOST_OPS_TRIED = 300
"""Ops of all plans that are searched for, each with another set, about. Doubled, up to twice the time."""
_ALL_TRIED = 16
"""Of no more sets all are tried that can fit, however many ops that are."""


@dataclass(frozen=True)
class Offers:
    """Sets of activations that may be computed again, and how a plan takes one."""

    form: Graph
    """The model in its canonical form."""
    descriptions: Descriptions
    """Of its operators."""
    tables: CostTables
    """Of bytes."""
    plan: Decision
    """A plan of the model: what ops move in it tells what it costs to do them again."""
    goal: Goal
    """What a plan is to have little of."""

    @cached_property
    def sets(self) -> tuple[frozenset[str], ...]:
        """The chain (``chain_of_sets``); of a model without a backward pass the empty set alone."""
        if not has_backward_pass(self.form):
            return (frozenset(),)
        plan, tables = self.plan, self.goal.tables
        work = self._computing(tables)
        for bound in plan.ops:
            name = self.inside.get(bound.op.name, bound.op.name)
            if name in work:
                work[name] += op_cost(plan.graph, bound, plan.strategies, plan.tilings, tables)
        return chain_of_sets(self.form, work)

    @cached_property
    def activations(self) -> Activations:
        """The activations of the model."""
        return Activations(self.form)

    @cached_property
    def inside(self) -> dict[str, str]:
        """The op that is planned through its body, by op of that body."""
        plan = self.plan
        through = frozenset(op.name for op in self.form.ops if op.name not in plan.strategies)
        bodies = expand(self.form, through, workers=plan.workers).bodies
        return {op.name: body.op.name for body in bodies for op in body.ops}

    def _computing(self, tables: CostTables) -> dict[str, int]:
        """By op, what it costs one device to compute it."""
        work = dict.fromkeys((op.name for op in self.form.ops), 0)
        for bound in self.plan.ops:
            name = self.inside.get(bound.op.name, bound.op.name)
            if name in work:
                work[name] += tables.computing(bound)
        return work

    @cached_property
    def _work(self) -> dict[str, int]:
        return self._computing(self.tables)

    def work_of(self, again: Collection[str]) -> int:
        """The least price, in bytes, to compute a set of activations again: what does so for one device.

        Args:
            again: a set of the chain.
        """
        makers = {self.activations.all[name].name for name in self.activations.copied(again)}
        return sum(self._work[name] for name in makers)

    def taken_by(self, plain: Decision, number: int) -> Decision:
        """A plan of the model with a set of the chain computed again, copies divided as what they copy."""
        return with_copies(plain, self.form, self.sets[number], self.descriptions, self.tables)

    def least(self, number: int) -> int:
        """Bytes on all workers together that every plan takes at least that computes a set of the chain again."""
        graph = recomputed(self.form, self.sets[number])
        least = EveryPlan(graph, self.descriptions).least(self.plan.workers)
        return least.total_bytes

    def first_with_room(self, plain: Decision, room: int, begin: int) -> int | None:
        """The first set of the chain from one on with which no more than so much lies on all workers; None: no set.

        As if with every set of the chain no more lay there than with the one before. In a network of equal blocks each
        saves as much: so what is tried next is where the room would be used up if all between did, and by turns the
        middle.
        """

        def lacking(number: int) -> int:
            return fullest(with_copies(plain, self.form, self.sets[number], self.descriptions)) - room

        low, high = begin, len(self.sets) - 1
        above = lacking(low)
        if above <= 0 or low == high:
            return low if above <= 0 else None
        below = lacking(high)
        if below > 0:
            return None
        is_even = True
        while high - low > 1:
            share = Fraction(above, above - below) if is_even else Fraction(1, 2)
            number = min(max(low + round(share * (high - low)), low + 1), high - 1)
            lack = lacking(number)
            low, above, high, below = (number, lack, high, below) if lack > 0 else (low, above, number, lack)
            is_even = not is_even
        return high


def fitted_by_copies(
    offers: Offers,
    plans: Sequence[Trial],
    limits: Sequence[int],
    ask: SearchRequest,
    lower: int | None = None,
    *,
    makes_program: bool,
) -> tuple[int, Trial] | None:
    """The best of some plans of a large graph, each with as little computed again as makes it fit; None if none fits.

    What lies there op by op tells of each plan how much that is; the program of the best one has the last word, and
    where it takes more, all plans are held to as much less.

    Args:
        offers: what may be computed again.
        plans: of the model without copies and without shared deliveries.
        limits: the memory there is, one entry for each worker, in any order.
        ask: what plans were asked for.
        lower: what no plan costs less than in bytes, whichever set it computes again; None: no bound is known.
        makes_program: else what lies there op by op has the last word.

    Returns:
        Which set of the chain, and the plan.
    """
    goal, room = offers.goal, sum(limits)
    begin = dict.fromkeys(range(len(plans)), 0)
    for _ in range(MOST_TIGHTENED + 1):
        best: tuple[int, Trial] | None = None
        for place in sorted(begin, key=lambda index: goal.of(plans[index])):
            ask.progress(
                f"planning within the limit on memory: what is computed again, plan {place + 1} of {len(plans)}"
            )
            plain = plans[place].decided
            # With copies a plan costs no less than without.
            if best is not None and goal.of(plans[place]) >= goal.of(best[1]):
                continue
            number = offers.first_with_room(plain, room, begin[place])
            if number is None:
                continue
            begin[place] = number
            copied = offers.taken_by(plain, number).with_bound(lower)
            trial = Trial(copied, limit_bytes=min(limits))
            if best is None or goal.of(trial) < goal.of(best[1]):
                best = (number, trial)
        if best is None or not makes_program or best[1].lacking_by_program(limits) <= 0:
            return best
        lean = replace(best[1], is_lean=True)
        lacking = lean.lacking_by_program(limits)
        if lacking <= 0:
            return best[0], lean
        ask.progress(f"planning within the limit on memory: the program takes {format_bytes(lacking)} too much")
        room -= lacking * len(limits)
    return None


def best_of_sets(
    offers: Offers,
    planned: Callable[[int, int | None], tuple[int | None, Trial | None]],
    incumbent: tuple[int, Trial] | None,
    limits: Sequence[int],
    ask: SearchRequest,
) -> tuple[int, Trial]:
    """The best of the plans that are found with each of several sets of the chain; which set, and the plan.

    Its gap is to the least of the bounds of all plans with any set of the chain, where each has one.

    Args:
        offers: what may be computed again.
        planned: of the number of a set, and what a plan is to be better than: the bound of all plans with it, or None;
            and the best one that fits, or None if it is no better.
        incumbent: a plan that fits, and which set it computes again.
        limits: the memory there is, one entry for each worker, in any order.
        ask: what plans are asked for.

    Raises:
        InfeasibleError: no plan was found that fits.
    """
    goal, room = offers.goal, sum(limits)
    possible = [number for number in range(len(offers.sets)) if offers.least(number) <= room]
    tried = _spread(
        [
            number
            for number in possible
            if number and (incumbent is None or number <= incumbent[0] or len(offers.sets) <= _ALL_TRIED)
        ],
        max(1, _MOST_OPS_TRIED // len(offers.plan.ops)) if len(offers.sets) > _ALL_TRIED else _ALL_TRIED,
    )
    tried += possible[:1] if 0 in possible else []
    tried = tried or [len(offers.sets) - 1]
    best = incumbent
    refused: InfeasibleError | None = None
    lower: list[int | None] = []
    for at, number in enumerate(tried):
        if best is not None and ask.stop.leaves_out("more sets of activations to be computed again"):
            break
        ask.progress(f"planning within the limit on memory: what is computed again, set {at + 1} of {len(tried)}")
        try:
            bound, trial = planned(number, None if best is None else goal.of(best[1]))
        except InfeasibleError as error:
            refused = error
            continue
        lower.append(bound)
        if trial is not None and (best is None or goal.of(trial) < goal.of(best[1])):
            best = (number, trial)
    if best is None:
        assert refused is not None, "a limit that no plan can keep to is refused before"
        raise refused
    number, trial = best
    bounds = [bound for bound in lower if bound is not None]
    if goal.tables is not offers.tables or len(bounds) < len(possible):
        return best
    # No plan with one of these sets costs less than the least of their bounds; the others can keep to no limit.
    return number, replace(trial, decided=trial.decided.with_bound(min(bounds)))


def _spread(numbers: Sequence[int], count: int) -> list[int]:
    """So many of some numbers at most, evenly and the last one first."""
    if len(numbers) <= count:
        return list(reversed(numbers))
    return [numbers[(at + 1) * len(numbers) // count - 1] for at in reversed(range(count))]


def has_backward_pass(form: Graph) -> bool:
    """Whether a model has activations that can be computed again."""
    try:
        return bool(recomputable(form))
    except UsageError:
        return False
