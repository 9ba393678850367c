"""How a report is printed: facts, tables and lines of text, for a terminal or for a file.

Names come from models: they are printed as they are (no markup), control characters as escapes, and never shortened
where stdout is not a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.report.text import printable

_WIDE = 100_000
"""Columns where nothing limits them."""


class ReportConsole(Console):
    """A console for results; as wide as the terminal, or without limit where there is none.

    It leaves a closed pipe to the caller: rich's own exits with 1.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__(file=file, highlight=False, markup=False, width=None if file.isatty() else _WIDE)

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled, which goes on to ``cli.main``."""
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
            table.add_row(Text(name), Text(printable(value, keep=keep)))
        self._print_table(table)

    def print_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> None:
        """Prints a table without frame; the columns in ``numbers`` stand to the right and are not broken."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in columns:
            right = column in numbers
            head = Text(printable(column))
            table.add_column(head, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._print_table(table)

    def print_line(self, text: str) -> None:
        """Prints a line that only the terminal breaks, so that it is copied as one."""
        self.print(Text(printable(text)), soft_wrap=True)

    def _print_table(self, table: Table) -> None:
        """Prints a table without the blanks that fill its lines."""
        with self.capture() as captured:
            self.print(table)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
