"""Options of commands and of Python functions: each option said once, as the field of a dataclass.

A field's type and default are those of the function's parameter, which takes a text where the record holds a Path; its
``Option`` says what the command line says beside.
``planner.commands.derived`` makes click's options of it, ``planner.api.arguments`` the function's signature and checks.
Nothing heavy is imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, dataclass_transform

from planner.progress import Progress, silent
from planner.records import Kind

Record = TypeVar("Record")

Model: TypeAlias = Path
"""An ONNX file; a function takes a model in memory, too, and its record holds the file of it."""
Fraction0: TypeAlias = Annotated[float, Kind(below=1)]
"""From 0 up to, and without, 1."""
UnknownOps: TypeAlias = Literal["refuse", "replicate"]


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """How the command line takes what a field is."""

    help: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    """Where they are others than the field's name with hyphens."""
    choices: tuple[str, ...] = ()
    """Of a text, where importing what says them would be dear."""
    shows_default: bool = False
    """The help ends with the default; else it says it itself, if it matters."""
    is_repeated: bool = False
    """It may be given several times; said of what Python takes alone, too."""


def option(help: str, *, default: Any = dataclasses.MISSING, **says: Any) -> Any:
    """A field that the command line has, too.

    Args:
        help: what ``--help`` says.
        default: of command line and function; without one, it must be given.
        says: see ``Option``.
    """
    return dataclasses.field(default=default, metadata={"option": Option(help, **says)})


def argument(*, kw_only: bool, default: Any = dataclasses.MISSING) -> Any:
    """A field that comes first, and may be called without its name; a command declares its argument itself."""
    return dataclasses.field(default=default, kw_only=kw_only)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, argument))
def options(record: type[Record]) -> type[Record]:
    """Makes a class a dataclass of options, which are given by name."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(record)


def flags_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The flags of a field that is an option; the last one is the long one."""
    name = field.name.replace("_", "-")
    return field.metadata["option"].flags or (f"--no-{name}" if field.default is True else f"--{name}",)


def words_of(record: Any, but: Collection[str] = ()) -> tuple[str, ...]:
    """The command line's words for the options of a record that differ from their defaults.

    Args:
        record: the options.
        but: names of fields that are left out.
    """
    words: list[str] = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name in but or "option" not in field.metadata or value in (field.default, None):
            continue
        flag = flags_of(field)[-1]
        items = value.items() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
        for item in items:
            text = "=".join(map(str, item)) if isinstance(item, tuple) else str(item)
            unit = "B" * (field.metadata["option"].metavar == "BYTES" and isinstance(item, int))
            words += [flag] if isinstance(item, bool) else [flag, text + unit]
    return tuple(words)


@options
class DimOptions:
    """Sizes of a model's dims."""

    dim: Mapping[str, int] | None = option(
        "Bind a symbolic dim of the model; repeatable.", default=None, metavar="NAME=SIZE"
    )


@options
class ReadOptions(DimOptions):
    """How the file of a model is read."""

    value: Mapping[str, str | float] | None = option(
        "Make an input a constant, such as sr=16000: all that it decides is decided beforehand; repeatable.",
        default=None,
        metavar="INPUT=NUMBER",
    )
    state: Path | None = option(
        "Which output replaces which input; by default as the model says, or inferred.",
        default=None,
        metavar="PAIRS.yaml",
    )

    @property
    def values(self) -> dict[str, str] | None:
        """By input, the number that it becomes, as the command line writes it."""
        return None if self.value is None else {name: str(value) for name, value in self.value.items()}


@options
class FolderOptions:
    """A plan's folder, and what reads it."""

    directory: Path | None = argument(kw_only=False, default=None)
    progress: Progress = silent


def libraries() -> Any:
    """The runtime's own operators of the user."""
    return option("A library of custom operators for ONNX Runtime; repeatable.", default=(), metavar="LIBRARY.so")
