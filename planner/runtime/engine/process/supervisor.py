"""The engines ``local`` and ``processes``: workers as threads of a supervised child, or each in a child of its own.

ONNX Runtime can die of a signal on a valid graph, and an error of the model must be told from that: a child notes
which step each worker is in where the supervisor can read it after its death.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from planner import errors
from planner.artifacts.on_gpus import OnGpus
from planner.artifacts.program import WorkerProgram
from planner.errors import TofuError
from planner.graph.core.model import StatePair
from planner.progress import Progress, silent
from planner.records import reader
from planner.runtime.engine.core.exchange import Exchange, as_seen_by, check_room
from planner.runtime.engine.core.executor import Iteration, Orders, orders_of
from planner.runtime.engine.core.interface import Engine
from planner.runtime.engine.core.peers import NOT_BEGUN
from planner.runtime.engine.core.sessions import threads_of
from planner.runtime.engine.process.child_process import COMMAND, ChildProcess
from planner.runtime.engine.process.patience import PATIENCE_SECONDS, PatientLines, StallError, stall
from planner.runtime.engine.process.shared_peers import require_futexes
from planner.strict_json import Value


class SupervisedEngine(Engine):
    """Starts the children and speaks for them.

    Args:
        paths: the worker models' files, in order of the workers.
        programs: what they say.
        state: states and their next values.
        is_apart: each worker has a process of its own; else all share one.
        device_map: the device of each worker, () for those in turn, if the command starts a child that has some; None:
            on CPUs.
        libraries: of custom operators.
        patience_seconds: how long the workers may go on without a finished step.
        progress: told what the children do until they are ready.
        command: what to start as a child: it has other devices than CPUs, or is for tests of its death.

    Raises:
        TofuError: the programs are refused, or workers in processes of their own cannot run here.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        programs: Sequence[WorkerProgram],
        state: Sequence[StatePair] = (),
        *,
        is_apart: bool = False,
        device_map: Sequence[int] | None = None,
        libraries: Sequence[Path] = (),
        patience_seconds: float = PATIENCE_SECONDS,
        progress: Progress = silent,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.programs = tuple(programs)
        self._progress = progress
        crews = [tuple(range(len(self.programs)))]
        orders: list[Orders | None] = [None]
        if is_apart:
            require_futexes()
            crews = [(program.worker,) for program in self.programs]
            all_orders = orders_of(self.programs, state)
            orders = [replace(all_orders, programs=as_seen_by(worker, self.programs)) for (worker,) in crews]
        if device_map is None:
            check_room(self.programs)
            self.threads = threads_of(len(self.programs))
        self._exchange = Exchange(self.programs)
        self.arena_bytes = self._exchange.arena_bytes
        self._is_on_device = device_map is not None
        self._patience_seconds = patience_seconds
        self._pushed: set[str] = set()
        """Tensors that the next message pushes."""
        self._pulled: set[str] = set()
        """Tensors that have been pulled since the last iteration."""
        self._has_begun = False
        self._is_closed = False
        self._children: list[ChildProcess] = []
        try:
            for crew, mine in zip(crews, orders, strict=True):
                self._children.append(ChildProcess(crew, command, self._exchange.handle, mine))
            self._answers = PatientLines([child.answers for child in self._children], patience_seconds)
            answers = self._ask(
                *(
                    {
                        "models": [str(Path(paths[worker]).resolve()) for worker in child.workers],
                        "state": [[pair.current, pair.following] for pair in state],
                        "memory": self._exchange.handle,
                        "orders": child.orders,
                        "devices": None if device_map is None else list(device_map),
                        "libraries": [str(path.resolve()) for path in libraries],
                    }
                    for child in self._children
                )
            )
            # On devices, processes answer twice: all have made their memory there before any of them opens another's.
            if "lends" in answers[0]:
                answers = self._ask({"lent": [answer["lends"] for answer in answers]})
            for child, answer in zip(self._children, answers, strict=True):
                child.threads = tuple(answer["threads"])
            self._has_begun = True
            self.session_count = sum(int(answer["sessions"]) for answer in answers)
            self.staging_bytes = tuple(map(max, zip(*(answer["staging_bytes"] for answer in answers), strict=True)))
        except BaseException:
            self._kill()
            raise

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The children's."""
        return tuple(child.process_id for child in self._children)

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """See ``Engine.array``."""
        return self._exchange.array(worker, buffer)

    def push(self, names: Collection[str] | None = None) -> None:
        """See ``Engine.push``; some tensors go with the next message."""
        if self._is_on_device and names is None:
            self._ask({"push": None, "iterate": None, "pull": []})
        elif self._is_on_device and names is not None:
            self._pushed |= {*names}

    def pull(self, names: Collection[str]) -> None:
        """See ``Engine.pull``."""
        missing = sorted({*names} - self._pulled)
        if self._is_on_device and missing:
            self._do(None, missing)

    def _do(self, iterate: Mapping[str, bool] | None, pull: Collection[str]) -> list[dict[str, Any]]:
        """The only message of a step: what was pushed goes with it, and what is pulled comes with the answer."""
        answers = self._ask({"push": sorted(self._pushed), "iterate": iterate, "pull": list(pull)})
        self._pushed.clear()
        self._pulled |= {*pull}
        return answers

    @property
    def on_gpus(self) -> OnGpus | None:  # type: ignore[override]  # read-only here
        """See ``Engine.on_gpus``; as it is now, since kernels take workspaces when they run first."""
        if not self._is_on_device:
            return None
        return OnGpus.of_processes([reader(OnGpus)(Value(answer["on_gpus"])) for answer in self._do(None, ())])

    def iterate(self, *, timed: bool = False, advances: bool = False, wanted: Sequence[str] = ()) -> Iteration:
        """See ``Engine.iterate``."""
        self._exchange.counts[:] = NOT_BEGUN
        self._pulled.clear()
        answers = self._do({"timed": timed, "advances": advances}, wanted if self._is_on_device else ())
        return Iteration(
            tuple(tuple(moved) for answer in answers for moved in answer["moved_bytes"]),
            max(float(answer["seconds"]) for answer in answers),
            tuple(tuple((waited, took) for waited, took in steps) for answer in answers for steps in answer["timings"]),
        )

    def close(self) -> None:
        """Ends the children: asked first, killed if they do not listen."""
        for child in self._children:
            child.ask_to_stop()
        self._end(patiently=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._kill()

    def _kill(self) -> None:
        self._end(patiently=False)

    def _end(self, *, patiently: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            for child in self._children:
                child.end(patiently=patiently)
            self._exchange.close()

    def _ask(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """The answer of each child to one request, or to one of its own.

        The first that refuses or dies is told: others may then wait for it for ever.
        """
        if len(requests) == 1:
            requests *= len(self._children)
        answers: dict[int, dict[str, Any]] = {}
        try:
            # All requests go out before the first answer is read: in an iteration the children wait for each other.
            for place, (child, request) in enumerate(zip(self._children, requests, strict=True)):
                try:
                    child.send(request)
                except BrokenPipeError:
                    raise self._death(place) from None
            while len(answers) < len(self._children):
                place, line = self._answers.line(self._sign)
                if not line.endswith(b"\n"):
                    raise self._death(place)
                answer = json.loads(line)
                if "error" in answer:
                    raise _error_of(answer["error"])
                if "doing" in answer:
                    self._progress(str(answer["doing"]))
                else:
                    answers[place] = answer
        except StallError:
            raise stall(
                self.programs,
                self._exchange.whereabouts.tolist(),
                self._patience_seconds,
                stopped=next((child.name for child in self._children if child.is_stopped), ""),
            ) from None
        return [answers[place] for place in range(len(self._children))]

    def _sign(self) -> object:
        """Another value whenever a worker begins a step; before they have begun, always, unless one is stopped."""
        if not self._has_begun and not any(child.is_stopped for child in self._children):
            return time.monotonic()
        return self._exchange.whereabouts.tolist()

    def _death(self, place: int) -> TofuError:
        return self._children[place].death(self.programs, self._exchange.whereabouts.tolist())


def _error_of(error: dict[str, Any]) -> Exception:
    """A child's error as one of this process."""
    kind = getattr(errors, str(error["kind"]), None)
    if isinstance(kind, type) and issubclass(kind, TofuError):
        return kind(str(error["what"]), facts=tuple(error["facts"]), hint=str(error["hint"]))
    return AssertionError(f"in the workers' process:\n{error['what']}")
