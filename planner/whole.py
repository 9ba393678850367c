"""Files and folders that are there as a whole or not at all: written beside their name, synced, and then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from planner.errors import UsageError


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Gives a stream to write to, which takes the place of ``target`` when all is written.

    A file that is there keeps its permissions; it stays as it is if the writing ends by an exception.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.resolve().parent, prefix=f".{target.name}.", delete=False
        ) as stream:
            temporary = Path(stream.name)
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
                temporary.chmod(mode & 0o777)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Gives a folder to write files into, which takes the place of ``target`` when all are written.

    A folder that is there is gone then; it stays as it is if the writing ends by an exception.

    Args:
        target: where the folder is to be; folders above it are made if they are not there.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        parent = target.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
        try:
            yield temporary
            for file in sorted(temporary.iterdir()):
                _sync(file)
            temporary.chmod(0o777 & ~_umask())
            if target.exists():
                shutil.rmtree(target)
            temporary.rename(target)
            _sync(parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def _sync(path: Path) -> None:
    """Has a file, or a folder's entries, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
