"""Megatron-LM's tensor parallelism for transformers, as a restriction of the search.

Within a group the first product of each half of a block is cut by columns and the second by rows, so that what is
between them (the wide layer of the MLP, the heads of attention) is divided and needs nothing from the others; what is
between blocks, and normalisations, every worker of the group has whole (Shoeybi et al. 2019, section 3). The product
with the vocabulary is cut by columns, too. Across groups the data are divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.algebra.tiling import Placement, Shard
from planner.errors import UnsupportedError
from planner.graph.core.dependence import sources
from planner.graph.core.model import Graph, Role
from planner.graph.core.traits import COPYING, MATRIX_PRODUCTS
from planner.search.model.dims import Directions, Place
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.moves.restrictions import batch, keeping, place_of
from planner.tdl.bind import BoundOp

_SAME_VALUES = COPYING | {"Transpose"}
"""Op types that frameworks put between a weight and its product."""


def tensor_parallel(problem: Problem) -> Restriction:
    """The division of Megatron-LM within a group; everything else is replicated there.

    Raises:
        UnsupportedError: there is no attention whose heads can be followed to the products around it. Where samples
            and heads are one dim, as frameworks make them for a batched product, a piece of the heads is no box of it.
    """
    inner = _inner(problem)

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        return isinstance(placement, Shard) and place_of(variable, placement) in inner

    return keeping(keep)


def _inner(problem: Problem) -> frozenset[Place]:
    """Dims and index variables between the two products of a half of a block."""
    samples = batch(problem.graph, problem.directions)
    weights = list(_weights(problem))
    residual: set[int] = set()
    for dim in head_places(problem.graph, problem.ops, problem.directions):
        if dim not in samples:
            between = problem.directions.reachable([dim])
            sides = [(side in between, opposite) for pair in weights for side, opposite in (pair, pair[::-1])]
            residual.update(problem.directions.group[opposite] for is_inner, opposite in sides if is_inner)
    across = [
        opposite
        for pair in weights
        for side, opposite in (pair, pair[::-1])
        if problem.directions.group[side] in residual and problem.directions.group[opposite] not in residual
    ]
    # Where the exporter has made equal biases one, the heads and the width of the network are one direction.
    if not (inner := problem.directions.reachable(across) - samples):
        raise UnsupportedError(
            "there is no attention whose heads lead from products with weights to another, so none can be split",
            hint="Megatron-LM's way is for transformers, and needs heads as a dim of their own, apart from samples",
        )
    return inner


def _weights(problem: Problem) -> Iterator[tuple[Place, Place]]:
    """The two dims of each weight that activations are multiplied with, as it is or transposed."""
    graph = problem.graph
    for bound in problem.ops:
        if bound.op.op_type in MATRIX_PRODUCTS:
            for name in bound.op.inputs[:2]:
                places: tuple[Place, Place] = (("tensor", name, 0), ("tensor", name, 1))
                is_matrix = len(graph.tensors[name].shape) == 2
                if is_matrix and problem.directions.group.keys() >= set(places) and _is_weight(graph, name):
                    yield places


def _is_weight(graph: Graph, name: str) -> bool:
    return graph.roles[sources(graph, name, _SAME_VALUES)[-1]] in (Role.STATE, Role.CONSTANT)


def head_places(graph: Graph, ops: Iterable[BoundOp], directions: Directions) -> Iterator[Place]:
    """Dims that may be the heads of an attention: those of its scores, but for the queries and the keys."""
    for bound in _attentions(ops):
        name = bound.op.inputs[0]
        rank = len(graph.tensors[name].shape)
        for dim in range(max(0, rank - 2)):
            place: Place = ("tensor", name, dim)
            if place in directions.group:
                yield place


def _attentions(ops: Iterable[BoundOp]) -> Iterator[BoundOp]:
    return (bound for bound in ops if bound.op.op_type in ("Softmax", "Attention"))
