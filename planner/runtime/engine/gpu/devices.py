"""GPUs of this machine, and a test that they compute.

``onnxruntime.get_available_providers()`` lists CUDA on a machine without a GPU, a CUDA session falls back to the CPU
without a word, and one that is made proves little: cuDNN's parts are loaded when they are first needed. So a device
counts only if the libraries load, CuPy finds it, and a convolution, a product and a fetch on it give right numbers.

Only the process that computes may ask: on a GPU in exclusive mode another one would be in its way.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from planner.errors import UsageError
from planner.installed import distributions_of, runtime_instead
from planner.runtime.engine.core.sessions import SessionMaker, onnxruntime
from planner.runtime.engine.gpu.cuda_form import cuda_form
from planner.runtime.engine.gpu.cuda_sessions import cuda_session
from planner.runtime.engine.gpu.fetches.cuda_fetch import fetch_is_right

LIBRARIES: Final = (
    ("libcuda.so.1", "NVIDIA's driver, 580 or later for CUDA 13"),
    ("libcudart.so.13", "nvidia-cuda-runtime"),
    ("libcublasLt.so.13", "nvidia-cublas"),
    ("libcublas.so.13", "nvidia-cublas"),
    ("libcurand.so.10", "nvidia-curand"),
    ("libcudnn.so.9", "nvidia-cudnn-cu13"),
)
"""What the pinned ONNX Runtime's CUDA provider names, in an order in which each finds those that it needs, and what
brings it; all but the driver come with tofu's extra ``cuda``."""
_LEAST_CAPABILITY: Final = 75
"""CUDA 13 has no kernels for older GPUs."""
_CLOSE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe."""

    count: int
    """GPUs that can be used."""
    missing: str
    """What stands in the way; "" if nothing does."""
    hint: str = ""
    """What to do about it."""


def missing_libraries() -> tuple[tuple[str, str], ...]:
    """Loads the libraries of ONNX Runtime's CUDA provider, from the packages of the extra ``cuda`` where they are.

    Returns:
        What the loader says of each that does not load, and what brings it.
    """
    onnxruntime().preload_dlls()
    failures = []
    for name, source in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError as error:
            failures.append((str(error), source))
    return tuple(failures)


def probe_cuda(devices: Sequence[int] | None = None) -> Probe:
    """Whether segments and fetches can run on GPUs here.

    Args:
        devices: those that are to be tried, of all that are there; None: all.
    """
    if not onnxruntime().cuda_version:
        have = ", ".join(map(str, distributions_of("onnxruntime"))) or f"onnxruntime {onnxruntime().__version__}"
        return Probe(0, f"the installed ONNX Runtime has no CUDA: {have}", runtime_instead())
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return Probe(0, f"CuPy cannot be imported: {error}", _INSTALL)
    lacking = missing_libraries()
    if lacking:
        return Probe(0, "; ".join(text for text, _ in lacking), f"install {_joined(source for _, source in lacking)}")
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # noqa: BLE001 -- CuPy's own exceptions; without a driver even their types are not there
        return Probe(0, f"CuPy finds no GPU: {error}", _INSTALL)
    if count == 0:
        return Probe(0, "CuPy finds no GPU", _INSTALL)
    if mismatch := _mismatch(cupy):
        return Probe(0, mismatch, _INSTALL)
    for device in sorted(set(range(count) if devices is None else devices) & set(range(count))):
        try:
            finding = _trial(cupy, device)
        except Exception as error:  # noqa: BLE001 -- whatever CuPy or ONNX Runtime raises is why it cannot be used
            finding = f"{type(error).__name__}: {error}"
        if finding:
            return Probe(
                0, f"GPU {device}: {finding}", "choose others with --device cuda:N,N,..., or run with --device cpu"
            )
    return Probe(count, "")


_INSTALL: Final = "run with --device cpu, or install tofu with its extra `cuda` (docs/install.md)"


def require_cuda(devices: Sequence[int] | None = None) -> tuple[Any, int]:
    """The CuPy module and the number of GPUs.

    Args:
        devices: those that are to be used; None: all.

    Raises:
        UsageError: no GPU can be used; says what is missing.
    """
    probe = probe_cuda(devices)
    if probe.missing:
        raise UsageError("--device cuda: no GPU can be used", facts=(probe.missing,), hint=probe.hint)
    return importlib.import_module("cupy"), probe.count


def _joined(sources: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(sources))


def _mismatch(cupy: Any) -> str:
    """What does not go together of the CUDA versions; "" if all does."""
    mine = int(str(onnxruntime().cuda_version).split(".")[0])
    cupy_version, driver = (int(ask()) // 1000 for ask in (
        cupy.cuda.runtime.runtimeGetVersion, cupy.cuda.runtime.driverGetVersion
    ))  # fmt: skip
    if cupy_version != mine:
        return f"ONNX Runtime is built with CUDA {mine}, and CuPy with CUDA {cupy_version}"
    if driver < mine:
        return f"the driver is made for CUDA {driver}, and ONNX Runtime is built with CUDA {mine}"
    return ""


def _trial(cupy: Any, device: int) -> str:
    """What is wrong with a GPU; "" if it computes."""
    capability = int(cupy.cuda.Device(device).compute_capability)
    if capability < _LEAST_CAPABILITY:
        return f"its compute capability is {capability / 10}, and CUDA 13 needs {_LEAST_CAPABILITY / 10}"
    with cupy.cuda.Device(device):
        stream = cupy.cuda.Stream(non_blocking=True)
        for model, inputs in _trials():
            (name,) = (node.op_type for node in model.graph.node)
            (wanted,) = SessionMaker(1).session(model, is_judge=True).run(None, inputs)
            numbers = _run_on(cupy, device, stream, model, inputs, wanted)
            if not np.allclose(numbers, wanted, rtol=_CLOSE, atol=_CLOSE):
                return f"{name} gives other numbers than on the CPU: {_first(numbers, wanted)}"
    return "" if fetch_is_right(cupy, device) else "a fetch gives wrong numbers"


def _run_on(
    cupy: Any, device: int, stream: Any, model: ModelProto, inputs: dict[str, np.ndarray], template: np.ndarray
) -> np.ndarray:
    """What a model gives on a GPU, its arrays copied there, copied once more, and back."""
    session, options = cuda_session(cuda_form(model), device, stream.ptr)
    binding = session.io_binding()
    operands = []
    for name, array in inputs.items():
        first, second = (cupy.empty(array.shape, array.dtype) for _ in range(2))
        first.set(array, stream=stream)
        stream.use()
        cupy.copyto(second, first)
        binding.bind_input(name, "cuda", device, TensorProto.FLOAT, list(array.shape), second.data.ptr)
        operands += [first, second]
    output = cupy.empty(template.shape, template.dtype)
    binding.bind_output("y", "cuda", device, TensorProto.FLOAT, list(template.shape), output.data.ptr)
    session.run_with_iobinding(binding, options)
    numbers = np.full_like(template, np.nan)
    output.get(stream=stream, out=numbers)
    stream.synchronize()
    return numbers


def _trials() -> Iterator[tuple[ModelProto, dict[str, np.ndarray]]]:
    """A convolution, which needs cuDNN, and a product, which needs cuBLAS, with their operands."""
    rng = np.random.default_rng(0)
    for node, shapes, result in (
        (
            helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
            ((2, 8, 16, 16), (8, 8, 3, 3)),
            (2, 8, 16, 16),
        ),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), ((64, 32), (32, 48)), (64, 48)),
    ):
        inputs = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in zip("xw", shapes, strict=True)}
        yield _model(node, inputs, result), inputs


def _model(node: NodeProto, inputs: dict[str, np.ndarray], result: Sequence[int]) -> ModelProto:
    operands = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, list(result))
    graph = helper.make_graph([node], "probe", operands, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _first(numbers: np.ndarray, wanted: np.ndarray) -> str:
    place = np.unravel_index(int(np.argmax(~np.isclose(numbers, wanted, rtol=_CLOSE, atol=_CLOSE))), wanted.shape)
    return f"{numbers[place]} in place of {wanted[place]}"
