"""What an export is made of."""

from __future__ import annotations

from dataclasses import dataclass

from planner.artifacts.plan import Plan
from planner.graph.model import Graph
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Source:
    """A plan, the graph that was planned, and its ops with their descriptions."""

    plan: Plan
    graph: Graph
    """The model's canonical form, bodies and deliveries in it."""
    ops: tuple[BoundOp, ...]
    """Of the graph, in its order."""
