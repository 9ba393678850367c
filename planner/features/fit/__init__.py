"""``tofu fit``: how many GPUs hold a model, and with which batch."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="fit",
    command="planner.features.fit.command:fit",
    functions={"fit": "planner.features.fit.run:fit"},
    outputs=(
        Output(
            "fit",
            "tofu fit --json",
            "planner.features.fit.result:FitResult",
            "planner.features.fit.table:print_fit",
        ),
    ),
)
