"""A child that runs workers (``child.py``), as its supervisor holds it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from planner.artifacts.program import WorkerProgram
from planner.errors import WorkerError
from planner.runtime.engine.core.check import describe
from planner.runtime.engine.core.executor import Orders


def command_of(module: str) -> tuple[str, ...]:
    """The command that starts a child whose main module this is."""
    return (sys.executable, "-P", "-m", module)  # -P: a file called numpy.py in the working directory is not ours


COMMAND: Final = command_of("planner.runtime.engine.process.child")
_FAREWELL_SECONDS: Final = 2.0
_TAIL_BYTES: Final = 65536


class ChildProcess:
    """A child, started.

    Args:
        workers: that it runs.
        command: what to start.
        memory: the exchange's descriptor.
        orders: what its only worker must know of the others; None: the child runs all workers.
    """

    def __init__(self, workers: Sequence[int], command: Sequence[str], memory: int, orders: Orders | None) -> None:
        self.workers = tuple(workers)
        self.threads: tuple[int, ...] = ()
        """The thread of each worker; () until it has told."""
        self.name = "the workers' process" if orders is None else f"worker {workers[0]}'s process"
        # In place of a pipe, which nobody would empty while the child runs.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the child
        home = str(Path(__file__).resolve().parents[4])
        python_path = os.environ.get("PYTHONPATH")
        with _handed_over(orders) as self.orders:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                bufsize=0,
                pass_fds=(memory, *([] if self.orders is None else [self.orders])),
                env={
                    **os.environ,
                    "ORT_DISABLE_TELEMETRY": "1",
                    "PYTHONPATH": os.pathsep.join([home, python_path]) if python_path else home,
                },
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self.answers: IO[bytes] = self._process.stdout

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP), and not continued since; False where the system does not say."""
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def send(self, request: Mapping[str, Any]) -> None:
        """Asks for something; the answer comes as a line of ``answers``.

        Raises:
            BrokenPipeError: it has gone.
        """
        unsent = memoryview(json.dumps(request).encode() + b"\n")
        while unsent:  # a pipe may take less than it is given
            unsent = unsent[self._requests.write(unsent) :]

    def ask_to_stop(self) -> None:
        """Tells a child that still runs to end."""
        with contextlib.suppress(OSError):
            self._requests.close()

    def end(self, *, patiently: bool) -> None:
        """Takes leave of the child.

        Args:
            patiently: give it time to end by itself.
        """
        if patiently:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_FAREWELL_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._requests, self.answers):
            if not stream.closed:
                with contextlib.suppress(OSError):  # what was not yet written has no reader any more
                    stream.close()
        self._complaints.close()

    def death(self, programs: Sequence[WorkerProgram], whereabouts: Sequence[int]) -> WorkerError:
        """The message about a child that ended without being asked.

        Args:
            programs: of all workers.
            whereabouts: the number of the step that each is in.
        """
        code = self._process.wait()
        how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._complaints.seek(0, os.SEEK_END)
        self._complaints.seek(max(0, self._complaints.tell() - _TAIL_BYTES))
        complaints = self._complaints.read().decode(errors="replace")
        places = {}
        for worker in self.workers:
            number, steps = int(whereabouts[worker]), programs[worker].steps
            if 0 <= number < len(steps):
                places[worker] = describe(steps[number])
        guilty = self._guilty(complaints)
        if guilty is None and len(places) == 1:
            guilty = next(iter(places))
        if guilty in places:
            return WorkerError(f"worker {guilty} {how} in {places[guilty]}", hint=_hint(code))
        last = [line for line in complaints.splitlines() if line.strip()][-3:] if code >= 0 else []
        return WorkerError(
            f"{self.name} {how}",
            facts=(*(f"worker {worker} was in {place}" for worker, place in places.items()), *last),
            hint=_hint(code),
        )

    def _guilty(self, complaints: str) -> int | None:
        """The worker whose thread took the signal, if it was one of theirs."""
        current = re.findall(r"^Current thread 0x([0-9a-f]+)", complaints, re.MULTILINE)
        ident = int(current[-1], 16) if current else None
        return self.workers[self.threads.index(ident)] if ident in self.threads else None


def _hint(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the system kills a process that takes too much memory; plan for more workers or a smaller batch"
    if code < 0:
        return "a crash inside ONNX Runtime is a bug there, not in the model; the plan's files reproduce it"
    return ""


@contextlib.contextmanager
def _handed_over(orders: Orders | None) -> Any:
    """A descriptor of memory that holds orders, to be inherited; None for none."""
    if orders is None:
        yield None
        return
    handle = os.memfd_create("orders", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            pickle.dump(orders, file, pickle.HIGHEST_PROTOCOL)
        os.lseek(handle, 0, os.SEEK_SET)
        yield handle
    finally:
        os.close(handle)
