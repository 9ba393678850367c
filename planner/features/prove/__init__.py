"""``tofu prove``: a partitioned program is equal to its model, shown without running it."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="prove",
    command="planner.features.prove.command:prove",
    functions={"prove": "planner.features.prove.run:prove"},
    outputs=(
        Output(
            "prove",
            "tofu prove --json",
            "planner.features.prove.result:ProveResult",
            "planner.features.prove.table:print_proof",
        ),
    ),
)
