"""Shared deliveries wherever a graph has room for them."""

from __future__ import annotations

from planner.graph.core.model import Graph
from planner.graph.step.deliveries import SharedDelivery


def all_deliveries(graph: Graph) -> list[SharedDelivery]:
    """Every tensor of several readers is delivered to all of them, and again to the last two."""
    deliveries = []
    for name, readers in graph.consumers.items():
        if len(readers) > 1 and name not in graph.constants:
            names = tuple(op.name for op in readers)
            deliveries.append(SharedDelivery(f"{name}@1", name, (*names[:-2], f"{name}@2")))
            deliveries.append(SharedDelivery(f"{name}@2", f"{name}@1", names[-2:]))
    return deliveries
