"""Stopwatches: what they count, what they refuse, and a GPU by a stand-in for CuPy and where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from planner.graph.core.model import DType
from planner.runtime.engine.core.sessions import SessionMaker, bind
from planner.runtime.engine.gpu.cuda_form import CudaForm
from planner.runtime.engine.gpu.devices import probe_cuda, require_cuda
from planner.runtime.measure.ops import CpuStopwatch, CudaStopwatch, MeasureError, Stopwatch, Timing, made_up


def model_of(op: str, elem_type: int = TensorProto.FLOAT, domain: str = "") -> ModelProto:
    values = [helper.make_tensor_value_info(name, elem_type, [64, 64]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], domain=domain)], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def timed(watch: Stopwatch, op: str = "Exp", dtype: DType = DType.FLOAT32, **options: Any) -> Timing:
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype.array_dtype))
    model = model_of(op, elem_type, **options)
    return watch.time(model, {"x": made_up((64, 64), dtype, None)}, {"y": ((64, 64), dtype)})


def test_a_processor_times_ops() -> None:
    watch = CpuStopwatch(1)
    assert watch.device_name
    assert watch.runtime.startswith("onnxruntime ")
    assert watch.free_bytes > 0
    assert watch.overhead_seconds >= 0
    # Milliseconds, so that no other load of the machine hides them behind what a run takes beside its ops.
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 512]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    timing = watch.time(model, {"x": np.ones((512, 512), np.float32)}, {"y": ((512, 512), DType.FLOAT32)})
    assert timing.seconds > 0
    assert 5 <= timing.runs <= 1000


class Scripted(Stopwatch):
    """A run takes 7 seconds and one more for each op."""

    def _prepared(self, model: ModelProto, inputs: Any, outputs: Any) -> Callable[[], float]:
        return lambda: 7.0 + len(model.graph.node)


def test_what_a_run_takes_beside_its_ops_is_taken_off() -> None:
    watch = Scripted()
    assert watch.overhead_seconds == 7.0
    assert timed(watch).seconds == 1.0


@pytest.mark.parametrize(("size", "copies"), [(64, 256), (1024, 4), (4096, 1)])
def test_runs_take_turns_on_arrays_that_fill_a_cache(size: int, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[int, int]] = []

    def noted(session: Any, inputs: Any, outputs: Any) -> Any:
        bound.append((inputs["x"][0].ctypes.data, outputs["y"][0].ctypes.data))
        return bind(session, inputs, outputs)

    watch = CpuStopwatch(1)
    monkeypatch.setattr("planner.runtime.measure.ops.bind", noted)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    watch.time(model, {"x": np.ones((size, size), np.float32)}, {"y": ((size, size), DType.FLOAT32)})
    assert len({address for pair in bound for address in pair}) == 2 * copies


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64])
def test_types_that_take_a_detour_are_timed_too(dtype: DType) -> None:
    assert timed(CpuStopwatch(1), "Relu", dtype).runs >= 5


def test_what_has_no_kernel_is_told() -> None:
    with pytest.raises(MeasureError, match="nobody"):
        timed(CpuStopwatch(1), "Unheard", domain="nobody.knows")


@pytest.mark.parametrize("dtype", sorted(DType, key=lambda dtype: dtype.value))
def test_made_up_numbers_are_of_their_type(dtype: DType) -> None:
    array = made_up((3, 5), dtype, None)
    assert array.shape == (3, 5)
    assert array.dtype == dtype.array_dtype
    assert made_up((), dtype, None).shape == ()


def test_made_up_numbers_can_be_computed_with() -> None:
    numbers = made_up((1 << 17,), DType.FLOAT32, None)
    assert 0.5 <= numbers.min() < 0.51
    assert 1.49 < numbers.max() <= 1.5
    assert set(made_up((1000,), DType.INT64, 7).tolist()) == set(range(7))
    assert set(made_up((1000,), DType.INT64, None).tolist()) == {1}, "what is no index may be divided by"
    assert set(made_up((1000,), DType.BOOL, None).tolist()) == {False, True}


class Stream:
    """A stream in whose time every run takes what the clock says."""

    ptr = 7

    def __init__(self, non_blocking: bool = False) -> None:
        self.milliseconds = 0.0

    def synchronize(self) -> None: ...


class Event:
    def record(self, stream: Stream) -> None:
        self.milliseconds = stream.milliseconds


class Array:
    """Memory of the device: whoever wants to read it must say so."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.view, self.shape = np.zeros(shape, dtype), shape

    @property
    def data(self) -> Any:
        return type("Pointer", (), {"ptr": self.view.ctypes.data})

    def set(self, host: np.ndarray, stream: Stream) -> None:
        assert host.dtype == self.view.dtype
        np.copyto(self.view, host)


