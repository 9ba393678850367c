"""Colours of what is printed, on a terminal that shows them and where NO_COLOR is not set.

What is coloured is a word that says by itself how good or bad the news is, so that nothing is told by colour alone.
"""

from __future__ import annotations

import enum
import os
import re
from typing import TextIO


class Tone(enum.Enum):
    """The colour of news: rich's name of the style, and the terminal's number of it."""

    GOOD = ("green", "32")
    WARNING = ("yellow", "33")
    BAD = ("bold red", "1;31")
    HINT = ("cyan", "36")

    @property
    def style(self) -> str:
        """The style as rich names it."""
        return self.value[0]


_BY_WORD = {
    "verified": Tone.GOOD,
    "NOT verified": Tone.BAD,
    "GREW": Tone.BAD,
    "error": Tone.BAD,
    "warning": Tone.WARNING,
    "hint": Tone.HINT,
}
_WORD = re.compile(r"(NOT verified|verified|GREW|error|warning|hint)(?![\w.-])")


def tone(text: str) -> Tone | None:
    """The tone of a text that begins with a word of one, such as ``NOT verified``; None of any other.

    >>> tone("warning: data are drawn").name, tone("hints.weight")
    ('WARNING', None)
    """
    match = _WORD.match(text)
    return None if match is None else _BY_WORD[match[1]]


def takes_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody has asked for none (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def toned_lines(text: str, stream: TextIO) -> str:
    """The text with the word coloured that each of its lines begins with, where the stream takes colours.

    Args:
        text: lines of ours, in which control characters are escapes already.
        stream: that the text is written to.
    """
    if not takes_colour(stream):
        return text
    return "\n".join(map(_toned_line, text.split("\n")))


def _toned_line(line: str) -> str:
    match = _WORD.match(line)
    if match is None:
        return line
    return f"\x1b[{_BY_WORD[match[1]].value[1]}m{match[0]}\x1b[0m{line[match.end() :]}"
