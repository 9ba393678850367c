"""``tofu compare``: every strategy of the literature beside the plan."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Plan",
    functions=("compare",),
    outputs=(Output("compare", "tofu compare --json", "result:Comparison", "table:print_comparison"),),
)