class Device:
    def __init__(self, number: int) -> None:
        assert number == 3

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class Runtime:
    @staticmethod
    def getDeviceProperties(device: int) -> dict[str, bytes]:  # noqa: N802 -- CUDA's name
        return {"name": b"Made Up 100\0\0"}

    @staticmethod
    def memGetInfo() -> tuple[int, int]:  # noqa: N802 -- CUDA's name
        return 1 << 30, 1 << 31


class Cupy:
    """What of CuPy is used."""

    def __init__(self) -> None:
        members = {"Device": Device, "Stream": Stream, "Event": Event, "runtime": Runtime}
        elapsed: Callable[[Event, Event], float] = lambda start, end: end.milliseconds - start.milliseconds  # noqa: E731
        self.cuda = type("cuda", (), {**members, "get_elapsed_time": staticmethod(elapsed)})

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        return Array(shape, dtype)


class Session:
    """A session of the CPU that takes 5 us of the stream's time, and a microsecond for each 1,024 elements."""

    def __init__(self, session: Any, stream: list[Stream]) -> None:
        self.session, self.stream, self.elements, self.runs = session, stream, 0, 0

    def io_binding(self) -> Any:
        inner, session = self.session.io_binding(), self

        class Binding:
            plain = inner

            def bind_input(self, name: str, kind: str, device: int, *rest: Any) -> None:
                assert (kind, device) == ("cuda", 3)
                inner.bind_input(name, "cpu", 0, *rest)

            def bind_output(self, name: str, kind: str, device: int, *rest: Any) -> None:
                assert (kind, device) == ("cuda", 3)
                session.elements = int(np.prod(rest[1]))
                inner.bind_output(name, "cpu", 0, *rest)

        return Binding()

    def run_with_iobinding(self, binding: Any, options: str) -> None:
        assert options == "asynchronous"
        self.session.run_with_iobinding(binding.plain)
        self.runs += 1
        disturbed = 1.0 if self.runs % 4 == 0 else 0.0
        self.stream[0].milliseconds += 5e-3 + self.elements // 1024 * 1e-3 + disturbed


def test_a_gpu_is_timed_by_events_of_its_stream() -> None:
    streams: list[Stream] = []

    class Kept(Stream):
        def __init__(self, non_blocking: bool = False) -> None:
            super().__init__(non_blocking)
            streams.append(self)

    def session(form: CudaForm, device: int, stream: int) -> tuple[Any, str]:
        assert (device, stream) == (3, Stream.ptr)
        return Session(SessionMaker(1).session(form.model), streams), "asynchronous"

    cupy = Cupy()
    cupy.cuda.Stream = Kept  # type: ignore[attr-defined]
    watch = CudaStopwatch(3, cupy, session)
    assert (watch.kind, watch.device_name, watch.threads, watch.free_bytes) == ("cuda", "Made Up 100", 1, 1 << 30)
    assert watch.overhead_seconds == pytest.approx(5e-6)
    assert timed(watch).seconds == pytest.approx(4e-6), "one of four runs is disturbed, and the median is not"
    assert timed(watch, "Relu", DType.FLOAT64).seconds == pytest.approx(4e-6)


@pytest.mark.gpu
def test_a_gpu_that_is_there() -> None:
    probe = probe_cuda()
    if probe.missing:
        pytest.skip(probe.missing)
    cupy, _ = require_cuda()
    watch = CudaStopwatch(0, cupy)
    assert watch.overhead_seconds > 0
    large = watch.time(model_of("Exp"), {"x": made_up((64, 64), DType.FLOAT32, None)}, {"y": ((64, 64), DType.FLOAT32)})
    assert large.runs >= 5
