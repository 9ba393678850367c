"""``tofu export``: a plan, written for other runtimes."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Run",
    functions=("export",),
    outputs=(Output("export", "tofu export --json", "result:ExportResult", "table:print_export"),),
)
