"""Dependence: tensors of a graph, and the tensors computed from them. An operand or result that an op leaves out ("")
leads nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from planner.graph.core.model import Graph, Op
from planner.graph.core.traits import COPYING


def live_ops(ops: Sequence[Op], names: Iterable[str], stops: Collection[str] = ()) -> tuple[Op, ...]:
    """The ops from which some tensors are computed, but through others (``stops``).

    Args:
        ops: in execution order, in which the result is as well.
        names: the tensors.
        stops: see above.
    """
    tensors, live = set(filter(None, names)), list[Op]()
    for op in reversed(ops):
        if not tensors.isdisjoint(op.outputs):
            tensors.update(name for name in op.inputs if name and name not in stops)
            live.append(op)
    return tuple(reversed(live))


def leading_to(graph: Graph, names: Iterable[str], stops: Collection[str] = ()) -> frozenset[str]:
    """The tensors from which some tensors are computed, but through others (``stops``), and these."""
    tensors = set(filter(None, names))
    read = {name for op in live_ops(graph.ops, tensors, stops) for name in op.inputs if name}
    return frozenset(tensors | read.difference(stops))


def computed_from(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """The tensors that are computed from some tensors, and these."""
    tensors = set(filter(None, names))
    for op in graph.ops:
        if not tensors.isdisjoint(op.inputs):
            tensors.update(filter(None, op.outputs))
    return frozenset(tensors)


def sources(graph: Graph, name: str, through: Collection[str] = COPYING) -> tuple[str, ...]:
    """A tensor, and in turn those before it from which ops of some operators have made it, by their first operand."""
    names = [name]
    while (op := graph.made_by(names[-1], *through)) is not None:
        names.append(op.inputs[0])
    return tuple(names)
