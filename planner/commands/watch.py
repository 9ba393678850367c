"""A rank under watch: what mpiexec has started waits for a process that does the work, and tells of its death.

A launcher says of a rank that dies by a signal at most which process it was, each in its own words. Whoever watches it
says which worker it was and in which step, and has all ranks end with the exit code of a worker that failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import time
from types import FrameType
from typing import Final, NoReturn

from planner.commands.exit_codes import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_TERMINATED,
    EXIT_USAGE,
    EXIT_WORKER,
)
from planner.errors import TofuError

_LAUNCHED: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables by which launchers tell a process its rank."""
_TEXT_AT: Final = 1 << 20
"""Where the words begin in a note; before them, the number of the step of each worker, eight bytes each."""
_SET_PARENT_DEATH_SIGNAL: Final = 1
_FAREWELL_SECONDS: Final = 5.0
_HEARING_SECONDS: Final = 0.5
_TOLD: Final = (EXIT_WORKER, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED)
"""Exit codes of a process that has said why."""


def watched() -> int | None:
    """In a process that a launcher has started: goes on in a child of it, and waits for that one here.

    Returns:
        In the child, a file in which it may note where it is (``planner.runtime.engine.mpi.message_engine``); where no
        launcher is, None, and nothing has happened.
    """
    if not any(name in os.environ for name in _LAUNCHED):
        return None
    with tempfile.TemporaryFile() as file:
        note = os.dup(file.fileno())
    os.ftruncate(note, _TEXT_AT)
    sys.stdout.flush()
    sys.stderr.flush()
    watcher = os.getpid()
    child = os.fork()
    if child:
        _watch(child, note)
    # A launcher may send Ctrl-C to all processes of a group, and one Ctrl-C must not reach the child twice.
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(EXIT_TERMINATED)
    return note


def _watch(child: int, note: int) -> NoReturn:
    interrupts = 0

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if number == signal.SIGINT and interrupts == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)  # it finishes its step, or ends
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os._exit(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == EXIT_DONE:
        os._exit(code)
    # A launcher to which the child has said that all must end does so; it must not hear first that one has ended.
    time.sleep(_HEARING_SECONDS)
    if code in (EXIT_NO, EXIT_USAGE):
        os._exit(code)
    if code not in _TOLD:
        os.write(2, f"error: {_death(code, note)}\n".encode(errors="replace"))
        time.sleep(_HEARING_SECONDS)  # a launcher that ends all drops what it has not yet read
        code = EXIT_WORKER
    # Hydra, MPICH's launcher, ends with the signal by which it then kills the others, unless a rank asks to abort.
    if "HYDI_CONTROL_FD" in os.environ and "PMI_FD" in os.environ:
        with contextlib.suppress(OSError, ValueError):
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=%d\n" % code)
            time.sleep(_FAREWELL_SECONDS)
    os._exit(code)


def _death(code: int, note: int) -> TofuError:
    """What to say of a rank that died by a signal, or ended without a word."""
    how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    rank = next((os.environ[name] for name in _LAUNCHED if name in os.environ), "?")
    hint = ""
    if code == -signal.SIGKILL:
        hint = "the system kills a process that takes too much memory; plan for more workers or a smaller batch"
    text = os.pread(note, os.fstat(note).st_size, _TEXT_AT)
    if not text:
        return TofuError(f"rank {rank} on {socket.gethostname()} {how} before it had begun", hint=hint)
    record = json.loads(text)
    worker, steps = int(record["worker"]), record["steps"]
    step = int.from_bytes(os.pread(note, 8, 8 * worker), sys.byteorder, signed=True)
    place = f"in {steps[step]}" if 0 <= step < len(steps) else "between iterations"
    return TofuError(
        f"worker {worker} {how} {place}", facts=(f"on rank {rank}, host {socket.gethostname()}",), hint=hint
    )
