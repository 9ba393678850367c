"""What goes to stdout and stderr: the result there, everything else here."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import TextIO, TypeVar

from planner.report.text import printable

Result = TypeVar("Result")


def show(
    work: Callable[[], Result],
    as_json: Callable[[Result], Mapping[str, object]],
    as_table: Callable[[Result, TextIO], None],
    json_wanted: bool,
) -> Result:
    """Do the work, whose own words go to stderr, and print its result on stdout in the form that is wanted."""
    with contextlib.redirect_stdout(sys.stderr):
        result = work()
    if json_wanted:
        _print_json(as_json(result))
    else:
        as_table(result, sys.stdout)
    return result


def progress() -> Callable[[str], None]:
    """Tells what goes on, on stderr; tells nobody where stderr is no terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        return say
    return lambda _line: None


def _print_json(content: Mapping[str, object]) -> None:
    # Made whole before any of it is printed: stdout holds valid JSON or nothing.
    text = json.dumps(content, indent=2, allow_nan=False)
    print(text)


def say(text: str) -> None:
    """Print on stderr; control characters of a model's names do not reach the terminal."""
    shown = printable(text, keep="\n")
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(_encodable(shown, sys.stderr), file=sys.stderr, flush=True)


def _encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream cannot encode written as an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
