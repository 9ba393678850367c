"""The decision for a graph, and the search that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.artifacts.plan import Decision
from planner.graph.core.model import Graph
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, kw_only=True)
class Decided(Decision):
    """The decision for a graph, and the search that led to it; two are equal that decide the same."""

    graph: Graph = field(compare=False)
    """The planned graph: the model, with the bodies of those composite ops that are planned through them, and with the
    deliveries that readers share.
    """
    ops: tuple[BoundOp, ...] = field(compare=False)
    """The ops of that graph, in its order, with their descriptions."""
    search_seconds: float = field(default=0.0, compare=False)
    """The time from the graph in memory to the decision."""
    bound_seconds: float = field(default=0.0, compare=False)
    """The part of that for bounds."""
    table_entries: int = field(default=0, compare=False)
    """Entries of all tables."""
    largest_table: int = field(default=0, compare=False)
    """Entries of the largest bucket of an elimination."""
    eliminated_entries: int = field(default=0, compare=False)
    """Entries of all buckets that eliminations computed; equal buckets are computed once."""
