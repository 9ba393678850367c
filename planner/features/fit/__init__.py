"""``tofu fit``: how many GPUs hold a model, and with which batch."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Plan",
    functions=("fit",),
    outputs=(Output("fit", "tofu fit --json", "result:FitResult", "table:print_fit"),),
)
