"""``tofu prove``: a partitioned program is equal to its model, shown without running it."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Look at a plan",
    functions=("prove",),
    outputs=(Output("prove", "tofu prove --json", "result:ProveResult", "table:print_proof"),),
)
