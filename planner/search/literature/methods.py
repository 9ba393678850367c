"""The strategies of the literature: most are restrictions of tofu's own search, others their papers' algorithms.

All of them count the same cost for the same plan, so that they can stand in one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from planner.algebra.tiling import UNCUT
from planner.cost.tables import Candidates
from planner.search.literature import restrictions
from planner.search.literature.context import ATTENTIONS, context_parallel
from planner.search.literature.experts import expert_parallel
from planner.search.literature.grids import processor_grids
from planner.search.literature.layers import search_layers
from planner.search.literature.levels import search_by_levels
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves.fusion import improve
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.move import Ground
from planner.search.moves.recursion import search_recursively
from planner.search.moves.restrictions import data_parallel, first_dim, model_parallel, partitioned
from planner.search.moves.starts import grouped, hybrids

Search: TypeAlias = Callable[[Ground], tuple[tuple[int, ...], Found]]
"""A search that makes of a problem and cuts the cuts that were made, as many workers in one way or in several, and the
plan.
"""


Forms: TypeAlias = Callable[[Problem, int], list[Restriction]]
"""A function that makes of a problem and a number of cuts the restrictions of a closed form, one for each group size.
"""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to find a plan."""

    name: str
    summary: str
    """The summary in a few words, with the source."""
    search: Search
    with_partial_sums: bool = False
    """Sums of partial results may be joined once (``planner.search.model.partial_sums``): by default they are not."""
    with_nests: bool = False
    """Cuts may nest in another order than their own (``planner.search.model.nests``): by default they do not."""
    forms: Forms | None = None
    """The rules of a closed form, which alone decide the tilings: it takes little time at any size, and equal blocks
    are split alike. None: a search decides.
    """
    looks_at_memory: bool = False
    """Whether it has another plan where memory is too small (``SearchRequest.room_bytes``)."""
    through_bodies: tuple[str, ...] = ()
    """Composite operators, with their domains, that are cut through their bodies: by default they are taken as they
    are."""


def _recursive(make: Callable[[Problem], Restriction], *, improved: bool = False) -> Search:
    def search(ground: Ground) -> tuple[tuple[int, ...], Found]:
        restrict = ground.narrow(make(ground.problem), ground.cuts)
        plan = search_recursively(ground.problem, ground.cuts, restrict, ground.progress, ground.stop)
        if improved:
            plan = improve(ground.problem, ground.cuts, restrict, plan, ground.progress, ground.stop)
        return ground.cuts, plan

    return search


def _closed_form(name: str, summary: str, forms: Forms) -> Method:
    return Method(name, summary, _best_of(forms), True, forms=forms)


def _best_of(make: Forms) -> Search:
    """The best of the recursive plans under several restrictions, which are made for so many cuts."""

    def search(ground: Ground) -> tuple[tuple[int, ...], Found]:
        plans = [_under(ground, ground.cuts, start) for start in make(ground.problem, len(ground.cuts))]
        return ground.cuts, min(plans, key=lambda plan: plan.cost)

    return search


def _under(ground: Ground, cuts: tuple[int, ...], restriction: Restriction) -> Found:
    restrict = ground.narrow(restriction, cuts)
    return search_recursively(ground.problem, cuts, restrict, ground.progress, ground.stop)


