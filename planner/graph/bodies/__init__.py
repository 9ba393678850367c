"""Bodies of composite operators in primitive ones, chosen so that partial results can be joined.

A composite (Softmax, LayerNormalization, ...) is one kernel that keeps the dims it normalises over whole. Its body has
explicit reductions, so that those dims can be cut, too: what then moves are maxima and sums.
"""

from __future__ import annotations

from planner.graph.bodies.expand import BODIES, Body, Expanded, body_text, expand, has_body, planned_graph

__all__ = ["BODIES", "Body", "Expanded", "body_text", "expand", "has_body", "planned_graph"]
