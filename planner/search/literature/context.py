"""Context parallelism: the positions of an attention's queries and keys are divided, and nothing else.

Workers have the keys and values of all positions brought to them, or join a maximum, a sum and a weighted sum of each
query; which of them, what moves decides (ring attention, Llama 3's all-gather of keys, Helix' decoding). Everything at
a position is where the position is; weights everybody has.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.algebra.tiling import Placement, Shard
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph, of_types
from planner.graph.core.traits import PRODUCTS
from planner.search.model.dims import Place
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.moves.restrictions import batch, keeping, place_of
from planner.walk import walk

ATTENTIONS = (
    "Attention",
    "Softmax",
    "com.microsoft.GroupQueryAttention",
    "com.microsoft.MultiHeadAttention",
)
"""Composites that are taken through their bodies, so that keys can be divided."""
_BETWEEN = ("Cast", "Div", "Where")
"""Op types between the exponentials of an attention and their product with the values."""


def context_parallel(problem: Problem) -> Restriction:
    """Cuts tensors with positions along these; everything else is replicated.

    Where positions and samples are one dim, as rows of a product are, that dim is cut.

    Raises:
        UnsupportedError: there is no attention with positions that could be divided.
    """
    graph, directions = problem.graph, problem.directions
    places = directions.reachable(place for name in _scores(graph) for place in _positions(graph, name))
    if not places:
        raise UnsupportedError(
            "there is no attention of several positions, so none can be split",
            hint="context parallelism is for transformers, whose scores have dims for queries and for keys",
        )
    placed = {(kind, name) for kind, name, _ in places}
    rows = {place for place in batch(problem.graph, problem.directions) if place[:2] not in placed}

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        if not isinstance(placement, Shard):
            return False
        place = place_of(variable, placement)
        return place in places or place in rows

    return keeping(keep)


def _positions(graph: Graph, scores: str) -> Iterator[Place]:
    """The dims of queries and keys of scores."""
    rank = len(graph.tensors[scores].shape)
    for dim in (rank - 2, rank - 1):
        if graph.tensors[scores].shape[dim] > 1:
            yield ("tensor", scores, dim)


def _scores(graph: Graph) -> Iterator[str]:
    """Tensors [..., queries, keys] whose exponentials, or softmax, a product with values reads."""
    for op in graph.ops_of("Exp", "Softmax"):
        if len(graph.tensors[op.outputs[0]].shape) > 2 and _is_weight(graph, op.outputs[0]):
            yield op.outputs[0]


def _is_weight(graph: Graph, name: str) -> bool:
    """Whether a product reads a tensor as its first operand, at most some ops later."""

    def between(source: str) -> list[str]:
        return [reader.outputs[0] for reader in graph.consumers[source] if of_types(reader, _BETWEEN)]

    products = {product.inputs[0] for product in graph.ops_of(*PRODUCTS)}
    return any(source in products for source in walk([name], between))
