"""``tofu diff``: what differs between two plans, and what it costs."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Look at a plan",
    functions=("diff",),
    outputs=(Output("diff", "tofu diff --json", "difference:Difference", "table:print_as_text"),),
)
