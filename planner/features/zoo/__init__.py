"""``tofu zoo``: the papers' models, and those of today."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Make a training graph",
    functions=("zoo", "zoo_models"),
    models="models:build",
    outputs=(
        Output("zoo", "tofu zoo NAME --json", "result:ZooResult", "table:print_zoo"),
        Output("zoo-models", "tofu zoo --json", "result:ZooModels", "table:print_models"),
    ),
)
