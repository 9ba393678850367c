"""The log of a run: a line for each step, as JSON or CSV, there as soon as the step is done.

    log.jsonl   {"step": 3, "loss": 0.693147, "seconds": 0.0041, "moved_bytes": 396, "time": "2026-11-25T13:00:00Z"}
    log.csv     the same members as columns, all that there may be, empty where a step has none

A line is written at once and as a whole, so that whoever is killed leaves whole lines. A run that is resumed keeps the
lines up to the step that it goes on from, and the steps that it does again stand there once. While it lasts, a run
holds a lock (flock) on its log, so that no other run replaces it; a file system that has no locks is taken as it is.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from planner.errors import UsageError
from planner.runtime.run_report import StepReport
from planner.whole import try_file, whole_file

SUFFIXES: Final = (".jsonl", ".csv")
COLUMNS: Final = (
    *("step", "epoch", "loss", "accuracy", "eval_loss", "eval_accuracy"),
    *("learning_rate", "seconds", "moved_bytes", "time"),
)
"""What a line may have, in this order."""
_HEAD: Final = {name: name for name in COLUMNS}


def try_log(path: Path, *, is_resumed: bool) -> None:
    """Refuses, before the work, a file that no log could be written to.

    Args:
        path: of the file.
        is_resumed: the run goes on from a checkpoint, and the log goes on with it.

    Raises:
        UsageError: its name says no form that a log has, it cannot be written, another run is writing it, or it holds
            what would be lost.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"-o {path}: a log is JSON or CSV", hint=f"call it {path.stem}.jsonl or {path.stem}.csv")
    try_file(path)
    if path.exists() and (descriptor := _locked(path, fcntl.LOCK_SH)) is not None:
        # Ranks try the file side by side: only a run that writes it excludes them.
        os.close(descriptor)
    if not is_resumed and _holds_lines(path):
        raise UsageError(
            f"-o {path}: the file is there, and would be replaced",
            hint="name another file, or remove it; with --resume, a run goes on with its log",
        )


def _holds_lines(path: Path) -> bool:
    """Whether there is more in a file than a run writes before its first step."""
    try:
        return path.stat().st_size > (len(_as_csv(_HEAD)) if path.suffix == ".csv" else 0)
    except FileNotFoundError:
        return False


class RunLog:
    """A log that is being written.

    Args:
        path: of the file (see ``try_log``).
        first: the step that comes first; lines of earlier ones stay.

    Raises:
        UsageError: it cannot be written, another run is writing it, or it is to be gone on with and is no log.
    """

    def __init__(self, path: Path, first: int) -> None:
        self._path = path
        self._is_csv = path.suffix == ".csv"
        self._lock: int | None = None
        try:
            if path.exists():
                self._hold()
            earlier = self._lines_before(first) if first > 1 else []
            head = _as_csv(_HEAD) if self._is_csv else ""
            with whole_file(path) as stream:
                stream.write("".join([head, *earlier]).encode())
            # The file that was locked until here has been replaced.
            self._hold()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives up the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, report: StepReport) -> None:
        """Adds a step.

        Raises:
            UsageError: it cannot be written.
        """
        members = _members(report)
        line = _as_csv(members) if self._is_csv else _as_json(members)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from error

    def _hold(self) -> None:
        """Locks the file that has the log's name now, in place of one that was locked before."""
        descriptor = _locked(self._path)
        if descriptor is not None:
            self.close()
            self._lock = descriptor

    def _lines_before(self, first: int) -> list[str]:
        """The lines of earlier steps; a last line that was cut off goes."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError):
            raise UsageError(f"-o {self._path} cannot be gone on with: it is no log") from None
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        earlier = []
        for number, line in enumerate(lines, start=1):
            if self._is_csv and number == 1:
                continue
            step = self._number_of(line)
            if step is None:
                raise UsageError(
                    f"-o {self._path} cannot be gone on with: line {number} is no step",
                    hint="name another file",
                )
            if step < first:
                earlier.append(line)
        return earlier

    def _number_of(self, line: str) -> int | None:
        """The step of a line; None if it is none."""
        try:
            step = line.partition(",")[0] if self._is_csv else json.loads(line)["step"]
            return int(step)
        except (ValueError, OverflowError, TypeError, KeyError, RecursionError):
            return None


def _locked(path: Path, lock: int = fcntl.LOCK_EX) -> int | None:
    """A descriptor that holds a lock on a file; None where the file system has no locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"-o {path} cannot be read: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(
            f"-o {path} is in use by another run", hint="wait until it has ended, or name another file"
        ) from None
    except OSError:  # the file system has no locks
        os.close(descriptor)
        return None
    return descriptor


def _members(report: StepReport) -> dict[str, object]:
    """What is known of a step, by column."""
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    members = {
        "step": report.step,
        "epoch": report.epoch,
        "loss": report.loss,
        "accuracy": report.accuracy,
        "eval_loss": None if report.evaluation is None else report.evaluation.loss,
        "eval_accuracy": None if report.evaluation is None else report.evaluation.accuracy,
        "learning_rate": report.learning_rate,
        "seconds": report.seconds,
        "moved_bytes": report.moved_bytes,
        "time": timestamp,
    }
    return {name: members[name] for name in COLUMNS if members[name] is not None}


def _as_json(members: Mapping[str, object]) -> str:
    def finite(value: object) -> object:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps({name: finite(value) for name, value in members.items()}, allow_nan=False) + "\n"


def _as_csv(members: Mapping[str, object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([members.get(name, "") for name in COLUMNS])
    return text.getvalue()
