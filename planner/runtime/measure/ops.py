"""Measured time of a model of one op on a device: the median of repeated runs, less what a run takes beside its ops.

ICML'18 (section 5.1) processes a layer "multiple times on the device" and takes the average; here it is the median,
which a disturbance does not move. Inputs and outputs are bound once, as in a run; the first runs, in which the runtime
lays out memory and a processor wakes up, are not counted. A segment runs many ops at once, so what a run takes beside
its ops is taken off: a chain of tiny ops beside one of them tells it.

On a processor, runs take turns on copies of the arrays, as many as fill its last cache. In a step, too, much lies
between two uses of a tensor: small ops that run again and again on the same arrays take half of what they take there.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from onnx import ModelProto, TensorProto, helper

from planner.errors import TofuError
from planner.graph.core.model import DType, Shape, dtype_of_array
from planner.graph.files.protos import elem_type_of
from planner.runtime.engine.core.sessions import SessionMaker, bind, carried, carried_name, onnxruntime
from planner.runtime.engine.gpu.cuda import MakeSession, plain, stored
from planner.runtime.engine.gpu.cuda_form import cuda_form
from planner.runtime.engine.gpu.cuda_sessions import cuda_session

_WARM_UP_RUNS: Final = 2
_FEWEST_RUNS: Final = 5
_MOST_RUNS: Final = 1000
_ENOUGH_SECONDS: Final = 0.02
"""After so many runs, and so much time, the median is taken."""
_COLD_BYTES: Final = 1 << 25
"""Of all copies of the arrays of an op: the last cache of a large processor."""
_MOST_COPIES: Final = 256
_CHAIN: Final = 33
"""Ops of the model that tells what a run takes beside its ops."""
_DRAWN: Final = 1 << 16
"""Numbers that are drawn for an array; a larger one repeats them."""


class MeasureError(TofuError):
    """A model that cannot be run on the device; ``what`` says why."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of a model."""

    seconds: float
    """The median of its runs, less the overhead; not negative."""
    runs: int
    """How many were timed."""


class Stopwatch(ABC):
    """Times models on one device."""

    kind: Literal["cpu", "cuda"]
    """``cpu`` or ``cuda``."""
    device_name: str
    threads: int
    free_bytes: int
    """Memory that was free at the start."""

    def __init__(self) -> None:
        self.overhead_seconds = 0.0
        """What a run takes beside its ops."""
        short_seconds, long_seconds = (
            self.time(_chain(length), {"x": np.ones(1, np.float32)}, {"y": ((1,), DType.FLOAT32)}).seconds
            for length in (1, _CHAIN)
        )
        self.overhead_seconds = max(0.0, short_seconds - (long_seconds - short_seconds) / (_CHAIN - 1))

    @property
    def runtime(self) -> str:
        """ONNX Runtime's name and version."""
        return f"onnxruntime {onnxruntime().__version__}"

    def time(
        self, model: ModelProto, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[Shape, DType]]
    ) -> Timing:
        """Runs a model until its median is worth something.

        Args:
            model: of standard operators, or of those that libraries bring.
            inputs: an array for every input.
            outputs: shape and dtype of every output.

        Raises:
            MeasureError: the device cannot run it.
        """
        try:
            run = self._prepared(carried(model), inputs, outputs)
            for _ in range(_WARM_UP_RUNS):
                run()
            seconds: list[float] = []
            while len(seconds) < _FEWEST_RUNS or (len(seconds) < _MOST_RUNS and sum(seconds) < _ENOUGH_SECONDS):
                seconds.append(run())
        except Exception as error:
            raise MeasureError(str(error).strip().partition("\n")[0] or type(error).__name__) from error
        return Timing(max(0.0, statistics.median(seconds) - self.overhead_seconds), len(seconds))

    @abstractmethod
    def _prepared(
        self, model: ModelProto, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[Shape, DType]]
    ) -> _Run:
        """What runs the model once and returns its seconds."""


