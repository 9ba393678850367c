"""Everything that a user's world can do wrong, as one tree.

    TofuError
    ├── UsageError            exit 2: an option, a path or a configuration that cannot be used
    ├── ModelError            exit 2: the ONNX model cannot be read or is not one we can plan
    │   └── UnsupportedError  exit 2: valid ONNX, but an operator or a form that tofu does not take
    ├── DescriptionError      exit 2: a TDL description that cannot be analysed
    ├── InfeasibleError       exit 1: it ran and the answer is no (no plan exists)
    ├── DifferenceError       exit 1: it ran and the answer is no (a verification differs)
    ├── DivergedError         exit 1: it ran and the answer is no (a loss or state is not finite any more)
    ├── ExportError           exit 1: it ran and the answer is no (another runtime has no form for the plan)
    └── WorkerError           exit 3: a worker failed while running a plan

An error is raised low, where the cause is known, with the facts and a hint; context is added once at the
API; it is printed once, in ``planner.commands``. A bug of our own is an ``AssertionError`` or anything else that is
not a ``TofuError``.
"""

from __future__ import annotations

import difflib
import math
import resource
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from planner.printable import printable

MOST_SHOWN: Final = 20
"""Of an error's facts."""


class TofuError(Exception):
    """An error that the user can act upon.

    Args:
        message: one line that names the file, field, op or tensor.
        facts: further lines, one finding each; all findings at once where there can be several, of which the first
            twenty are shown.
        hint: what to do about it, or ""; it may have several lines.

    Names in them come from models and files: a control character is written as an escape, and a line break does not
    begin a line.
    """

    exit_code = 2

    def __init__(self, message: str, *, facts: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message)
        self.what = printable(message)
        self.facts = tuple(map(printable, facts))
        self.hint = printable(hint, keep="\n")

    @property
    def shown_facts(self) -> tuple[str, ...]:
        """The first facts, and how many more there are."""
        hidden = len(self.facts) - MOST_SHOWN
        return (*self.facts[:MOST_SHOWN], f"… and {hidden:,} more") if hidden > 0 else self.facts

    def __str__(self) -> str:
        lines = [self.what, *(f"  {fact}" for fact in self.shown_facts)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class UsageError(TofuError):
    """An option, a path or a configuration that cannot be used."""


class ModelError(TofuError):
    """The ONNX model cannot be read, or is not one that can be planned."""


class UnsupportedError(ModelError):
    """Valid ONNX, but an operator or a form that tofu does not take."""


class DescriptionError(TofuError):
    """A TDL description that cannot be analysed."""


class InfeasibleError(TofuError):
    """No plan exists for what was asked.

    Args:
        message: as of every error.
        facts: likewise.
        hint: likewise.
        lacking_bytes: where it is memory that there is too little of, what the worker lacks that lacks the most.
    """

    exit_code = 1

    def __init__(self, message: str, *, facts: tuple[str, ...] = (), hint: str = "", lacking_bytes: int = 0) -> None:
        super().__init__(message, facts=facts, hint=hint)
        self.lacking_bytes = lacking_bytes


class DifferenceError(TofuError):
    """A verification ran and the results differ."""

    exit_code = 1


class DivergedError(TofuError):
    """A training run has come to numbers that are not finite."""

    exit_code = 1


class ExportError(TofuError):
    """A plan that another runtime has no form for."""

    exit_code = 1


class WorkerError(TofuError):
    """A worker failed while running a plan."""

    exit_code = 3


def out_of_memory(error: BaseException) -> InfeasibleError:
    """The error for memory that the system does not give.

    Args:
        error: a MemoryError, or an OSError of that kind. NumPy's says of what array; its class is not imported here.
    """
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is not None and dtype is not None:
        needed = f"an array of {dtype} {list(shape)} needs {dtype.itemsize * math.prod(map(int, shape)):,} bytes more"
    else:
        needed = "it needs more than that"
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return InfeasibleError(
        "this machine has too little memory",
        facts=(f"the process has taken {peak_bytes:,} bytes", needed),
        hint="take a smaller batch or model, a machine with more memory, or raise the limit (ulimit -v)",
    )


def repeated(names: Iterable[str]) -> list[str]:
    """The names that stand more than once, in their order."""
    return [name for name, count in Counter(names).items() if count > 1]


def near_file(path: Path) -> str:
    """The advice on a path that is not there: the nearest name of its kind in its folder, or a look into the folder."""
    paths, kind = tuple(path.parent.iterdir()) if path.parent.is_dir() else (), path.suffix[1:]
    alike = (near for near in paths if not kind or near.stem == path.stem or did_you_mean(kind, [near.suffix[1:]]))
    return did_you_mean(path.name, (near.name for near in alike)) or f"see which files are there: ls {path.parent}"


def did_you_mean(name: str, names: Iterable[str], before: int = 0) -> str:
    """``did you mean 'x'?`` for the nearest of the known names, or "" where none is near.

    Args:
        name: the unknown one.
        names: those there are.
        before: findings of the same error. Behind ``MOST_SHOWN`` nobody reads the advice, which is slow to find.
    """
    if before >= MOST_SHOWN:
        return ""
    by_folded = {candidate.casefold(): candidate for candidate in sorted(names)}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f"did you mean {by_folded[near[0]]!r}?" if near else ""
