"""The source of an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.artifacts.plan import Plan
from planner.graph.core.model import Graph
from planner.graph.rewriting.packing import Placed
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Source:
    """A plan, the graph that was planned, and its ops with their descriptions."""

    plan: Plan
    graph: Graph
    """The model's canonical form, bodies and deliveries in it."""
    ops: tuple[BoundOp, ...]
    """Of the graph, in its order."""
    boxes: Mapping[str, Placed] = field(default_factory=dict)
    """By part of a tensor of the model, of which it is which box."""

    def parts_of(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Tensors of the model by these of the graph: of a whole, its parts."""
        parts: dict[str, list[str]] = {}
        for name in names:
            parts.setdefault(self.boxes[name][0] if name in self.boxes else name, []).append(name)
        return parts
