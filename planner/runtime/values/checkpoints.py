"""The checkpoints of a run's folder: the newest that is whole, and which may go."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Graph
from planner.runtime.values.checkpoint import MANIFEST, Checkpoint
from planner.strict_json import JsonError, read_json
from planner.unfinished import remove_folder, sweep

NAME: Final = re.compile(r"step-(\d{8,})")


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
    checkpoints = numbered(directory)
    if not checkpoints:
        raise UsageError(f"{directory} holds no checkpoint to resume from", hint="leave --resume out to begin anew")
    strange = [path for _, path in checkpoints if _model_of(path) not in (None, model_digest)]
    if strange:
        raise ModelError(
            f"{strange[0]} is a checkpoint of another model",
            facts=(f"so are {len(strange)} of {len(checkpoints)} in that folder",) if len(checkpoints) > 1 else (),
            hint="resume in the folder of this model's checkpoints",
        )
    passed_over: list[str] = []
    for _, path in reversed(checkpoints):
        try:
            return Checkpoint(path, graph, model_digest), tuple(passed_over)
        except ModelError as error:
            if len(checkpoints) == 1:
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
    checkpoints = numbered(directory)
    if checkpoints:
        latest = checkpoints[-1][1]
        model = _model_of(latest)
        whose = "this model" if model == model_digest else "an unknown model" if model is None else "another model"
        count = "1 checkpoint" if len(checkpoints) == 1 else f"{len(checkpoints)} checkpoints"
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
    mine = [path for number, path in numbered(directory) if number <= newest and _model_of(path) == model_digest]
    for path in mine[:-keep]:
        with contextlib.suppress(OSError):
            remove_folder(path)


def numbered(directory: Path) -> list[tuple[int, Path]]:
    """Steps and folders, earliest first."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted((int(match[1]), entry) for entry in entries if (match := NAME.fullmatch(entry.name)))


def _model_of(path: Path) -> str | None:
    try:
        return read_json(path / MANIFEST)["model_digest"].text()
    except JsonError:
        return None
