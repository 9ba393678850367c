"""The checkpoints of a folder: which there are, the newest that is whole, and which may go."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from planner.errors import ModelError, UsageError
from planner.graph.model import Graph, Tensor
from planner.runtime.values.checkpoint import MANIFEST, Checkpoint
from planner.runtime.values.export import export_weights, try_export
from planner.strict_json import JsonError, read_json
from planner.unfinished import remove_folder, sweep

_NAME: Final = re.compile(r"step-(\d{8,})")


def newest_checkpoint(directory: Path, graph: Graph, model_digest: str) -> tuple[Checkpoint, tuple[str, ...]]:
    """The checkpoint of the latest step that is whole and of this model; and which later ones it is not, and why.

    Args:
        directory: of all checkpoints of a run.
        graph: see ``Checkpoint``.
        model_digest: see ``Checkpoint``.

    Raises:
        UsageError: there is none at all.
        ModelError: there is none to go on from, or some are of another model.
    """
    sweep(directory)
    found = _found(directory)
    if not found:
        raise UsageError(f"{directory} holds no checkpoint to resume from", hint="leave --resume out to begin anew")
    strange = [path for _, path in found if _model_of(path) not in (None, model_digest)]
    if strange:
        raise ModelError(
            f"{strange[0]} is a checkpoint of another model",
            facts=(f"so are {len(strange)} of {len(found)} in that folder",) if len(found) > 1 else (),
            hint="resume in the folder of this model's checkpoints",
        )
    passed_over: list[str] = []
    for _, path in reversed(found):
        try:
            return Checkpoint(path, graph, model_digest), tuple(passed_over)
        except ModelError as error:
            if len(found) == 1:
                raise
            passed_over.append("; ".join([error.what, *error.shown_facts]))
    raise ModelError(f"{directory} holds no checkpoint that can be resumed from", facts=tuple(passed_over))


def refuse_filled(directory: Path, model_digest: str) -> None:
    """Refuses a folder that holds checkpoints to a run that goes on from none of them.

    It would replace some and leave later ones, from which the next ``--resume`` would go on.

    Args:
        directory: of all checkpoints of a run; it need not be there.
        model_digest: of the model that is run.

    Raises:
        UsageError: it holds checkpoints, whose ever and however damaged.
    """
    sweep(directory)
    found = _found(directory)
    if found:
        latest = found[-1][1]
        model = _model_of(latest)
        whose = "this model" if model == model_digest else "an unknown model" if model is None else "another model"
        count = "1 checkpoint" if len(found) == 1 else f"{len(found)} checkpoints"
        raise UsageError(
            f"{directory} holds {count} of another run",
            facts=(f"the latest is {latest.name}, of {whose}",),
            hint="--resume goes on from the latest; to begin anew, name another folder, or remove them first",
        )


def remove_older(directory: Path, newest: int, keep: int, model_digest: str) -> None:
    """Removes old checkpoints of a model, once a new one is written.

    Args:
        directory: of all checkpoints of a run; what else is in it stays.
        newest: the step of the new checkpoint; those of later steps, of another run, stay.
        keep: how many stay, the new one included.
        model_digest: of the model; checkpoints of others stay.
    """
    mine = [path for number, path in _found(directory) if number <= newest and _model_of(path) == model_digest]
    for path in mine[:-keep]:
        with contextlib.suppress(OSError):
            remove_folder(path)


def _found(directory: Path) -> list[tuple[int, Path]]:
    """Steps and folders, earliest first."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted((int(match[1]), entry) for entry in entries if (match := _NAME.fullmatch(entry.name)))


def _model_of(path: Path) -> str | None:
    try:
        return read_json(path / MANIFEST)["model_digest"].text()
    except JsonError:
        return None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """What is known of a checkpoint."""

    told: ClassVar = "path step=number size_bytes problem seed model_digest tensors"

    path: Path
    number: int
    """The number of steps that were done, by the folder's name."""
    size_bytes: int
    checkpoint: Checkpoint | None
    """None where it is not whole."""
    problem: str
    """Why it is not; "" where it is."""

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
    return CheckpointList(tuple(_row(number, path) for number, path in _named(directory)))


def _named(directory: Path) -> list[tuple[int, Path]]:
    """Steps and folders of the checkpoints of a folder, earliest first; or of the one that it is."""
    found = _found(directory)
    if not found and (match := _NAME.fullmatch(directory.resolve().name)) and directory.is_dir():
        found = [(int(match[1]), directory)]
    if not found:
        raise UsageError(f"{directory} holds no checkpoints", hint="name the folder that --checkpoint-dir named")
    return found


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
    """What was exported of a checkpoint."""

    schema_version: ClassVar = 1
    told: ClassVar = "checkpoint=path step=number exported=names passed_over"

    path: Path
    """The checkpoint."""
    number: int
    """The number of steps that were done."""
    names: tuple[str, ...]
    """The states that were written."""
    passed_over: tuple[str, ...]
    """Why later checkpoints were not taken."""


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
    found = _named(directory)
    if number is not None:
        known = ", ".join(str(step) for step, _ in found)
        found = [(step, path) for step, path in found if step == number]
        if not found:
            raise UsageError(f"{directory} holds no checkpoint of step {number}", facts=(f"there are: {known}",))
    passed_over: list[str] = []
    for row in (_row(step, path) for step, path in reversed(found)):
        if row.checkpoint is not None:
            names = export_weights(output, row.checkpoint.tensors, row.checkpoint.whole, forward)
            return ExportedCheckpoint(row.path, row.number, names, tuple(passed_over))
        passed_over.append(row.problem)
    raise ModelError(f"{directory} holds no checkpoint that is whole", facts=tuple(passed_over))
