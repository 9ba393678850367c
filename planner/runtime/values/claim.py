"""A folder of checkpoints belongs to one run at a time: a second one is refused, whoever was killed is succeeded.

The run holds a lock (flock) on ``DIR/.lock``, in which it says who it is. The system gives up the locks of a process
that dies, so a file that is there and not locked was left by one that was killed. Where a file system has no locks, the
words in the file decide: the process is asked for on this host, and believed to live on any other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from planner.errors import UsageError

LOCK: Final = ".lock"
_ATTEMPTS: Final = 5
_MOST_READ_BYTES: Final = 300
_OWNER: Final = re.compile(r"process (\d{1,9}) on (\S+)\n")


@contextmanager
def claimed(directory: Path, notice: Callable[[str], None]) -> Iterator[None]:
    """Keeps a folder of checkpoints for this run, for as long as the context lasts.

    Args:
        directory: made if it is not there, and removed again if nothing was put into it.
        notice: told if the lock of a run that was killed is taken over.

    Raises:
        UsageError: another run has it, or it cannot be written to.
    """
    is_new = not directory.is_dir()
    path = directory / LOCK
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, before = _locked(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        if before:
            notice(f"note: {path} was left by {before}, which has ended: taken over")
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)
        if is_new:
            with contextlib.suppress(OSError):  # it holds checkpoints
                directory.rmdir()


def _locked(path: Path) -> tuple[int, str]:
    """The lock's file, locked, with this process named in it; and who was named there before, "" if nobody was."""
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            owner = os.pread(descriptor, _MOST_READ_BYTES, 0).decode(errors="replace")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(path, owner, "wait until it has ended, or name another folder") from None
            except OSError:  # the file system has no locks
                if _may_live(owner):
                    raise _in_use(path, owner, f"if that run has ended, remove {path}") from None
            # Who ended in between has removed the file that was opened here.
            with contextlib.suppress(FileNotFoundError):
                mine, at_path = os.fstat(descriptor), path.stat(follow_symlinks=False)
                if (mine.st_dev, mine.st_ino) == (at_path.st_dev, at_path.st_ino):
                    owner = os.pread(descriptor, _MOST_READ_BYTES, 0).decode(errors="replace")
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
                    return descriptor, _named(owner) if owner else ""
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise _in_use(path, "", "wait until it has ended, or name another folder")


def _in_use(path: Path, owner: str, hint: str) -> UsageError:
    return UsageError(f"{path.parent} is in use by another run", facts=(_named(owner),), hint=hint)


def _named(owner: str) -> str:
    match = _OWNER.fullmatch(owner)
    return match[0].strip() if match else "a process that has not said which"


def _may_live(owner: str) -> bool:
    """Whether a process that a lock's file names may still be there."""
    match = _OWNER.fullmatch(owner)
    if match is None or match[2] != socket.gethostname():
        return bool(owner)
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
