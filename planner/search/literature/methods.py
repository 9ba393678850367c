"""How a plan is found: tofu's own way, and the strategies of the literature as restrictions of the same search.

All of them count the same cost for the same plan, so that they can stand in one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from planner.algebra.tiling import UNCUT
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError, ModelError
from planner.search.bound.certify import certify
from planner.search.effort import EFFORTS
from planner.search.literature.layers import search_layers
from planner.search.literature.levels import search_by_levels
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves import restrictions as baselines
from planner.search.moves.fusion import improve, improve_once
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.recursion import Found, search_recursively
from planner.search.moves.union import crossed

MANY_OPS = 300
"""A graph of more ops than this is bounded after it has been searched from all starts, or from one."""

_IMPROVED = 3
"""Plans from other starts that are improved with little effort, before all are crossed."""

_OUTERMOST_LEFT_OF = 3
"""With little effort the outermost of so many cuts is left as recursion has found it, in networks without attention.

That takes a tenth of the time off, for 0.4% more bytes in the mean of 35 networks and 2% at most (docs/decisions.md).
Of four cuts, or in a transformer, to leave it took up to 6% more.
"""

Progress: TypeAlias = Callable[[str], None]
Narrow: TypeAlias = Callable[[Restriction, tuple[int, ...]], Restriction]
"""Puts the user's pins above a method's restriction, for these cuts."""
Search: TypeAlias = Callable[[Problem, tuple[int, ...], Narrow, Progress], tuple[tuple[int, ...], Found]]
"""From the problem and the cuts to make to those that were made, as many workers in one way or in several, and the
plan that was found."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to find a plan."""

    name: str
    what: str
    """In a few words, with the source."""
    search: Search
    with_partial_sums: bool = False
    """Sums of partial results may be joined once (``planner.search.model.partial_sums``): by default they are not."""


def _recursive(make: Callable[[Problem], Restriction], *, improved: bool = False) -> Search:
    def search(
        problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress
    ) -> tuple[tuple[int, ...], Found]:
        restrict = narrow(make(problem), cuts)
        found = search_recursively(problem, cuts, restrict, progress)
        return cuts, improve(problem, cuts, restrict, found, progress) if improved else found

    return search


def _joint(
    problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress
) -> tuple[tuple[int, ...], Found]:
    """Recursive plans, improved until they are stable, crossed, and bounded by all cuts together.

    Improvement is local, so where it starts matters: on a transformer the best plan grows out of a hybrid one, on
    convolutions with many channels out of a recursive one. What they are made of is put together again. A small graph
    is bounded first: where that proves its plan best, no other start is needed. A large graph for which a plan of
    nearly the same graph is to be beaten has that as its only other start. With little effort a large graph is searched
    ``_briefly``, and of a small one's other plans only the best few are improved before all are crossed.
    """
    is_small = len(problem.ops) <= MANY_OPS
    is_quick = problem.effort == "quick"
    if is_quick and not is_small:
        return cuts, _briefly(problem, cuts, narrow, progress)
    free = narrow(no_restriction, cuts)

    def recursive(start: Restriction) -> Found:
        return search_recursively(problem, cuts, narrow(start, cuts), progress)

    def improved(start: Restriction) -> Found:
        return improve(problem, cuts, free, recursive(start), progress)

    def certified(found: Found, lower: int | None = None) -> Found:
        """With a bound."""
        bounded = certify(problem, cuts, free, found, EFFORTS[problem.effort], progress)
        known = max((bound for bound in (lower, bounded.lower) if bound is not None), default=None)
        return replace(bounded, lower=known)

    first = improved(no_restriction)
    if len(cuts) < 2 and (is_quick or not problem.decided_apart):
        return cuts, replace(first, lower=_bound_of_one_cut(problem, first))
    near = None if is_small else problem.near
    found = certified(first) if is_small else first
    if found.lower == found.cost:
        return cuts, found
    starts = [near.keep] if near is not None else _starts(problem, len(cuts)) if len(cuts) > 1 else []
    others = []
    for start in starts:
        with contextlib.suppress(InfeasibleError):  # it has no plan that keeps to the rules
            others.append(recursive(start) if is_quick else improved(start))
    if is_quick:
        others.sort(key=lambda plan: plan.cost)
        few = [improve(problem, cuts, free, plan, progress) for plan in others[:_IMPROVED]]
        others = [*few, *others[_IMPROVED:]]
    best = improve(problem, cuts, free, crossed(problem, [found, *others]), progress)
    if near is not None and best.cost > near.most_cost:
        return cuts, best
    if found.lower is not None:
        return cuts, replace(best, lower=found.lower)
    return cuts, certified(best, _bound_of_one_cut(problem, first) if len(cuts) == 1 else None)


