"""A user's own descriptions, from a Python file: ``--opdefs my_ops.py``.

The file is executed: give only files that you would run yourself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from planner.artifacts.plan import digest
from planner.errors import DescriptionError, TofuError, UsageError
from planner.tdl.builder import Description, ReferenceFunction
from planner.whole import whole_file

CASES = "CASES"
"""What a file calls the cases that its descriptions are verified with."""


@dataclass(frozen=True, slots=True)
class OpdefsFile:
    """The descriptions of a user's file."""

    path: Path
    descriptions: tuple[Description, ...]
    """In the order of their definition."""
    cases: tuple[Any, ...]
    """``planner.features.ops.cases.examples.Case``s that the file gives; () where it gives none."""
    sha256: str = ""
    """Of its content, as it was executed."""

    @property
    def references(self) -> dict[tuple[str, str], ReferenceFunction]:
        """By (domain, op type), the operators in NumPy that the file gives."""
        return {
            key: description.reference
            for description in self.descriptions
            if description.reference is not None
            for key in description.keys
        }


def load_file(path: str | os.PathLike[str]) -> OpdefsFile:
    """Executes a file and gathers its descriptions.

    Raises:
        UsageError: there is no such file.
        DescriptionError: it cannot be executed, describes nothing, or describes an operator twice.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{file}: no such file of descriptions", hint="docs/operators.md shows one")
    module = _execute(file)
    descriptions = {name: value for name, value in vars(module).items() if isinstance(value, Description)}
    if not descriptions:
        raise DescriptionError(
            f"{file} describes no operator",
            hint='a description is a function under @op("Name", domain="my.domain"); docs/operators.md',
        )
    _refuse_duplicates(file, descriptions)
    cases = getattr(module, CASES, ())
    if not isinstance(cases, tuple | list):
        raise DescriptionError(f"{file}: {CASES} is a {type(cases).__name__}, not a list of cases")
    sha256 = digest(file.read_bytes())
    _remember(file, sha256)
    return OpdefsFile(file, tuple(descriptions.values()), tuple(cases), sha256)


def remembered(sha256: str) -> Path | None:
    """The file of descriptions with this digest that this user has given before, with ``--opdefs`` or from Python.

    A plan's folder may be anybody's, and names its descriptions by their digest alone. So it never says what is
    executed: only a file whose content this user has already executed is executed for it again.

    Returns:
        The file as it was named last; None if no such file was given, or it is gone or has changed.
    """
    try:
        file = Path(os.fsdecode((_state_folder() / sha256).read_bytes()))
        return file if digest(file.read_bytes()) == sha256 else None
    except (OSError, RuntimeError, ValueError):
        return None


def _remember(file: Path, sha256: str) -> None:
    """Notes where the user's file is; a home that cannot be written costs the note, not the command."""
    with suppress(OSError, RuntimeError):
        folder = _state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / sha256) as stream:
            stream.write(os.fsencode(file.resolve()))


def _state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "tofu" / "opdefs"


def _execute(file: Path) -> ModuleType:
    name = f"tofu_opdefs_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DescriptionError(f"{file} is no Python file", hint="its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look themselves up here while it runs
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise DescriptionError(f"{file}:{error.lineno}: {error.msg}", facts=_source(error)) from error
    except TofuError:
        raise
    except Exception as error:
        message = f"{file}:{_line(file, error)}: {type(error).__name__}: {error}"
        raise DescriptionError(message, hint=_other_spelling(error)) from error
    finally:
        del sys.modules[name]
    return module


def _other_spelling(error: Exception) -> str:
    """What to write for a module of tofu's own that lies beside ``planner`` in the repository alone."""
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return f"it is planner.{missing}: only planner is installed" if missing in ("opdefs", "configs") else ""


def _source(error: SyntaxError) -> tuple[str, ...]:
    return (error.text.strip(),) if error.text else ()


def _line(file: Path, error: BaseException) -> int:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return next((line for line in reversed(lines) if line is not None), 0)


def _refuse_duplicates(file: Path, descriptions: dict[str, Description]) -> None:
    seen: dict[tuple[str, str], str] = {}
    twice = []
    for name, description in descriptions.items():
        for key in description.keys:
            first = seen.setdefault(key, name)
            if first != name and descriptions[first] is not description:
                twice.append(f"{'.'.join(filter(None, key))}: by {first} and by {name}")
    if twice:
        raise DescriptionError(f"{file} describes operators twice", facts=tuple(sorted(twice)))
