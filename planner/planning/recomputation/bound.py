"""A lower bound of all plans of a large graph within a limit, with any of the offered activations recomputed."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.free_reads import FreeReads
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.recomputation.offers import Offers
from planner.progress import without_costs
from planner.search.bound.certify import BOUND
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.schedule import schedule_of


def bound_of_all_sets(offers: Offers, room: int, ask: SearchRequest) -> int | None:
    """The bound in bytes of all plans with any set of the chain that fit; None where no bound is made.

    Two parts are added up. What plans cost but for the copies: in a search in which the backward pass is brought what
    may be computed again for nothing, wherever that lies, for a copy may lie where its reader wants it. And the work of
    the copies: a set is ruled out if too much lies on the workers even were nothing of its tensors there, with all sets
    before it; the least work of the others is done in any plan.

    Args:
        offers: what may be computed again.
        room: bytes on all workers together.
        ask: what plans are asked for; with tables of bytes.
    """
    plain, form = offers.plan, offers.form
    if plain.lower is None or not schedule_of(ask.effort).rest or ask.stop.leaves_out(BOUND):
        return None
    offered = frozenset().union(*offers.sets)
    forward = {op.name for op in form.ops} - offers.activations.backward

    def is_free(op: str, tensor: str) -> bool:
        return tensor in offered and offers.inside.get(op, op) not in forward

    ask.progress("a bound of plans with any activations computed again")
    free = replace(ask, tables=FreeReads(offers.tables, is_free), begun=plain, progress=without_costs(ask.progress))
    with ask.stop.may_leave_out(BOUND):
        searched = decide(plain.graph, plain.ops, replace(free, is_needed=False))
        return None if searched.lower is None else searched.lower + _least_work(offers, room)
    return None


def _least_work(offers: Offers, room: int) -> int:
    """What the copies of every set cost at least with which plans may fit."""
    every = EveryPlan(offers.form, offers.descriptions)

    def is_ruled_out(number: int) -> bool:
        """Whether no plan fits with one of the sets up to this one."""
        tensors = frozenset().union(*offers.sets[: number + 1])
        least = every.whatever_is_again(tensors).at_moments(offers.plan.workers)
        return int(least.max(initial=0)) > room

    low, high = 0, len(offers.sets)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_ruled_out(middle) else (low, middle)
    return min(map(offers.work_of, offers.sets[low:]), default=0)
