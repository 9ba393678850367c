"""Measurements of ``tofu run --measure``, kept in the plan's folder: data only, JSON in and out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

from planner.artifacts.place import PLAN
from planner.artifacts.plan_folder import MEASURED
from planner.errors import ModelError
from planner.records import Kind, plain, reader
from planner.regular_file import digest_of
from planner.strict_json import JsonError, read_json
from planner.whole import whole_file

SCHEMA_VERSION = 1
_ROW: Final = "step: name, whether it fetches, seconds of waiting and of work, bytes"


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of one worker; seconds are means over the measured iterations."""

    told: ClassVar = "=row"

    name: str
    """The name of the segment or fetch."""
    is_fetch: bool
    wait_seconds: float
    """The time until others had done their part."""
    seconds: float
    """The time after that."""
    moved_bytes: int

    @property
    def row(self) -> Annotated[tuple[str, bool, float, float, int], Kind(noun=_ROW)]:
        """As its file has it."""
        return self.name, self.is_fetch, self.wait_seconds, self.seconds, self.moved_bytes


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The times of a plan's iterations."""

    engine: str
    """The engine of the workers: ``local``, ``processes`` or ``mpi``."""
    device: str
    """``cpu`` or ``cuda``."""
    iterations: int
    """The number of measured iterations."""
    iteration_seconds: float
    """Mean, of the workers' iteration alone."""
    workers: tuple[tuple[MeasuredStep, ...], ...]
    """The steps of each worker, in program order."""

    def write(self, folder: Path) -> Path:
        """Writes it into the folder of the plan that ran; what was measured before is replaced.

        Returns:
            The file.

        Raises:
            UsageError: it cannot be written.
        """
        content = {
            "schema_version": SCHEMA_VERSION,
            "plan": digest_of(folder / PLAN),
            **plain(self),
        }
        target = folder / MEASURED
        with whole_file(target) as file:
            file.write((json.dumps(content, separators=(",", ":")) + "\n").encode())
        return target


def read_measured(folder: Path) -> MeasuredRun | None:
    """The measurements of the plan in a folder; None if nothing was.

    Raises:
        ModelError: the file cannot be read, or is of another plan.
    """
    file = folder / MEASURED
    if not file.is_file():
        return None
    hint = "measure again with `tofu run --measure`, or remove the file"
    try:
        data = read_json(file)
        data.require_version(SCHEMA_VERSION)
        is_of_it = data["plan"].text() == digest_of(folder / PLAN)
        run = reader(MeasuredRun)(data)
    except JsonError as error:
        raise ModelError(f"{file} cannot be read: {error}", hint=hint) from None
    if not is_of_it:
        raise ModelError(f"{file} is of another plan", hint=hint)
    return run
