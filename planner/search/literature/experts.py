"""Expert parallelism: each worker has some experts, and tokens go to them and come back; all else is by data.

Experts are a dim of the weights (GShard, section 3.2; Switch Transformers, section 3.2). Where tokens are divided by
their samples before the experts' products and by experts within them, the deliveries between are all-to-alls.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.algebra.tiling import Placement, Shard
from planner.errors import UnsupportedError
from planner.graph.core.dependence import sources
from planner.graph.core.model import Graph, Role, qualified
from planner.graph.rewriting.products import product_of
from planner.search.model.dims import Place
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.moves.restrictions import batch, keeping, place_of

_MIXTURES = ("com.microsoft.MoE", "com.microsoft.QMoE")
_WEIGHTS = 2
"""The slot of their first weights, of which experts are the first dim."""


def expert_parallel(problem: Problem) -> Restriction:
    """Experts' weights, and the ops that read them, are cut along experts; everything else by samples or experts.

    Raises:
        UnsupportedError: no weights have a dim of experts.
    """
    graph, directions = problem.graph, problem.directions
    experts = dict(_experts(graph))
    places = directions.reachable(experts.values())
    if not places:
        raise UnsupportedError(
            "there are no experts to split",
            hint="expert parallelism is for products of stacks of tokens with stacks of weights; tofu's own plan knows "
            "experts of a loop",
        )
    weights = {name for _, name, _ in experts.values()}
    rows = batch(problem.graph, problem.directions)

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        if not isinstance(placement, Shard):
            return False
        place = place_of(variable, placement)
        if variable.op is not None and (
            variable.op.op.name in experts or not weights.isdisjoint(variable.op.op.inputs)
        ):
            return place in places
        return place in places or place in rows

    return keeping(keep)


def _experts(graph: Graph) -> Iterator[tuple[str, Place]]:
    """Ops that read experts' weights, and the dim of these that experts are."""
    for op in graph.ops:
        if qualified(op.domain, op.op_type) in _MIXTURES:
            yield op.name, ("tensor", op.inputs[_WEIGHTS], 0)
        product = product_of(op, graph.tensors)
        if product is None or len(product.operands) != 2:
            continue
        for name, labels, peer_labels in zip(product.operands, product.labels, reversed(product.labels), strict=True):
            for dim, label in enumerate(labels):
                if label in peer_labels and label in product.result and _is_weight(graph, name):
                    yield op.name, ("tensor", name, dim)


def _is_weight(graph: Graph, name: str) -> bool:
    """Whether a tensor is state, in this dtype or in another one."""
    return graph.roles[sources(graph, name)[-1]] is Role.STATE
