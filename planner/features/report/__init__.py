"""``tofu report``: a plan as a page, a picture or a trace."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="report",
    command="planner.features.report.command:report",
    functions={"report": "planner.features.report.run:report"},
    outputs=(
        Output(
            "report",
            "tofu report --json",
            "planner.features.report.result:ReportResult",
            "planner.features.report.table:print_report",
        ),
    ),
)