def _briefly(problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress) -> Found:
    """A recursive plan, improved once in most ways; on a transformer crossed with a second one.

    That grows out of Megatron-LM's plan, which is near better ones than the recursive plan is, and is improved in all
    ways. Of the recursive plan the last cut is left, which was solved with all others as they are, and of three cuts
    the first.
    """
    free = narrow(no_restriction, cuts)

    def grown(found: Found, left: tuple[int, ...]) -> Found:
        return improve_once(problem, cuts, free, found, progress, left=left)

    first = search_recursively(problem, cuts, free, progress)
    if len(cuts) < 2:
        return replace(first, lower=_bound_of_one_cut(problem, first))
    start = _transformer_start(problem, len(cuts))
    last = len(cuts)
    if start is None:
        return grown(first, (1, last) if last == _OUTERMOST_LEFT_OF else (last,))
    plans = [grown(first, (last,))]
    with contextlib.suppress(InfeasibleError):  # it has no plan that keeps to the rules
        found = search_recursively(problem, cuts, narrow(start, cuts), progress)
        plans.append(grown(found, ()))
    return crossed(problem, plans)


def _bound_of_one_cut(problem: Problem, found: Found) -> int | None:
    """What is solved exactly costs the least of all that is offered; None if it was not so solved."""
    return None if problem.decided_apart else found.cost


def _starts(problem: Problem, cuts: int) -> list[Restriction]:
    """Restrictions for recursive plans to improve: none of them need be good itself."""
    starts = [baselines.partitioned(problem), baselines.first_dim(problem)]
    with contextlib.suppress(ModelError):  # a model without a batch has no such plans
        hybrids = [*_hybrids(problem, cuts), baselines.data_parallel(problem)]
        starts += [*hybrids, *map(baselines.preferring, hybrids)]
    return starts


def _transformer_start(problem: Problem, cuts: int) -> Restriction | None:
    """Data parallelism at the outermost cut, Megatron-LM's way within; None where it divides nothing."""
    with contextlib.suppress(ModelError):  # no attention with heads of their own, or no batch
        within = tensor_parallel(problem)
        return baselines.by_cut((baselines.data_parallel(problem), *[within] * (cuts - 1)))
    return None


