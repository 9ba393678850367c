"""``tofu checkpoint``: what a folder of checkpoints holds, and its weights."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="checkpoint",
    command="planner.features.checkpoint.command:checkpoint",
    functions={
        "checkpoints": "planner.features.checkpoint.run:checkpoints",
        "export_checkpoint": "planner.features.checkpoint.run:export_checkpoint",
    },
    outputs=(
        Output(
            "checkpoint-export",
            "tofu checkpoint export --json",
            "planner.features.checkpoint.checkpoints:ExportedCheckpoint",
            "planner.features.checkpoint.table:exported",
        ),
        Output(
            "checkpoint-show",
            "tofu checkpoint show --json",
            "planner.features.checkpoint.checkpoints:CheckpointList",
            "planner.features.checkpoint.table:checkpoints",
        ),
    ),
)
