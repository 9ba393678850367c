"""Text that comes from models, made fit for terminals and for the logs of CI systems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_COMMAND: Final = re.compile(r"^(\s*)(?:(:)(?=:)|(#)(?=#\[))", re.MULTILINE)
"""What begins a line that GitHub, or Azure, takes for a command: ``::error::``, ``##[error]``, indented or not."""


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with control characters written as escapes, so that a name cannot steer a terminal or begin a line.

    No line of it is a command to a CI system that reads a job's output.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    >>> printable("a\n::error::b"), printable("::error::b")
    ('a\\n::error::b', '\\x3a:error::b')

    Args:
        text: of any origin.
        keep: characters that stay as they are, such as a line break of our own.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
    return _COMMAND.sub(_escaped, text) if "::" in text or "##[" in text else text


def some(names: Sequence[str], limit: int = 4) -> str:
    """The first names, and how many more there are; ``none`` of no names.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:limit]) + (f" and {len(names) - limit:,} more" if len(names) > limit else "") or "none"


def _escaped(match: re.Match[str]) -> str:
    return f"{match[1]}\\x{ord(match[2] or match[3]):02x}"
