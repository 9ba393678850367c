"""The process's own streams: which of them are closed or have no reader, and what is said on stderr."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import sys
from typing import TextIO

from planner.printable import printable
from planner.printing.tone import toned_lines


def say(text: str, *, is_command: bool = False) -> None:
    """Print on stderr; control characters of a model's names do not reach the terminal.

    Args:
        text: without the line break at its end.
        is_command: the text is a line for a CI system to act upon (``printing/annotation.py``), made of escaped names.
    """
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            shown = encodable(text if is_command else printable(text, keep="\n"), sys.stderr)
            sys.stderr.write(toned_lines(shown, sys.stderr) + "\n")
            sys.stderr.flush()


def encodable(text: str, stream: TextIO) -> str:
    """The text with what a stream cannot encode written as an escape.

    Args:
        text: to be written.
        stream: that it is written to.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def is_closed(stream: TextIO | None) -> bool:
    """Whether nothing can be written to a stream: ``tofu plan m.onnx >&-``.

    The next file that the process opens would get its number, and what is meant for the stream would be written there.
    """
    if stream is None:
        return True
    try:
        mode = fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
    except (io.UnsupportedOperation, ValueError, AttributeError):
        return False  # no file: something that stands for the stream, as in tests
    except OSError:
        return True
    return mode == os.O_RDONLY


def are_one(first: TextIO | None, second: TextIO | None) -> bool:
    """Whether two streams lead to one file, pipe or terminal: ``tofu run plan > run.txt 2>&1``."""
    try:
        ends = [os.fstat(stream.fileno()) for stream in (first, second) if stream is not None]
    except (OSError, ValueError, AttributeError):
        return False
    return len(ends) == 2 and os.path.samestat(*ends)


def take_stdin() -> None:
    """Opens stdin on nothing where it is closed, so that no file of ours gets its number."""
    try:
        os.fstat(0)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)


def has_no_reader(stream: TextIO | None) -> bool:
    """Whether the stream is a pipe that nobody reads: a worker's broken pipe must not pass for ours."""
    try:
        if stream is None:
            return False
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):
        return False


def drop_output() -> None:
    """Lets the interpreter's last flush of stdout go nowhere, or it would fail once more and change the exit code."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
