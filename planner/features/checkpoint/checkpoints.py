"""Contents of a folder of checkpoints, and its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Tensor
from planner.runtime.values.checkpoint import Checkpoint
from planner.runtime.values.checkpoints import NAME, numbered
from planner.runtime.values.export import export_weights, try_export


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint, in brief."""

    told: ClassVar = "path step=number size_bytes problem seed model_digest tensors"

    path: Path
    number: int
    """The number of steps that were done, by the folder's name."""
    size_bytes: int
    checkpoint: Checkpoint | None
    """None where it is not whole."""
    problem: str
    """The reason why it is not; "" where it is."""

    @property
    def seed(self) -> int | None:
        return None if self.checkpoint is None else self.checkpoint.seed

    @property
    def model_digest(self) -> str | None:
        return None if self.checkpoint is None else self.checkpoint.model_digest

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """What it holds; {} where it is not whole."""
        return {} if self.checkpoint is None else self.checkpoint.tensors


@dataclass(frozen=True, slots=True)
class CheckpointList:
    """The checkpoints of a folder."""

    schema_version: ClassVar = 1
    told: ClassVar = "checkpoints=rows"

    rows: tuple[CheckpointRow, ...]
    """Earliest first."""


def list_checkpoints(directory: Path) -> CheckpointList:
    """The checkpoints of a folder, earliest first, each read and held against its digests; or the one that it is.

    Raises:
        UsageError: there is none.
    """
    return CheckpointList(tuple(_row(number, path) for number, path in named(directory)))


def named(directory: Path) -> list[tuple[int, Path]]:
    """Steps and folders of the checkpoints of a folder, earliest first; or of the one that it is."""
    checkpoints = numbered(directory)
    if not checkpoints and (match := NAME.fullmatch(directory.resolve().name)) and directory.is_dir():
        checkpoints = [(int(match[1]), directory)]
    if not checkpoints:
        raise UsageError(f"{directory} holds no checkpoints", hint="name the folder that --checkpoint-dir named")
    return checkpoints


def _row(number: int, path: Path) -> CheckpointRow:
    checkpoint, problem = None, ""
    try:
        checkpoint = Checkpoint(path)
    except ModelError as error:
        problem = "; ".join([error.what, *error.shown_facts])
    size_bytes = 0
    # A run that goes on may remove it meanwhile; and what has its name need be no folder.
    with contextlib.suppress(OSError):
        size_bytes = sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file())
    return CheckpointRow(path, number, size_bytes, checkpoint, problem)


@dataclass(frozen=True, slots=True)
class ExportedCheckpoint:
    """The export of a checkpoint."""

    schema_version: ClassVar = 1
    told: ClassVar = "checkpoint=path step=number exported=names passed_over"

    path: Path
    """The checkpoint."""
    number: int
    """The number of steps that were done."""
    names: tuple[str, ...]
    """The states that were written."""
    passed_over: tuple[str, ...]
    """The reasons why later checkpoints were not taken."""


def export_checkpoint(
    directory: Path, output: Path, number: int | None = None, forward: Path | None = None
) -> ExportedCheckpoint:
    """Writes the states of a checkpoint, whole, without a plan and without a step.

    Args:
        directory: of all checkpoints of a run, or one of them.
        output: see ``export.export_weights``.
        number: how many steps were done; None: those of the newest that is whole.
        forward: the forward model, for ``.onnx``.

    Raises:
        UsageError: there is no such checkpoint, or it cannot be written there.
        ModelError: it is not whole.
    """
    try_export(output, forward)
    checkpoints = named(directory)
    if number is not None:
        steps = ", ".join(str(step) for step, _ in checkpoints)
        checkpoints = [(step, path) for step, path in checkpoints if step == number]
        if not checkpoints:
            raise UsageError(f"{directory} holds no checkpoint of step {number}", facts=(f"there are: {steps}",))
    passed_over: list[str] = []
    for row in (_row(step, path) for step, path in reversed(checkpoints)):
        if row.checkpoint is not None:
            names = export_weights(output, row.checkpoint.tensors, row.checkpoint.whole, forward)
            return ExportedCheckpoint(row.path, row.number, names, tuple(passed_over))
        passed_over.append(row.problem)
    raise ModelError(f"{directory} holds no checkpoint that is whole", facts=tuple(passed_over))