class CpuStopwatch(Stopwatch):
    """Times models on this machine's processor.

    Args:
        threads: that compute one op together.
        libraries: of custom operators.
    """

    kind = "cpu"

    def __init__(self, threads: int, *, libraries: Sequence[Path] = ()) -> None:
        self.threads = threads
        self.device_name = _processor()
        self.free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._maker = SessionMaker(threads, libraries=libraries)
        super().__init__()

    def _prepared(
        self, model: ModelProto, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[Shape, DType]]
    ) -> _Run:
        session = self._maker.session(model)
        arrays: list[Any] = []
        bindings: list[Any] = []
        held_bytes = 0
        while not bindings or (held_bytes < _COLD_BYTES and len(bindings) < _MOST_COPIES):
            operands = {name: (np.array(array, order="C"), dtype_of_array(array)) for name, array in inputs.items()}
            results = {name: (np.full(shape, 0, dtype.array_dtype), dtype) for name, (shape, dtype) in outputs.items()}
            bindings.append(bind(session, operands, results))
            arrays += [*operands.values(), *results.values()]
            held_bytes += sum(array.nbytes for array, _ in (*operands.values(), *results.values()))
        turn = itertools.cycle(bindings)

        def run() -> float:
            binding = next(turn)
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            return time.perf_counter() - start

        return _Run(run, arrays)


class CudaStopwatch(Stopwatch):
    """Times models on a GPU, by events on a stream of its own.

    Args:
        device: the GPU's number.
        cupy: the module, or what stands in for it.
        make_session: makes a session of a model on a GPU and a stream.
    """

    kind = "cuda"
    threads = 1

    def __init__(self, device: int, cupy: Any, make_session: MakeSession = cuda_session) -> None:
        self._device, self._cupy, self._make_session = device, cupy, make_session
        properties = cupy.cuda.runtime.getDeviceProperties(device)
        self.device_name = bytes(properties["name"]).decode(errors="replace").rstrip("\0")
        with cupy.cuda.Device(device):
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self.free_bytes = int(cupy.cuda.runtime.memGetInfo()[0])
        super().__init__()

    def _prepared(
        self, model: ModelProto, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[Shape, DType]]
    ) -> _Run:
        cupy, stream = self._cupy, self._stream
        session, options = self._make_session(cuda_form(model), self._device, stream.ptr)
        binding = session.io_binding()
        # A binding holds addresses alone: the arrays must live as long as it does.
        arrays = []
        with cupy.cuda.Device(self._device):
            for name, array in inputs.items():
                dtype = dtype_of_array(array)
                device_array = cupy.empty(array.shape, stored(dtype))
                device_array.set(plain(np.ascontiguousarray(array).reshape(array.shape)), stream=stream)
                self._bind(binding.bind_input, name, dtype, device_array)
                arrays.append(device_array)
            for name, (shape, dtype) in outputs.items():
                device_array = cupy.empty(shape, stored(dtype))
                self._bind(binding.bind_output, name, dtype, device_array)
                arrays.append(device_array)
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
        stream.synchronize()

        def run() -> float:
            with cupy.cuda.Device(self._device):
                start.record(stream)
                session.run_with_iobinding(binding, options)
                end.record(stream)
                stream.synchronize()
            return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3

        return _Run(run, arrays)

    def _bind(self, bind_one: Callable[..., None], name: str, dtype: DType, array: Any) -> None:
        kind = elem_type_of(dtype.carrier)
        bind_one(carried_name(name, dtype), "cuda", self._device, kind, list(array.shape), array.data.ptr)


@dataclass(frozen=True, slots=True)
class _Run:
    """Runs a session once."""

    run: Callable[[], float]
    arrays: Sequence[Any]
    """What is bound by its address: it lives as long as this does."""

    def __call__(self) -> float:
        return self.run()


def _chain(length: int) -> ModelProto:
    """So many ops of one element, one after the other."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    names = ["x", *(f"x{number}" for number in range(1, length)), "y"]
    nodes = [helper.make_node("Sin", [source], [target]) for source, target in itertools.pairwise(names)]
    graph = helper.make_graph(nodes, "chain", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _processor() -> str:
    """The processor's own name, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()


def made_up(shape: Shape, dtype: DType, below: int | None) -> np.ndarray:
    """Numbers to compute with: positive, so that logarithms and roots are numbers, and far from overflowing.

    Args:
        shape: of the array.
        dtype: of its elements.
        below: integers from 0 up to, and without, this; None: what is no index is 1, or between 0.5 and 1.5.
    """
    rng = np.random.default_rng(0)
    if dtype is DType.BOOL or below is not None:
        drawn: np.ndarray = rng.integers(0, below if below is not None else 2, _DRAWN)
    elif dtype.is_float:
        drawn = rng.uniform(0.5, 1.5, _DRAWN)
    else:
        drawn = np.ones(1)
    return np.resize(drawn.astype(dtype.array_dtype), shape)
