"""Dependence: tensors of a graph, and the tensors computed from them. An operand or result that an op leaves out ("")
leads nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from planner.graph.core.model import Graph


def leading_to(graph: Graph, names: Iterable[str], stops: Collection[str] = ()) -> frozenset[str]:
    """The tensors from which some tensors are computed, but through others (``stops``), and these."""
    tensors = set(names)
    for op in reversed(graph.ops):
        if not tensors.isdisjoint(op.outputs):
            tensors.update(name for name in op.inputs if name and name not in stops)
    return frozenset(tensors)


def computed_from(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """The tensors that are computed from some tensors, and these."""
    tensors = set(names)
    for op in graph.ops:
        if not tensors.isdisjoint(op.inputs):
            tensors.update(filter(None, op.outputs))
    return frozenset(tensors)
