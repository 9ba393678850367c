"""A report as it is printed: on a terminal of some columns, into a file, or as Markdown."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from planner.printing.sheet import MarkdownSheet, Sheet, TextSheet


class Terminal(io.StringIO):
    """Something that says that it is one."""

    def isatty(self) -> bool:
        return True


def on_terminal(report: Callable[[Sheet], None], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal without colours shows.

    Args:
        report: prints it.
        columns: of the terminal.
        monkeypatch: for the environment that says how wide it is.
    """
    for name, value in {"COLUMNS": str(columns), "LINES": "50", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    file = Terminal()
    report(TextSheet(file))
    return file.getvalue()


def as_text(report: Callable[[Sheet], None]) -> str:
    """What a file gets."""
    file = io.StringIO()
    report(TextSheet(file))
    return file.getvalue()


def as_markdown(report: Callable[[Sheet], None]) -> str:
    """What a comment gets."""
    file = io.StringIO()
    report(MarkdownSheet(file))
    return file.getvalue()
