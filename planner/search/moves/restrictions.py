"""Restrictions that starts of tofu's own search and strategies of the literature put on the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from planner.algebra.tiling import Partial, Placement, Replicate, Shard, Tiling
from planner.cost.tables import Candidates
from planner.errors import ModelError
from planner.graph.core.model import Graph, Role
from planner.search.model.dims import Directions, Place
from planner.search.model.problem import Problem, Restriction, SearchVariable

Keep: TypeAlias = Callable[[SearchVariable, Placement], bool]
"""Whether a variable may have a placement at a cut."""


def keeping(keep: Keep) -> Restriction:
    """Candidates whose last placement is kept; replication where none is, or sums joined later where they are offered.

    An op may be repeated so whether it is offered or not. A tensor may be replicated only where that is offered: data
    that arrive in disjoint tiles (``Problem.partitioned_inputs``) keep all their candidates instead.
    """

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        matching = tuple(candidate for candidate in candidates if keep(variable, candidate.placements[-1]))
        replicated = _replicated(candidates)
        if matching or not (variable.op is not None or replicated in candidates):
            return matching or candidates
        return (replicated, *(candidate for candidate in candidates if isinstance(candidate.placements[-1], Partial)))

    return restrict


def _replicated(candidates: Candidates) -> Tiling:
    """The tiling that replicates at the last cut, whether it was offered or not."""
    prefix, ways = candidates[0].placements[:-1], candidates[0].ways
    return Tiling((*prefix, Replicate()), ways)


def preferring(restriction: Restriction) -> Restriction:
    """The restriction where it leaves candidates that were offered; all candidates where it does not.

    Partial sums alone are not left: whether a tensor can be partial is not for its own variable to say.
    """

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        offered = tuple(candidate for candidate in restriction(variable, candidates) if candidate in candidates)
        return offered if any(not isinstance(tiling.placements[-1], Partial) for tiling in offered) else candidates

    return restrict


def by_cut(restrictions: tuple[Restriction, ...]) -> Restriction:
    """A restriction of its own for each cut, outermost first."""

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        return restrictions[len(candidates[0].ways) - 1](variable, candidates)

    return restrict


def place_of(variable: SearchVariable, placement: Shard) -> Place:
    """The dim or index variable that a placement cuts."""
    if variable.op is None:
        return ("tensor", variable.tensors[0], placement.dim)
    return ("op", variable.op.op.name, placement.dim)


def is_state(problem: Problem, variable: SearchVariable) -> bool:
    """True for weights, their histories and other state."""
    return bool(variable.tensors) and problem.graph.roles[variable.tensors[0]] is Role.STATE


def data_parallel(problem: Problem) -> Restriction:
    """Data parallelism: what has a batch dim is cut along it, everything else is replicated.

    The batch is followed through the ops' index maps. Weight gradients are partial sums that an all-reduce joins.

    Raises:
        ModelError: no data input has a batch dim.
    """
    places = batch(problem.graph, problem.directions)
    return keeping(lambda variable, placement: isinstance(placement, Shard) and place_of(variable, placement) in places)


def batch(graph: Graph, directions: Directions) -> frozenset[Place]:
    """Dim 0 of the first data input that an op reads, and all that goes with it; labels are found from there.

    It is dim 1 where that rather may be the samples, as in [sequence, batch, width]: samples meet neither each other,
    as positions do in attention, nor weights, as features do; they go through most of the network, and stay as many. A
    first dim of one element is a batch of one sample.

    Raises:
        ModelError: no data input has a dim.
    """
    reachable = directions.reachable
    read = {name for op in graph.ops for name in op.inputs}
    for name in graph.inputs:
        if name in read and graph.roles[name] is Role.DATA and (shape := graph.tensors[name].shape):
            dims = range(min(len(shape), 2 if shape[0] > 1 else 1))
            first, *second_dims = (reachable([("tensor", name, dim)]) for dim in dims)
            for second in second_dims:
                is_rather = _staying(graph, second, shape[1]) > _staying(graph, first, shape[0])
                if is_rather and 2 * len(second) >= len(first):
                    return second
            return first
    raise ModelError(
        "no data input has a dim, so there is no batch to cut", hint="data parallelism cuts samples of the data"
    )


def _staying(graph: Graph, places: frozenset[Place], size: int) -> int:
    """The number of tensors in which samples keep their count; 0 where they meet each other, or state."""
    dims = {name: graph.tensors[name].shape[dim] for kind, name, dim in places if kind == "tensor"}
    is_met = len(dims) < sum(kind == "tensor" for kind, *_ in places)
    return 0 if is_met or any(graph.roles[name] is Role.STATE for name in dims) else [*dims.values()].count(size)


def model_parallel(problem: Problem) -> Restriction:
    """Model parallelism (SoyBean, section 4.1): each weight is cut along a dim of its own, and no op along the batch.

    Activations may be cut along other dims than the batch, or be replicated.
    """
    places = batch(problem.graph, problem.directions)

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        if isinstance(placement, Shard):
            return place_of(variable, placement) not in places
        return not is_state(problem, variable)

    return keeping(keep)


def first_dim(problem: Problem) -> Restriction:
    """AllRow-Greedy (Tofu, section 7.3): every tensor along its first dim, every op by its best strategy then."""
    return keeping(
        lambda variable, placement: variable.op is not None or (isinstance(placement, Shard) and placement.dim == 0)
    )


def partitioned(problem: Problem) -> Restriction:
    """Tofu (section 5): every tensor is cut at every step; none is replicated where it can be cut."""
    return keeping(lambda variable, placement: variable.op is not None or isinstance(placement, Shard))
