"""A plan of a model, taken for the model with activations computed again: copies are divided as what they copy."""

from __future__ import annotations

from collections.abc import Collection

from planner.cost.tables import CostTables
from planner.graph.core.model import Graph
from planner.graph.decompositions import expand
from planner.graph.decompositions.expand import without_copies
from planner.graph.rewriting.recomputation import originals, recomputed
from planner.search.decision import Decision
from planner.tdl.descriptions import Descriptions


def with_copies(
    decided: Decision, form: Graph, again: Collection[str], descriptions: Descriptions, tables: CostTables | None = None
) -> Decision:
    """The plan in which the backward pass reads some activations from copies, each divided as its original.

    Args:
        decided: a plan without shared deliveries of the model without copies.
        form: that model in its canonical form.
        again: the activations that are computed again.
        descriptions: of the operators.
        tables: to count the plan's cost with; None: it is still that of the plan without copies.
    """
    if not again:
        return decided
    graph = recomputed(form, again)
    of = originals(form, graph)
    # A composite is divided through its body where its original is.
    through = frozenset(op.name for op in graph.ops if of.get(op.name, op.name) not in decided.strategies)
    expanded = expand(graph, through, workers=decided.workers)
    bodies = {body.op.name: body for body in expanded.bodies}
    for name, body in bodies.items():
        if name in of:
            for copy, op in zip(body.ops, bodies[of[name]].ops, strict=True):
                of[copy.name] = op.name
                of.update((twin, base) for twin, base in zip(copy.outputs, op.outputs, strict=True) if twin not in of)
    planned = {op.name for op in expanded.graph.ops if of.get(op.name, op.name) in decided.strategies}
    final = without_copies(expanded, planned)
    return decided.with_tilings(
        {name: decided.tilings[of.get(name, name)] for name in final.tensors if name not in final.constants},
        {op.name: decided.strategies[of.get(op.name, op.name)] for op in final.ops},
        tables,
        graph=final,
        ops=descriptions.bind_all(final, decided.ops),
    )