def _distcnn(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """Each product and convolution on its best processor grid, tensors where that moves least."""
    restrict = ground.narrow(processor_grids(ground.problem, ground.cuts, ground.room_bytes), ground.cuts)
    plan = search_recursively(ground.problem, ground.cuts, restrict, ground.progress, ground.stop)
    return ground.cuts, improve(ground.problem, ground.cuts, restrict, plan, ground.progress, ground.stop)


def _hybrid(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, model parallelism within, of all group sizes; by data where there are none."""
    return hybrids(problem, cuts) or [data_parallel(problem)]


def _megatron(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, Megatron-LM's tensor parallelism within, of all group sizes from 2."""
    return grouped(data_parallel(problem), tensor_parallel(problem), cuts, range(max(1, cuts)))


def _fsdp_megatron(problem: Problem, cuts: int) -> list[Restriction]:
    """FSDP across groups, Megatron-LM's tensor parallelism within, of all group sizes from 2."""
    across, within = restrictions.fully_sharded(problem), tensor_parallel(problem)
    return grouped(across, within, cuts, range(1, cuts)) or [within]


def _context(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, positions divided within, of all group sizes from 2."""
    within = context_parallel(problem)
    return [within, *grouped(data_parallel(problem), within, cuts, range(1, cuts))]


def _expert(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism across groups, experts divided within, of all group sizes from 2."""
    within = expert_parallel(problem)
    return [within, *grouped(data_parallel(problem), within, cuts, range(1, cuts))]


def _all_at_once(cuts: tuple[int, ...]) -> tuple[int, ...]:
    """One cut of as many ways as these have together."""
    return (prod(cuts),) if cuts else ()


def _equal_chop(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """Every tensor and op is chopped along one dim only, into as many pieces as there are workers."""
    cuts = _all_at_once(ground.cuts)
    return cuts, _under(ground, cuts, partitioned(ground.problem))


def _spartan(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """The largest tensor first, along its best dim; then the ops at it; then the next largest."""
    problem, cuts, progress = ground.problem, _all_at_once(ground.cuts), ground.progress
    restrict = ground.narrow(partitioned(problem), cuts)
    if not cuts:
        return cuts, search_recursively(problem, cuts, restrict, progress, ground.stop)
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
            neighbour = op if variable == tensor else tensor
            along = table if variable == tensor else table.T
            total += along[:, chosen[neighbour]] if neighbour in chosen else along.min(axis=1)
        chosen[variable] = int(total.argmin())

    tensors = [variable for variable in problem.variables if variable.op is None]
    for tensor in sorted(tensors, key=lambda v: (-restrictions.elements_of(problem, v), v.number)):
        choose(tensor.number)
        for number in touching.get(tensor.number, ()):
            op = factors[number].variables[-1]
            if op not in chosen:
                choose(op)
    for search_variable in problem.variables:
        if search_variable.number not in chosen:
            choose(search_variable.number)
    fixed = [options[variable.number][chosen[variable.number]] for variable in problem.variables]

    # With one candidate left to each variable the search only counts: by the tables by which other plans are counted.
    def keep(variable: SearchVariable, candidates: Candidates) -> Candidates:
        return (fixed[variable.number],)

    return cuts, search_recursively(problem, cuts, keep, progress, ground.stop)


def _nothing(problem: Problem) -> Restriction:
    return no_restriction


_ALL = (
    Method("tofu-recursion", "Tofu, section 5.2: cut by cut, nothing replicated", _recursive(partitioned)),
    Method("soybean", "SoyBean, section 4: cut by cut, with replication", _recursive(_nothing)),
    Method(
        "soybean-general",
        "SoyBean, section 4.5: convolutions by samples and channels, other ops by the batch",
        _recursive(restrictions.general_graphs),
    ),
    Method("soybean-levels", "SoyBean, section 4: its dynamic programme over breadth-first levels", search_by_levels),
    Method("layer-wise", "ICML'18, section 5: layers by node and edge elimination, for the least time", search_layers),
    _closed_form("data", "data parallelism", lambda problem, _: [data_parallel(problem)]),
    Method("model", "model parallelism (SoyBean, section 4.1)", _recursive(model_parallel)),
    Method(
        "mixed",
        "one weird trick: convolutions by data, dense layers by model",
        _recursive(restrictions.one_weird_trick),
    ),
    Method("hybrid", "data across groups, model within, the best group size", _best_of(_hybrid), True),
    _closed_form("megatron", "Megatron-LM (tensor parallelism), data parallelism across groups", _megatron),
    _closed_form(
        "fsdp",
        "FSDP, ZeRO-3 (data parallelism with sharded weights)",
        lambda problem, _: [restrictions.fully_sharded(problem)],
    ),
    _closed_form("fsdp-megatron", "FSDP across groups, Megatron-LM within groups", _fsdp_megatron),
    Method(
        "context",
        "context parallelism: positions of queries or keys split in a group, data parallelism across",
        _best_of(_context),
        True,
        through_bodies=ATTENTIONS,
    ),
    _closed_form("expert", "expert parallelism (GShard), data parallelism across groups", _expert),
    Method(
        "distcnn",
        "SPAA'21, section 2: products and convolutions on processor grids",
        _distcnn,
        with_nests=True,
        looks_at_memory=True,
    ),
    Method("allrow-greedy", "every tensor along its first dim (Tofu, section 7.3)", _recursive(first_dim)),
    Method("spartan", "the largest tensor first (Tofu, section 7.3)", _spartan),
    Method("equalchop", "every tensor along one dim only (Tofu, section 7.3)", _equal_chop),
    Method(
        "icml18",
        "without output reduction (Tofu, section 7.3)",
        _recursive(restrictions.no_output_reduction, improved=True),
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
"""The methods by name."""
CLOSED_FORMS = tuple(method.name for method in _ALL if method.forms is not None)
"""Names of the strategies whose rules alone decide the tilings."""
SHARDED_UPDATES = "ZeRO-1"
SCHEMES: Mapping[str, Forms] = MappingProxyType(
    {method.summary: method.forms for method in _ALL if method.forms is not None}
    | {
        f"{SHARDED_UPDATES} (data parallelism with sharded updates)": lambda problem, _: [
            restrictions.sharded_updates(problem)
        ],
        f"{SHARDED_UPDATES} across groups, Megatron-LM within groups": lambda problem, cuts: grouped(
            restrictions.sharded_updates(problem), tensor_parallel(problem), cuts, range(1, cuts)
        ),
    }
)
"""Closed forms in words, and two of ZeRO-1, which plans are compared with and no strategy searches for."""
