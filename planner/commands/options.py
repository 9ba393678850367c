"""Options and arguments that commands share, and the types of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from planner.artifacts.place import is_plan
from planner.errors import UsageError


class Number(click.ParamType[float]):
    """A number within bounds; click's FloatRange lets nan through."""

    name = "number"

    def __init__(self, wanted: str, accepts: Callable[[float], bool]) -> None:
        self._wanted = wanted
        self._accepts = accepts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self._accepts(number):
            self.fail(f"{value!r} is not {self._wanted}", param, ctx)
        return number


POSITIVE = Number("a finite number above zero", lambda number: 0 < number < math.inf)
SHARE = Number("a number from 0 up to, and without, 1", lambda number: 0 <= number < 1)


class Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = (math.nan,)
        if not all(0 <= number < math.inf for number in numbers):
            self.fail(f"{value!r} is not a list of numbers, at least 0, with commas between them", param, ctx)
        return numbers


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers from 1 with commas between them."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not re.fullmatch("[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", str(value)):
            self.fail(f"{value!r} is not a list of whole numbers from 1, such as 2,4,8", param, ctx)
        return tuple(int(part) for part in str(value).split(","))


class LossScale(click.ParamType[Any]):
    """A number, or ``dynamic``."""

    name = "scale"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        return "dynamic" if value == "dynamic" else POSITIVE.convert(value, param, ctx)


NUMBERS = Numbers()
COUNTS = Counts()
LOSS_SCALE = LossScale()


class Assignment(click.ParamType[tuple[str, str]]):
    """NAME=VALUE. The last "=" divides: a tensor's name may hold one, a size or a tiling does not."""

    def __init__(self, name: str, *, size: bool = False) -> None:
        self.name = name
        self._size = size

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, assigned = str(value).rpartition("=")
        name, assigned = name.strip(), assigned.strip()
        if not (equals and name and assigned):
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        if self._size and not re.fullmatch("[1-9][0-9]{0,17}", assigned):
            self.fail(f"{value!r}: the size must be a whole number from 1", param, ctx)
        return name, assigned


def by_name(pairs: Sequence[tuple[str, str]], option: str) -> dict[str, str]:
    """The pairs as a mapping; a name given twice with two values is an error."""
    named: dict[str, str] = {}
    for name, value in pairs:
        if named.setdefault(name, value) != value:
            raise UsageError(f"{option}: {name!r} is given as {named[name]} and as {value}")
    return named


def output_file(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``-o`` of a command that writes one file.

    Args:
        what: its help.
    """
    return click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help=what)


def output_files(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``-o`` of a command that writes several kinds of files, which ``by_suffix`` tells apart.

    Args:
        what: its help: each suffix, and the content of such a file.
    """
    return click.option(
        "-o", "--output", "files", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help=what
    )


def by_suffix(files: Sequence[Path], keywords: Mapping[str, str]) -> dict[str, Path]:
    """The files of ``-o``, by the keyword of Python that says the same.

    Args:
        files: as they were given.
        keywords: by suffix of the file.

    Raises:
        UsageError: a suffix says nothing, or two files have one meaning.
    """
    named: dict[str, Path] = {}
    for file in files:
        keyword = keywords.get(file.suffix)
        if keyword is None:
            raise UsageError(f"-o {file}: what is to be written?", hint=f"end it in {' or '.join(keywords)}")
        if named.setdefault(keyword, file) != file:
            raise UsageError(f"-o {file}, and -o {named[keyword]}: both are of one kind", hint="write one of them")
    return named


def check_count(command: str, gpus: int | None, topology: str | None, model: Path | None = None) -> None:
    """Refuses a command that is not told how many GPUs there are; the folder of a plan tells it."""
    if gpus is None and topology is None and not (model is not None and is_plan(model)):
        raise UsageError(f"{command}: for how many GPUs?", hint="write --gpus K, or --topology with a file or a name")


def check_one_form(*, json_wanted: bool, markdown_wanted: bool) -> None:
    """Refuses a command that is to print its result in two forms at once."""
    if json_wanted and markdown_wanted:
        raise UsageError("--json and --markdown exclude each other", hint="run it twice, or render the JSON")


JSON = click.option(
    "--json", "json_wanted", is_flag=True, help="Print the result as JSON, and nothing else, on stdout."
)
MARKDOWN = click.option(
    "--markdown",
    "markdown_wanted",
    is_flag=True,
    help="Print the result as Markdown, for a comment or a job's summary.",
)
MODEL = click.argument("model", type=click.Path(path_type=Path))


def takes_model(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command MODEL; a file that is not there is refused before anything heavy is imported."""

    @wraps(function)
    def call(model: Path, **options: Any) -> Any:
        from planner.graph.reading.named_file import names_file, require_model

        if names_file(model):
            require_model(model)
        return function(model, **options)

    return MODEL(call)
