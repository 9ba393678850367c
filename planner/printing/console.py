"""The console of a report: facts, tables and lines of text, for a terminal or for a file.

Names come from models: they are printed as they are (no markup), control characters as escapes, and never shortened
where stdout is not a terminal.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.printable import printable
from planner.printing.tone import takes_colour, tone

_WIDE = 100_000
"""Columns where nothing limits them."""
_NARROW, _BROAD = 80, 120
"""Columns of text: the number where no terminal tells one, and the largest number that is easily read."""


class ReportConsole(Console):
    """A console for results; as wide as the terminal, or without limit where there is none.

    It leaves a closed pipe to the caller: rich's own exits with 1.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__(
            file=file,
            highlight=False,
            markup=False,
            width=None if file.isatty() else _WIDE,
            no_color=not takes_colour(file),
            force_terminal=None if file.isatty() else False,  # no variable of rich's brings colours into a file
        )

        self.columns = min(self.width, _BROAD) if file.isatty() else _columns_without_terminal()
        """How wide text is; names are never shortened to it."""
        self.room = self.width if file.isatty() else _stated_columns() or _NARROW
        """For how many columns a table is laid out; longer names stand out to the right."""

    def widen(self) -> None:
        """Text is as wide from now on as is easily read, where neither a terminal nor the user says how wide."""
        if not self.file.isatty():
            self.columns = min(_stated_columns() or _BROAD, _BROAD)

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled, which goes on to ``planner.commands.main``."""
        raise

    def print_facts(self, facts: Sequence[tuple[str, str]], *, keep: str = "") -> None:
        """Prints names and their values, a line each.

        Args:
            facts: the names are ours, the values may come from a model.
            keep: characters of the values that are printed as they are: a line break in a text of our own.
        """
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in facts:
            table.add_row(_toned(name), _toned(printable(value, keep=keep)))
        self._print_table(table)

    def print_table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        numbers: Sequence[str] = (),
        *,
        is_narrow: bool = False,
    ) -> None:
        """Prints a table without frame; the columns in ``numbers`` stand to the right and are not broken.

        Args:
            columns: heads.
            rows: as many cells in each.
            numbers: some of the heads.
            is_narrow: heads of numbers are broken at each word, and columns stand nearer to each other.
        """
        padding = (0, 1, 0, 0) if is_narrow else (0, 1)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
        for column in columns:
            right = column in numbers
            words = column.replace(" ", "\n") if right and is_narrow else column
            head = Text(printable(words, keep="\n"))
            table.add_column(head, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in rows:
            table.add_row(*(_toned(printable(cell)) for cell in row))
        self._print_table(table)

    def print_paragraphs(self, facts: Sequence[tuple[str, str]]) -> None:
        """Prints names and their values, which are broken between words; longer words stand out to the right.

        Args:
            facts: the names are ours, the values may come from a model.
        """
        widest = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            lines = self._broken(value, widest + 2)
            for number, line in enumerate(lines):
                self.print_line(f"{'' if number else name:<{widest}}  {line}")

    def print_items(self, items: Iterable[tuple[Sequence[str], str, str]]) -> None:
        """Prints items: numbers in columns, a name that is never broken, and a sentence below it.

        Args:
            items: of each its numbers, as many for all; what stands beside them; and the sentence, or "".
        """
        rows = [(tuple(numbers), name, text) for numbers, name, text in items]
        widths = [max(map(len, column)) for column in zip(*(numbers for numbers, _, _ in rows), strict=True)]
        for numbers, name, text in rows:
            cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(numbers, widths, strict=True))
            self.print_line(f"  {cells}  {name}")
            indent = len(cells) + 4
            for line in self._broken(text, indent) if text else ():
                self.print_line(" " * indent + line)

    def print_text(self, text: str, indent: int = 0, *, following: int | None = None) -> None:
        """Prints a text, broken between words.

        Args:
            text: of any origin.
            indent: of its lines.
            following: of all lines but the first, which may be as long as theirs; None: as of the first.
        """
        further = indent if following is None else following
        for number, line in enumerate(self._broken(text, max(indent, further))):
            self.print_line(" " * (further if number else indent) + line)

    def _broken(self, text: str, indent: int) -> list[str]:
        width = max(20, self.columns - indent)
        lines = textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
        return lines or [""]

    def print_line(self, text: str) -> None:
        """Prints a line that only the terminal breaks, so that it is copied as one."""
        self.print(_toned(printable(text)), soft_wrap=True)

    def _print_table(self, table: Table) -> None:
        """Prints a table without the blanks that fill its lines."""
        with self.capture() as captured:
            self.print(table)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _toned(text: str) -> Text:
    """The text in the tone of the word that it begins with."""
    colour = tone(text)
    return Text(text, style="" if colour is None else colour.style)


def _columns_without_terminal() -> int:
    """What the user says that there are, within reason, or few."""
    return min(_stated_columns() or _NARROW, _BROAD)


def _stated_columns() -> int | None:
    """What the user says that there are, if anything, and at least so many as a word takes."""
    stated = os.environ.get("COLUMNS", "")
    return max(int(stated), 40) if stated.isdecimal() else None
