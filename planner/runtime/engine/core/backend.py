"""The backend of a worker: its memory, its sessions, and how its steps wait for those of others.

The executor orders steps by counting them; a backend says what a counted step means. On a CPU a step is done when it
returns. On a GPU it has been put on the worker's stream, and who waits for it lets its own stream wait.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import FunctionProto

from planner.artifacts.on_gpus import OnGpus
from planner.artifacts.program import Segment
from planner.artifacts.worker_model import IR_VERSION, WorkerModel
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.sessions import SessionMaker, bind, body_model, threads_of
from planner.runtime.engine.core.transport import NumpyTransport, Transport

_LARGE_ELEMENTS: Final = 1 << 17
"""Of a segment's largest tensor: below that, ops take less than ca. 0.1 ms, and to wake a thread takes half of it."""
_MOST_THREADS: Final = 4096
"""In the pools of a process, which sleep most of the time; systems limit how many there are."""


class Backend(ABC):
    """Memory, sessions and streams of all workers of a process."""

    transport: Transport
    session_count: int
    """Distinct sessions that were made."""
    staging_bytes: tuple[int, ...]
    """Of each worker: the block for copies of what it cannot read in place."""

    def on_gpus(self) -> OnGpus | None:
        """The summary of the sessions that were made; None on CPUs."""
        return None

    @abstractmethod
    def arrays(self, model: WorkerModel) -> Mapping[str, Any]:
        """The memory of every buffer of a worker, fixed ones filled."""

    @abstractmethod
    def array(self, worker: int, buffer: str) -> Any:
        """The memory of a buffer of any worker, for fetches."""

    @abstractmethod
    def segment(self, segment: Segment, model: WorkerModel, arrays: Mapping[str, Any]) -> Callable[[], tuple[int, ...]]:
        """A segment, bound to its arrays; running it returns (): it takes nothing from others."""

    @abstractmethod
    def enter(self, worker: int) -> None:
        """Called in a worker's thread, before its steps."""

    @abstractmethod
    def wait(self, worker: int, peer: int, count: int) -> None:
        """Called in a worker's thread when another one has counted a step that this one needs."""

    @abstractmethod
    def done(self, worker: int, count: int) -> None:
        """Called in a worker's thread after a step that others wait for, before it is counted."""

    @abstractmethod
    def end(self, worker: int) -> None:
        """Called in a worker's thread after its last step; returns when all of them have been executed."""

    def mark(self, worker: int) -> Any:
        """A moment in a worker's thread, for ``seconds``; of the host's clock, where steps end as they return."""
        return time.perf_counter()

    def seconds(self, worker: int, marks: Sequence[Any]) -> Sequence[float]:
        """The times of the worker's marks, on one clock. Called after ``end``."""
        return marks

    @abstractmethod
    def push(self, worker: int, buffers: Sequence[str]) -> None:
        """Takes what was written to the exchange's memory of loaded buffers."""

    @abstractmethod
    def pull(self, worker: int, buffers: Sequence[str]) -> None:
        """Brings collected buffers to the exchange's memory."""

    @abstractmethod
    def copy(self, target: Any, source: Any) -> None:
        """Copies an array of a worker over another one of the same worker."""


