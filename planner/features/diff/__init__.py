"""``tofu diff``: what differs between two plans, and what it costs."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="diff",
    command="planner.features.diff.command:diff",
    functions={"diff": "planner.features.diff.run:diff"},
    outputs=(
        Output(
            "diff",
            "tofu diff --json",
            "planner.features.diff.difference:Difference",
            "planner.features.diff.table:print_as_text",
        ),
    ),
)
