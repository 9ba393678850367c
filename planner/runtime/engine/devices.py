"""What GPUs there are, asked honestly.

``onnxruntime.get_available_providers()`` lists CUDA on a machine without a GPU, and a CUDA session falls back to the
CPU without a word. So a device counts only if CuPy finds it and a session that may not fall back can be made on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper

from planner.errors import UsageError
from planner.runtime.engine.sessions import cuda_session


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found."""

    count: int
    """GPUs that can be used."""
    missing: str
    """What stands in the way; "" if nothing does."""


def probe_cuda() -> Probe:
    """Whether segments and fetches can run on GPUs here."""
    try:
        import cupy
    except ImportError as error:
        return Probe(0, f"CuPy cannot be imported: {error}")
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # noqa: BLE001 -- CuPy's own exceptions; without a driver even their types are not there
        return Probe(0, f"CuPy finds no GPU: {error}")
    if count == 0:
        return Probe(0, "CuPy finds no GPU")
    try:
        for device in range(count):
            with cupy.cuda.Device(device):
                cuda_session(_smallest_model(), device, cupy.cuda.Stream(non_blocking=True).ptr)
    except Exception as error:  # noqa: BLE001 -- whatever ONNX Runtime raises, it is why there is no session
        return Probe(0, f"ONNX Runtime makes no session on GPU {device} alone: {error}")
    return Probe(count, "")


def require_cuda() -> tuple[Any, int]:
    """The CuPy module and the number of GPUs.

    Raises:
        UsageError: no GPU can be used; says what is missing.
    """
    probe = probe_cuda()
    if probe.missing:
        raise UsageError(
            "--device cuda: no GPU can be used",
            facts=(probe.missing,),
            hint="run with --device cpu, or install tofu[cuda]",
        )
    import cupy

    return cupy, probe.count


def _smallest_model() -> Any:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], "probe", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