class CpuBackend(Backend):
    """Arrays in the exchange's memory, and sessions of ONNX Runtime bound to them.

    Args:
        exchange: the memory.
        workers: of this machine, which share its processors.
        segments: how many this process may have to make sessions of.
        transport: how arrays get from worker to worker.
        is_shared: sessions share one arena (see ``SessionMaker``).
        libraries: of custom operators.
    """

    def __init__(
        self,
        exchange: Exchange,
        workers: int,
        segments: int,
        *,
        transport: Transport | None = None,
        is_shared: bool = False,
        libraries: Sequence[Path] = (),
    ) -> None:
        self.transport = transport or NumpyTransport()
        self.staging_bytes = (0,) * workers
        self._exchange = exchange
        threads = min(threads_of(workers), 1 + _MOST_THREADS // max(1, segments))
        self._maker: Final = SessionMaker(threads, is_shared=is_shared, libraries=libraries)
        self._bodies: Final = BodyDigests()
        self._sessions: dict[str, Any] = {}
        """By what they compute (``BodyDigests.of``)."""

    @property
    def session_count(self) -> int:  # type: ignore[override]  # read-only here
        """See ``Backend.session_count``."""
        return len(self._sessions)

    def arrays(self, model: WorkerModel) -> Mapping[str, Any]:
        """See ``Backend.arrays``."""
        program = model.program
        arrays = {name: self._exchange.array(program.worker, name) for name in program.buffers}
        for name in program.fixed:
            np.copyto(arrays[name], model.constants[name])
        return arrays

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """See ``Backend.array``."""
        return self._exchange.array(worker, buffer)

    def segment(self, segment: Segment, model: WorkerModel, arrays: Mapping[str, Any]) -> Callable[[], tuple[int, ...]]:
        """See ``Backend.segment``. Functions of equal content share one session, whatever their names."""
        buffers, body = model.program.buffers, model.bodies[segment.function]
        content = self._bodies.of(segment, model)
        if content not in self._sessions:
            largest_elements = max(math.prod(buffers[name].shape) for name in (*segment.inputs, *segment.outputs))
            self._sessions[content] = self._maker.session(
                segment_model(segment, model), is_small=largest_elements < _LARGE_ELEMENTS
            )
        session = self._sessions[content]
        inputs, outputs = (
            {name: (arrays[buffer], buffers[buffer].dtype) for name, buffer in zip(names, mine, strict=True)}
            for names, mine in ((body.input, segment.inputs), (body.output, segment.outputs))
        )
        binding = bind(session, inputs, outputs)

        def compute() -> tuple[int, ...]:
            session.run_with_iobinding(binding)
            return ()

        return compute

    def enter(self, worker: int) -> None:
        """See ``Backend.enter``: nothing to be done."""

    def wait(self, worker: int, peer: int, count: int) -> None:
        """See ``Backend.wait``: what is counted has returned."""

    def done(self, worker: int, count: int) -> None:
        """See ``Backend.done``: nothing to be done."""

    def end(self, worker: int) -> None:
        """See ``Backend.end``: all steps have returned."""

    def push(self, worker: int, buffers: Sequence[str]) -> None:
        """See ``Backend.push``: the arrays lie in the exchange."""

    def pull(self, worker: int, buffers: Sequence[str]) -> None:
        """See ``Backend.pull``: the arrays lie in the exchange."""

    def copy(self, target: Any, source: Any) -> None:
        """See ``Backend.copy``."""
        np.copyto(target, source)


class BodyDigests:
    """The work of segments, as digests: of the function's content, and of the shapes and dtypes it is bound to.

    A function's name says nothing of that: it is another file's word. Two workers share a session where their functions
    have the same nodes, attributes, constants, versions of operators, and kinds of inputs and outputs.
    """

    def __init__(self) -> None:
        self._digests: dict[tuple[int, str], bytes] = {}
        """By worker and function: the digest of the function alone, since many segments call it."""

    def of(self, segment: Segment, model: WorkerModel) -> str:
        """The digest of what a segment of a worker computes."""
        key = (model.program.worker, segment.function)
        if key not in self._digests:
            body = FunctionProto()
            body.CopyFrom(model.bodies[segment.function])
            body.ClearField("name")
            self._digests[key] = hashlib.sha256(body.SerializeToString(deterministic=True)).digest()
        buffers = model.program.buffers
        kinds = [
            [(buffers[name].dtype.value, buffers[name].shape) for name in names]
            for names in (segment.inputs, segment.outputs)
        ]
        return hashlib.sha256(self._digests[key] + repr(kinds).encode()).hexdigest()


def segment_model(segment: Segment, model: WorkerModel) -> Any:
    """A segment's function as a model of its own."""
    buffers = model.program.buffers
    kinds = (
        [(buffers[name].shape, buffers[name].dtype) for name in names] for names in (segment.inputs, segment.outputs)
    )
    return body_model(model.bodies[segment.function], *kinds, ir_version=IR_VERSION)
