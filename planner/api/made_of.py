"""The record in a training graph's file of the forward model and the options that `tofu grad` made it of."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from onnx import ModelProto

from planner.api.arguments import takes
from planner.artifacts.source_file import SourceFile
from planner.errors import ModelError, UsageError
from planner.graph.reading.load import load_model
from planner.options.training import GradOptions, TrainingOptions
from planner.training.doors.read import file_of

MADE_OF: Final = "tofu-made-of"
"""The metadata key of ``[["model.onnx", "/home/me/model.onnx", "9f86…"], 64, {"loss": "mse", ...}]``: the forward
model, the batch if one was asked for, and the other options. No note of the graph
(``planner.graph.core.notes``): plans of one model are equal, wherever its forward model was."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The forward model of a training graph, and how it was made."""

    forward: Path
    options: TrainingOptions
    batch: int | None
    """Samples of an iteration, if another number than the forward model's was asked for."""


def note_made_of(model: ModelProto, options: GradOptions, base: Path) -> None:
    """Has a training graph say what it was made of, so that it can be made with another batch.

    Args:
        model: is changed.
        options: with which; a folder of artifacts is not recorded.
        base: the folder that the model will be written to.
    """
    source = SourceFile.of(options.model)
    if source is not None:
        asked = [(field.name, field.default, getattr(options, field.name)) for field in fields(TrainingOptions)]
        changed = {name: value for name, default, value in asked if value != default}
        paths = {name: str(value.resolve()) for name, value in changed.items() if isinstance(value, Path)}
        note = json.dumps([source.recorded(base), options.batch, changed | paths])
        model.metadata_props.add(key=MADE_OF, value=note)


def made_of(file: Path) -> tuple[Origin | None, str]:
    """The origin of a training graph that `tofu grad` wrote; or None, and why it is not known.

    Raises:
        TofuError: the file cannot be read, or its record of its origin cannot be.
    """
    note = next((entry.value for entry in load_model(file_of(file)).metadata_props if entry.key == MADE_OF), None)
    if note is None:
        return None, "`tofu grad` did not make it"
    try:
        record, batch, asked = json.loads(note)
        source, options = SourceFile.stated(record, file.parent), _checked(**asked)
    except (ValueError, TypeError, UsageError):
        raise ModelError(f"{file}: metadata {MADE_OF} does not say how it was made") from None
    forward, why = source.file()
    return (None, why) if forward is None else (Origin(forward, options, batch), "")


@takes(TrainingOptions)
def _checked(options: TrainingOptions) -> TrainingOptions:
    """Recorded options, each of its kind."""
    return options
