"""A report as text for a terminal or a file, or as Markdown for a pull request's comment: one content, two forms.

Names come from models and are untrusted. As text they are printed by ``ReportConsole``. In Markdown a name is code: it
is no link, no mention, no HTML and no end of a table's cell, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TextIO, TypeAlias

from planner.printable import printable
from planner.printing.console import ReportConsole

Cells: TypeAlias = Sequence[str]
"""One for each column."""
Columns: TypeAlias = Collection[str]
"""By their heads."""

_PLAIN_CODE = re.compile(r"[\w .,:;/()\[\]{}=+@#*~^$%!?>'\"-]*")
"""What stands in Markdown's code as it is; not so ``<``, ``&``, ``|``, backslashes and backticks."""
_NOT_PLAIN_TEXT = re.compile(r"[^\w .,:;/()=+%'\"-]|(?<!\w)_|_(?!\w)|:(?=/)|(?<=www)\.")
"""What Markdown may take for its own, in a text that is no code."""
_NOT_PLAIN_CODE = re.compile(r"[^A-Za-z0-9 .,:;/()=+-]")
_CALLS = frozenset("@#")
"""Begin the name of a person or an issue. GitHub looks for these when Markdown is HTML already, but not in code."""


class Sheet(Protocol):
    """A surface that a report is printed on."""

    def title(self, text: str) -> None:
        """Prints the title of what follows."""

    def line(self, text: str) -> None:
        """Prints a line, or a paragraph."""

    def table(self, columns: Cells, rows: Iterable[Cells], *, numbers: Columns = (), names: Columns = ()) -> None:
        """Prints a table.

        Args:
            columns: their heads, which are ours.
            rows: a cell for each column.
            numbers: the columns that stand to the right, and are not broken.
            names: the columns whose cells are names, or come from a model in another way.
        """


class TextSheet:
    """Text for people, as wide as the terminal."""

    def __init__(self, file: TextIO) -> None:
        self._console = ReportConsole(file)
        self._last = ""

    def title(self, text: str) -> None:
        self._begin("title", apart=True)
        self._console.print_line(text)

    def line(self, text: str) -> None:
        self._begin("line", apart=self._last == "table")
        self._console.print_line(text)

    def table(self, columns: Cells, rows: Iterable[Cells], *, numbers: Columns = (), names: Columns = ()) -> None:
        self._begin("table", apart=self._last != "title")
        self._console.print_table(columns, rows, tuple(numbers))

    def _begin(self, kind: str, *, apart: bool) -> None:
        """Prints a blank line where one is due before what comes next."""
        if apart and self._last:
            self._console.print()
        self._last = kind


class MarkdownSheet:
    """Markdown for a comment or a job's summary, in GitHub's flavour."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def title(self, text: str) -> None:
        self._file.write(f"### {markdown_text(text)}\n\n")

    def line(self, text: str) -> None:
        self._file.write(f"{markdown_text(text)}\n\n")

    def table(self, columns: Cells, rows: Iterable[Cells], *, numbers: Columns = (), names: Columns = ()) -> None:
        lines = [list(map(markdown_text, columns)), ["---:" if column in numbers else "---" for column in columns]]
        for row in rows:
            lines.append(
                [
                    markdown_code(cell) if column in names else markdown_text(cell)
                    for column, cell in zip(columns, row, strict=True)
                ]
            )
        self._file.writelines(f"| {' | '.join(line)} |\n" for line in lines)
        self._file.write("\n")


def markdown_code(text: str) -> str:
    """A text as code within a line or a table's cell of Markdown.

    >>> markdown_code("fc.weight")
    '`fc.weight`'
    >>> markdown_code("a|b`<script>")
    '<code>a&#124;b&#96;&#60;script&#62;</code>'

    Args:
        text: of any origin.
    """
    shown = printable(text)
    if not shown.strip():
        return "" if not shown else f"<code>{'&#32;' * len(shown)}</code>"
    if _PLAIN_CODE.fullmatch(shown) and shown == shown.strip():
        return f"`{shown}`"
    return f"<code>{_NOT_PLAIN_CODE.sub(_number, shown)}</code>"


def markdown_text(text: str) -> str:
    """A text of which Markdown takes nothing for its own.

    Args:
        text: of any origin.
    """
    return _NOT_PLAIN_TEXT.sub(
        lambda match: f"<code>{match[0]}</code>" if match[0] in _CALLS else _number(match), printable(text)
    )


def _number(match: re.Match[str]) -> str:
    """A character reference, which begins and ends nothing."""
    return f"&#{ord(match[0])};"
