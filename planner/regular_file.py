"""Files that somebody else may have written or named: regular ones only, and no larger than such a file can be.

A pipe would be waited for, a device may never end, and looking into one may do something. So a path is looked at before
it is opened, opening never waits, and what was opened is looked at again, for it may be another file by then.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

MOST_BYTES: Final = 2**31 - 1
"""Of a file that is read whole, where nothing else is said: what protobuf allows."""


def kind_fault(status: os.stat_result) -> str:
    """What a file is that is no regular one, in words that follow "it is"; "" for a regular one."""
    if stat.S_ISREG(status.st_mode):
        return ""
    kinds = (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return f"{next((kind for test, kind in kinds if test(status.st_mode)), 'a device')}, not a regular file"


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file; links to one are followed.

    Raises:
        OSError: it is none, or cannot be opened; ``strerror`` says why.
    """
    _require(path.stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _require(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_regular(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file.

    Args:
        path: of the file.
        most_bytes: that it may have; of a larger one nothing is read.

    Raises:
        OSError: it is no such file, too large, or cannot be read; ``strerror`` says why.
    """
    with open_regular(path) as file:
        stated = os.fstat(file.fileno()).st_size
        # Some files of the system state no size, and go on.
        content = b"" if stated > most_bytes else file.read(most_bytes + 1)
    if max(stated, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")
    return content


def digest_of(path: Path) -> str:
    """The sha256 of a regular file, as it stands in manifests.

    Raises:
        OSError: see ``open_regular``.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # its stub wants readinto


def _require(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if fault := kind_fault(status):
        raise OSError(errno.EINVAL, f"it is {fault}")
