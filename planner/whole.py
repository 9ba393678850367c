"""Files and folders that are there as a whole or not at all: written beside their name, synced, and then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from planner.errors import UsageError
from planner.unfinished import replace_folder, unfinished


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Gives a stream to write to, which takes the place of ``target`` when all is written.

    A file that is there keeps its permissions; it stays as it is if the writing ends by an exception.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        with unfinished(target.resolve().parent / target.name) as temporary:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
            temporary.chmod(mode & 0o777)
            temporary.replace(target)
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
        with unfinished(parent / target.name, is_folder=True) as temporary:
            yield temporary
            for file in sorted(temporary.iterdir()):
                _sync(file)
            temporary.chmod(0o777 & ~_umask())
            _sync(temporary)
            replace_folder(temporary, parent / target.name)
            _sync(parent)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def try_file(target: Path) -> None:
    """Refuses, before the work, a file that could not be written after it.

    Args:
        target: a file that may be there.

    Raises:
        UsageError: it is no regular file, there is no folder for it, or nothing can be written there.
    """
    if target.is_dir():
        raise UsageError(f"{target} cannot be written: it is a folder")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} cannot be written: it is no regular file")
    parent = target.resolve().parent
    if not parent.is_dir():
        raise UsageError(
            f"{target} cannot be written: there is no folder {target.parent}",
            hint="make it first; a plan's folder and one of checkpoints are made, with those above them",
        )
    _try_within(parent, target)


def try_folder(target: Path, *, is_replaced: bool = False) -> None:
    """Refuses, before the work, a folder that could not be written after it.

    Args:
        target: a folder that may be there; folders above it are made if they are not there.
        is_replaced: all of it will be, and not files inside of it.

    Raises:
        UsageError: something else is there, or nothing can be written there.
    """
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} cannot be written: it is no folder")
    _try_within(target.resolve().parent if is_replaced else target.resolve(), target)


def _try_within(folder: Path, target: Path) -> None:
    """Makes a file without a name in a folder, or in the nearest above it that is there."""
    try:
        while not os.path.lexists(folder):
            folder = folder.parent
        if not folder.is_dir():
            raise UsageError(f"{target} cannot be written: {folder} is no folder")
        with tempfile.TemporaryFile(dir=folder):
            pass
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
