"""The result of a command on stdout, what it does until then on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO, TypeVar

from planner.commands.progress_line import ProgressLine, how_much, progress_line
from planner.commands.streams import say

Result = TypeVar("Result")


def show(
    work: Callable[[ProgressLine], Result],
    json_wanted: bool,
    doing: str = "",
    as_table: Callable[[Result, TextIO], None] | None = None,
) -> Result:
    """Do the work, whose own words go to stderr, and print its result on stdout in the form that is wanted.

    Args:
        work: is given the line that tells what it does.
        json_wanted: as JSON; else as a table for people.
        doing: what the work does first, as the line tells it.
        as_table: prints the table; None: as ``planner.show`` prints it.
    """
    with progress_line(doing) as line, contextlib.redirect_stdout(sys.stderr):
        result = work(line)
    if json_wanted:
        from planner.records import plain_record

        _print_json(plain_record(result))
    elif as_table is not None:
        as_table(result, sys.stdout)
    else:
        from planner import api

        api.show(result)
    return result


def chosen_plan(directory: Path | None) -> Path:
    """The plan's folder; where none is named it is the newest in the working directory, and stderr says which.

    Args:
        directory: the folder, or None.

    Raises:
        UsageError: it holds no plan, or there is none.
    """
    from planner.artifacts.place import newest_note, require_plan

    folder = require_plan(directory)
    if directory is None and how_much() != "quiet":
        say(newest_note(folder))
    return folder


def _print_json(content: Mapping[str, object]) -> None:
    import json

    # Made whole before any of it is printed: stdout holds valid JSON or nothing.
    text = json.dumps(content, indent=2, allow_nan=False)
    print(text)
