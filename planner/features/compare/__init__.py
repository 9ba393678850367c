"""``tofu compare``: every strategy of the literature beside the plan."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="compare",
    command="planner.features.compare.command:compare",
    functions={"compare": "planner.features.compare.run:compare"},
    outputs=(
        Output(
            "compare",
            "tofu compare --json",
            "planner.features.compare.result:Comparison",
            "planner.features.compare.table:print_comparison",
        ),
    ),
)
