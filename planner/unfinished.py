"""Unfinished files, under names of their own; and what killed processes left of it.

    .NAME.xxxxxxxx.tofu-unfinished    becomes NAME when it is whole
    .NAME.xxxxxxxx.tofu-replaced      was NAME; it goes when its replacement is there

Whoever writes holds a lock on it. The system gives up the locks of a process that dies, so what has such a name and is
not locked has no owner any more. Where a file system has no locks, names without the last part are used, which nobody
sweeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_UNFINISHED: Final = ".tofu-unfinished"
_REPLACED: Final = ".tofu-replaced"
_ATTEMPTS: Final = 5
_NAME: Final = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}(?P<kind>\.tofu-unfinished|\.tofu-replaced)", re.DOTALL)


@contextmanager
def unfinished(target: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Gives an empty file or folder beside the target, to be filled and renamed; what is not renamed is removed.

    Args:
        target: what it is to become, in a folder that is there.
        is_folder: a folder, not a file.
    """
    sweep(target.parent)
    with contextlib.ExitStack() as stack:
        path = _begun(target, stack, is_folder=is_folder)
        stack.callback(_remove, path)
        yield path


def _begun(target: Path, stack: contextlib.ExitStack, *, is_folder: bool) -> Path:
    """An empty file or folder, locked, unless the file system has no locks."""
    for _ in range(_ATTEMPTS):
        path = _created(target, _UNFINISHED, is_folder=is_folder)
        # Until it is locked, a sweep of another process may take it for a leftover: then there is another one.
        if stack.enter_context(_held(path)):
            return path
        _remove(path)
    return _created(target, "", is_folder=is_folder)


def _created(target: Path, suffix: str, *, is_folder: bool) -> Path:
    prefix = f".{target.name}."
    if is_folder:
        return Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=target.parent))
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=target.parent)
    os.close(descriptor)
    return Path(name)


def replace_folder(source: Path, target: Path) -> None:
    """Renames a folder to one that may be there, which goes; one that is killed meanwhile leaves one or the other.

    Raises:
        OSError: it cannot be done; the target is what it was.
    """
    if not os.path.lexists(target):
        source.rename(target)
        return
    if target.is_symlink() or not target.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(target))
    with _held(target):
        old = target.rename(target.with_name(f".{target.name}.{secrets.token_hex(4)}{_REPLACED}"))
        try:
            source.rename(target)
        except BaseException:
            old.rename(target)
            raise
        _remove(old)


def remove_folder(target: Path) -> None:
    """Removes a folder; a process that is killed meanwhile leaves all of it or nothing under its name."""
    with _held(target):
        _remove(target.rename(target.with_name(f".{target.name}.{secrets.token_hex(4)}{_UNFINISHED}")))


def sweep(folder: Path) -> None:
    """Removes what killed processes left unfinished in a folder, and puts back what they had not yet replaced."""
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                with contextlib.suppress(OSError):
                    _sweep_one(path, folder / match["name"], is_unfinished=match["kind"] == _UNFINISHED)


def _sweep_one(path: Path, target: Path, *, is_unfinished: bool) -> None:
    with _held(path) as is_held:
        if not is_held:
            return
        if is_unfinished or os.path.lexists(target):
            _remove(path)
        else:
            path.rename(target)


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Locks a file or folder of ours, if nobody else has, for as long as this process lives; tells whether it did."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor, path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine, path_stat = os.fstat(descriptor), os.lstat(path)
    except OSError:
        return False
    # What was renamed in between is somebody else's again.
    return (mine.st_dev, mine.st_ino) == (path_stat.st_dev, path_stat.st_ino) and mine.st_uid == os.geteuid()


def _remove(path: Path) -> None:
    """Removes what is there, also where an interrupt comes meanwhile; what is left stays for the next sweep."""
    try:
        _try_to_remove(path)
    except BaseException:
        _try_to_remove(path)
        raise


def _try_to_remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