def _hybrids(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism at the outer cuts and model parallelism at the inner ones, for all group sizes."""
    return _grouped(baselines.data_parallel(problem), baselines.model_parallel(problem), cuts, range(1, cuts))


def _grouped(across: Restriction, within: Restriction, cuts: int, outer: Iterable[int]) -> list[Restriction]:
    """One restriction at so many outer cuts, across groups, and another at the inner ones, within a group."""
    return [baselines.by_cut((*[across] * count, *[within] * (cuts - count))) for count in outer]


def _best_of(make: Callable[[Problem, int], list[Restriction]]) -> Search:
    """Of the recursive plans under several restrictions, which are made for so many cuts, the best."""

    def search(
        problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress
    ) -> tuple[tuple[int, ...], Found]:
        restrictions = make(problem, len(cuts))
        plans = (search_recursively(problem, cuts, narrow(restriction, cuts), progress) for restriction in restrictions)
        return cuts, min(plans, key=lambda found: found.cost)

    return search


def _hybrid(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, model parallelism within, of all group sizes; by data where there are none."""
    return _hybrids(problem, cuts) or [baselines.data_parallel(problem)]


def _megatron(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, Megatron-LM's tensor parallelism within, of all group sizes from 2."""
    return _grouped(baselines.data_parallel(problem), tensor_parallel(problem), cuts, range(max(1, cuts)))


def _all_at_once(cuts: tuple[int, ...]) -> tuple[int, ...]:
    """One cut of as many ways as these have together."""
    return (prod(cuts),) if cuts else ()


def _equal_chop(
    problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress
) -> tuple[tuple[int, ...], Found]:
    """Every tensor and op is chopped along one dim only, into as many pieces as there are workers."""
    cuts = _all_at_once(cuts)
    return cuts, search_recursively(problem, cuts, narrow(baselines.partitioned(problem), cuts), progress)


def _spartan(
    problem: Problem, cuts: tuple[int, ...], narrow: Narrow, progress: Progress
) -> tuple[tuple[int, ...], Found]:
    """The largest tensor first, along its best dim; then the ops at it; then the next largest."""
    cuts = _all_at_once(cuts)
    restrict = narrow(baselines.partitioned(problem), cuts)
    if not cuts:
        return cuts, search_recursively(problem, cuts, restrict, progress)
    start = UNCUT
    options = [restrict(variable, problem.extensions(variable, start, cuts[0])) for variable in problem.variables]
    factors = problem.factors(options)
    touching: dict[int, list[int]] = {}
    for number, factor in enumerate(factors):
        for variable in factor.variables:
            touching.setdefault(variable, []).append(number)
    chosen: dict[int, int] = {}

    def choose(variable: int) -> None:
        total = np.zeros(len(options[variable]), dtype=np.int64)
        for number in touching.get(variable, ()):
            table = factors[number].table
            if table.ndim == 1:
                total += table
                continue
            tensor, op = factors[number].variables
            other = op if variable == tensor else tensor
            along = table if variable == tensor else table.T
            total += along[:, chosen[other]] if other in chosen else along.min(axis=1)
        chosen[variable] = int(total.argmin())

    tensors = [variable for variable in problem.variables if variable.op is None]
    for tensor in sorted(tensors, key=lambda v: (-baselines.elements_of(problem, v), v.number)):
        choose(tensor.number)
        for number in touching.get(tensor.number, ()):
            op = factors[number].variables[-1]
            if op not in chosen:
                choose(op)
    for left in problem.variables:
        if left.number not in chosen:
            choose(left.number)
    fixed = [options[variable.number][chosen[variable.number]] for variable in problem.variables]

    def keep(variable: SearchVariable, candidates: Candidates) -> Candidates:
        return (fixed[variable.number],)

    return cuts, search_recursively(problem, cuts, keep, progress)


def _nothing(problem: Problem) -> Restriction:
    return no_restriction


_ALL = (
    Method("tofu", "the best of several plans, improved over all cuts together (this program's own)", _joint, True),
    Method("tofu-recursion", "Tofu, section 5.2: cut by cut, nothing replicated", _recursive(baselines.partitioned)),
    Method("soybean", "SoyBean, section 4: cut by cut, with replication", _recursive(_nothing)),
    Method("soybean-levels", "SoyBean, section 4: its dynamic programme over breadth-first levels", search_by_levels),
    Method("layer-wise", "ICML'18, section 5: layers by node and edge elimination, for the least time", search_layers),
    Method("data", "data parallelism", _recursive(baselines.data_parallel), True),
    Method("model", "model parallelism (SoyBean, section 4.1)", _recursive(baselines.model_parallel)),
    Method(
        "mixed", "one weird trick: convolutions by data, dense layers by model", _recursive(baselines.one_weird_trick)
    ),
    Method("hybrid", "data across groups, model within, the best group size", _best_of(_hybrid), True),
    Method("megatron", "Megatron-LM: heads and wide layers divided in a group, data across", _best_of(_megatron), True),
    Method("fsdp", "ZeRO-3 or FSDP: compute by data, state cut", _recursive(baselines.fully_sharded), True),
    Method("allrow-greedy", "every tensor along its first dim (Tofu, section 7.3)", _recursive(baselines.first_dim)),
    Method("spartan", "the largest tensor first (Tofu, section 7.3)", _spartan),
    Method("equalchop", "every tensor along one dim only (Tofu, section 7.3)", _equal_chop),
    Method(
        "icml18",
        "without output reduction (Tofu, section 7.3)",
        _recursive(baselines.no_output_reduction, improved=True),
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
"""By name, tofu's own first."""
