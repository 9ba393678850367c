"""Operators in simpler ones: one registry by purpose (``registry``), and what its functions are written with.

A composite (Softmax, LayerNormalization, ...) is one kernel that keeps the dims it normalises over whole. Its body has
explicit reductions, so that those dims can be cut, too: what then moves are maxima and sums.
"""

from __future__ import annotations

from planner.graph.decompositions.expand import Body, Expanded, body_text, expand, has_body, planned_graph
from planner.graph.decompositions.registry import Purpose, decomposition, decompositions, stands_for

__all__ = [
    "Body",
    "Expanded",
    "Purpose",
    "body_text",
    "decomposition",
    "decompositions",
    "expand",
    "has_body",
    "planned_graph",
    "stands_for",
]
