"""The engine ``local``: workers as threads of a supervised child process.

ONNX Runtime can die of a signal on a valid graph, and an error of the model must be told from that: the child notes
which step each worker is in where the supervisor can read it after its death.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import numpy as np

from planner import errors
from planner.artifacts.program import WorkerProgram
from planner.errors import TofuError, WorkerError
from planner.graph.model import StatePair
from planner.progress import Progress, silent
from planner.runtime.engine.check import describe
from planner.runtime.engine.exchange import Exchange, check_room
from planner.runtime.engine.executor import Iteration
from planner.runtime.engine.interface import Engine
from planner.runtime.engine.patience import PATIENCE_SECONDS, PatientLines, StallError, stall

_FAREWELL_SECONDS: Final = 2.0
_TAIL_BYTES: Final = 65536
_COMMAND: Final = (sys.executable, "-P", "-m", "planner.runtime.engine.child")
"""-P: a file called numpy.py in the working directory is not ours."""


class SupervisedEngine(Engine):
    """Starts the child and speaks for it.

    Args:
        paths: the worker models' files, in order of the workers.
        programs: what they say.
        state: states and their next values.
        device_map: the GPU of each worker; None: on CPUs.
        libraries: of custom operators.
        patience_seconds: how long the workers may go on without a finished step.
        progress: told what the child does until it is ready.
        command: what to start instead of the child, for tests of its death.

    Raises:
        TofuError: the child refused the programs.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        programs: Sequence[WorkerProgram],
        state: Sequence[StatePair] = (),
        *,
        device_map: Sequence[int] | None = None,
        libraries: Sequence[Path] = (),
        patience_seconds: float = PATIENCE_SECONDS,
        progress: Progress = silent,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self.programs = tuple(programs)
        self._progress = progress
        if device_map is None:
            check_room(self.programs)
        self._exchange = Exchange(self.programs)
        self.arena_bytes = self._exchange.arena_bytes
        # In place of a pipe, which nobody would empty while the child runs.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the child
        self._threads: tuple[int, ...] = ()
        home = str(Path(__file__).resolve().parents[2])
        known = os.environ.get("PYTHONPATH")
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,
            pass_fds=(self._exchange.handle,),
            env={
                **os.environ,
                "ORT_DISABLE_TELEMETRY": "1",
                "PYTHONPATH": os.pathsep.join([home, known]) if known else home,
            },
        )
        request = {
            "models": [str(Path(path).resolve()) for path in paths],
            "state": [[pair.current, pair.following] for pair in state],
            "memory": self._exchange.handle,
            "devices": None if device_map is None else list(device_map),
            "libraries": [str(path.resolve()) for path in libraries],
        }
        self._is_on_device = device_map is not None
        self._patience_seconds = patience_seconds
        assert self._process.stdout is not None
        self._answers = PatientLines(self._process.stdout, patience_seconds)
        try:
            answer = self._ask(request)
            self._threads = tuple(answer["threads"])
            self.session_count = int(answer["sessions"])
            self.staging_bytes = tuple(answer["staging_bytes"])
        except BaseException:
            self._kill()
            raise

    @property
    def process_id(self) -> int:
        """The child's."""
        return self._process.pid

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """See ``Engine.array``."""
        return self._exchange.array(worker, buffer)

    def push(self, names: Collection[str] | None = None) -> None:
        """See ``Engine.push``."""
        if self._is_on_device:
            self._ask({"do": "push", "names": None if names is None else list(names)})

    def pull(self, names: Collection[str]) -> None:
        """See ``Engine.pull``."""
        if self._is_on_device:
            self._ask({"do": "pull", "names": list(names)})

    def iterate(self, *, timed: bool = False) -> Iteration:
        """See ``Engine.iterate``."""
        answer = self._ask({"do": "iterate", "timed": timed})
        return Iteration(
            tuple(tuple(moved) for moved in answer["moved_bytes"]),
            float(answer["seconds"]),
            tuple(tuple((waited, took) for waited, took in steps) for steps in answer["timings"]),
        )

    def advance(self) -> None:
        """See ``Engine.advance``."""
        self._ask({"do": "advance"})

    def close(self) -> None:
        """Ends the child: asked first, killed if it does not listen."""
        try:
            if self._process.poll() is None:
                assert self._process.stdin is not None
                self._process.stdin.write(b'{"do": "stop"}\n')
                self._process.stdin.close()
                self._process.wait(_FAREWELL_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self._kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):  # what was not yet written has no reader any more
                    stream.close()
        if not self._complaints.closed:
            self._complaints.close()
            self._exchange.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        answer: dict[str, Any] = {}
        try:
            _write_all(self._process.stdin, json.dumps(request).encode() + b"\n")
            while (line := self._answers.line(self._sign)).endswith(b"\n"):
                answer = json.loads(line)
                if "doing" not in answer:
                    break
                self._progress(str(answer["doing"]))
        except BrokenPipeError:
            line = b""
        except StallError:
            raise stall(
                self.programs,
                self._exchange.whereabouts.tolist(),
                self._patience_seconds,
                is_stopped=_is_stopped(self._process.pid),
            ) from None
        if not line.endswith(b"\n"):
            raise self._death()
        if "error" in answer:
            raise _told(answer["error"])
        return answer

    def _sign(self) -> object:
        """Another value whenever a worker begins a step; before they have begun, always, unless they are stopped."""
        if not self._threads and not _is_stopped(self._process.pid):
            return time.monotonic()
        return self._exchange.whereabouts.tolist()

    def _death(self) -> WorkerError:
        """What to say about a child that ended without being asked."""
        code = self._process.wait()
        how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._complaints.seek(0, os.SEEK_END)
        self._complaints.seek(max(0, self._complaints.tell() - _TAIL_BYTES))
        said = self._complaints.read().decode(errors="replace")
        places = {}
        for program in self.programs:
            number = int(self._exchange.whereabouts[program.worker])
            if 0 <= number < len(program.steps):
                places[program.worker] = describe(program.steps[number])
        guilty = self._guilty(said)
        if guilty is None and len(places) == 1:
            guilty = next(iter(places))
        if guilty in places:
            return WorkerError(f"worker {guilty} {how} in {places[guilty]}", hint=_hint(code))
        last = [line for line in said.splitlines() if line.strip()][-3:] if code >= 0 else []
        return WorkerError(
            f"the workers' process {how}",
            facts=(*(f"worker {worker} was in {place}" for worker, place in places.items()), *last),
            hint=_hint(code),
        )

    def _guilty(self, said: str) -> int | None:
        """The worker whose thread took the signal, if it was one of theirs."""
        current = re.findall(r"^Current thread 0x([0-9a-f]+)", said, re.MULTILINE)
        ident = int(current[-1], 16) if current else None
        return self._threads.index(ident) if ident in self._threads else None


def _write_all(stream: IO[bytes], content: bytes) -> None:
    """Writes to an unbuffered pipe, which may take less than it is given."""
    rest = memoryview(content)
    while rest:
        rest = rest[stream.write(rest) :]


def _is_stopped(process_id: int) -> bool:
    """Whether a child is stopped (SIGSTOP), and not continued since."""
    try:
        return os.waitid(os.P_PID, process_id, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _hint(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the system kills a process that takes too much memory; plan for more workers or a smaller batch"
    if code < 0:
        return "a crash inside ONNX Runtime is a bug there, not in the model; the plan's files reproduce it"
    return ""


def _told(error: dict[str, Any]) -> Exception:
    """The child's error as one of this process."""
    kind = getattr(errors, str(error["kind"]), None)
    if isinstance(kind, type) and issubclass(kind, TofuError):
        return kind(str(error["what"]), facts=tuple(error["facts"]), hint=str(error["hint"]))
    return AssertionError(f"in the workers' process:\n{error['what']}")
