"""Text that comes from models, made fit for a terminal."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with control characters written as escapes, so that a name cannot steer a terminal.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'

    Args:
        text: of any origin.
        keep: characters that stay as they are, such as a line break of our own.
    """
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
