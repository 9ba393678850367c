"""``tofu zoo``: the papers' models, and those of today."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="zoo",
    command="planner.features.zoo.command:zoo",
    functions={"zoo": "planner.features.zoo.run:zoo", "zoo_models": "planner.features.zoo.run:zoo_models"},
    models="planner.features.zoo.models:build",
    outputs=(
        Output(
            "zoo",
            "tofu zoo NAME --json",
            "planner.features.zoo.result:ZooResult",
            "planner.features.zoo.table:print_zoo",
        ),
        Output(
            "zoo-models",
            "tofu zoo --json",
            "planner.features.zoo.result:ZooModels",
            "planner.features.zoo.table:print_models",
        ),
    ),
)
