"""Strategies of the literature, as restrictions of the same search, so that their bytes are comparable."""

from __future__ import annotations

from planner.algebra.tiling import Replicate, Shard
from planner.cost.tables import Candidates
from planner.errors import ModelError
from planner.graph.model import Graph, Role
from planner.search.dims import Place, reachable
from planner.search.problem import Problem, Restriction, SearchVariable


def data_parallel(problem: Problem) -> Restriction:
    """Data parallelism: what has a batch dim is cut along it, everything else is replicated.

    The batch is dim 0 of the first data input; it is followed through the ops' index maps. Weight gradients are
    partial sums that an all-reduce joins.

    Raises:
        ModelError: no data input has a batch dim.
    """
    places = reachable(problem.directions, batch_places(problem.graph))

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        replicated = [c for c in candidates if isinstance(c.placements[-1], Replicate)]
        bound = variable.op
        along = []
        for candidate in candidates:
            placement = candidate.placements[-1]
            if isinstance(placement, Shard):
                place: Place = (
                    ("tensor", variable.tensors[0], placement.dim)
                    if bound is None
                    else ("op", bound.op.name, placement.dim)
                )
                if place in places:
                    along.append(candidate)
        if along:
            return tuple(along)
        if replicated:
            return tuple(replicated)
        assert candidates, "a variable has at least one candidate"
        return (candidates[0].__class__((*candidates[0].placements[:-1], Replicate()), candidates[0].ways),)

    return restrict


def batch_places(graph: Graph) -> tuple[Place, ...]:
    """Dim 0 of the first data input that has one; labels and the like are found from there.

    Raises:
        ModelError: there is none.
    """
    for name in graph.inputs:
        if graph.roles[name] is Role.DATA and graph.tensors[name].shape:
            return (("tensor", name, 0),)
    raise ModelError(
        "no data input has a dim, so there is no batch to cut", hint="data parallelism cuts dim 0 of the data"
    )
