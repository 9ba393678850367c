"""``tofu checkpoint``: what a folder of checkpoints holds, and its weights."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    heading="Run",
    functions=("checkpoints", "export_checkpoint", "load_into"),
    outputs=(
        Output("checkpoint-export", "tofu checkpoint export --json", "checkpoints:ExportedCheckpoint", "table:export"),
        Output("checkpoint-show", "tofu checkpoint show --json", "checkpoints:CheckpointList", "table:checkpoints"),
    ),
)
