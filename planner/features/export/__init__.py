"""``tofu export``: a plan, written for other runtimes."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="export",
    command="planner.features.export.command:export",
    functions={"export": "planner.features.export.run:export"},
    outputs=(
        Output(
            "export",
            "tofu export --json",
            "planner.features.export.result:ExportResult",
            "planner.features.export.table:print_export",
        ),
    ),
)
