"""``tofu report``: a plan as a page, a picture or a trace."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Look at a plan",
    functions=("report",),
    outputs=(Output("report", "tofu report --json", "result:ReportResult", "table:print_report"),),
)
