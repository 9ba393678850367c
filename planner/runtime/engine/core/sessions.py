"""ONNX Runtime, as this project uses it: one way to make a session.

    - telemetry is on by default on Linux: switched off before the import
    - ``NchwcTransformer`` crashes on some valid backward graphs: left out
    - if a session cannot be made, the Python wrapper prints to stdout and tries again *without* the list of left-out
      optimizers: that fallback is switched off
    - a thread pool and an arena of its own for every session are too much for hundreds of them: a process that has
      only our sessions shares one of each
    - RunOptions that do not state a ``gpu_graph_id`` cost 30 us in every run, for an exception that is raised and
      caught: on CPUs none are passed, on GPUs they state that there is none

Raw pointers bind without a copy, also those of scalars, booleans and half precision.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, helper

from planner.graph.model import DType, Shape
from planner.graph.protos import dtype_of, elem_type_of
from planner.installed import require_runtime
from planner.runtime.engine.core.halves import in_float32
from planner.runtime.engine.gpu.cuda_form import CudaForm, with_copies

_PROVIDERS: Final = ["CPUExecutionProvider"]
_LEFT_OUT: Final = ["NchwcTransformer"]
_LEFT_OUT_OF_LITERAL: Final = ["ConstantFolding", "EliminateIdentity"]
"""Where copies and constants stay (``CudaForm.is_literal``)."""
_FATAL: Final = 4
"""ONNX Runtime's log severity: what fails is told by its exception, and the log would write a model's names to the
terminal as they are."""


def onnxruntime() -> ModuleType:
    """The onnxruntime module, imported without telemetry.

    Raises:
        UsageError: it is not installed, or not all of it.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    is_new = "onnxruntime" not in sys.modules
    if is_new:
        require_runtime()
    import onnxruntime as module

    if is_new:
        module.set_default_logger_severity(_FATAL)  # it warns of each session on a GPU that no plugin knows the GPU

    return module  # type: ignore[no-any-return]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SessionMaker:
    """Makes sessions that compute with a number of threads each.

    Args:
        threads: for each running session; 1 makes no pool.
        pool: all sessions of this process share one arena, and one pool of so many threads. Only a process that has
            made no session yet may ask for it, and only once. None: each has its own.
        libraries: of custom operators.
    """

    def __init__(self, threads: int, *, pool: int | None = None, libraries: Sequence[Path] = ()) -> None:
        self._runtime = onnxruntime()
        self._libraries = tuple(libraries)
        self._threads = threads
        self._has_shared_arena = pool is not None
        self._has_shared_pool = pool is not None and threads > 1
        if pool is not None and threads > 1:
            self._runtime.set_global_thread_pool_sizes(pool, 1)
        if self._has_shared_arena:
            kind = self._runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
            place = self._runtime.OrtMemoryInfo("Cpu", kind, 0, self._runtime.OrtMemType.DEFAULT)
            # Grown by what is asked for, not to the next power of two.
            config = self._runtime.OrtArenaCfg({"arena_extend_strategy": 1})
            self._runtime.create_and_register_allocator(place, config)

    def session(self, model: ModelProto, *, is_literal: bool = False) -> Any:
        """An ``InferenceSession`` of a model of standard operators and of those that libraries bring.

        Args:
            model: without local functions, unless it is taken literally.
            is_literal: nothing is changed or optimised.

        Raises:
            onnxruntime's exceptions: the model cannot be run.
        """
        options = self._runtime.SessionOptions()
        _register(options, self._libraries)
        options.log_severity_level = _FATAL
        if self._has_shared_pool:
            options.use_per_session_threads = False
        else:
            options.intra_op_num_threads = self._threads
        if self._has_shared_arena:
            options.add_session_config_entry("session.use_env_allocators", "1")
        if is_literal:
            options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self._runtime.InferenceSession(
            (model if is_literal else in_float32(model)).SerializeToString(),
            options,
            providers=_PROVIDERS,
            disabled_optimizers=_LEFT_OUT,
            enable_fallback=0,
        )


def _register(options: Any, libraries: Sequence[Path]) -> None:
    for path in libraries:
        options.register_custom_ops_library(str(path.resolve()))


def cuda_session(
    form: CudaForm, device: int, stream: int, *, libraries: Sequence[Path] = (), sharing: Collection[int] = ()
) -> tuple[Any, Any]:
    """A session on a GPU, which computes on a stream of the caller, and the options of its runs.

    Nothing falls back to the CPU but the ops that the form names: another node without a CUDA kernel is an error.
    Kernels are chosen by heuristics and not by timing them, and do without TF32, so that two runs give the same bits
    and as good ones as on a CPU. A run returns when its kernels are on the stream, but for one with ops on the CPU.

    No thread pool: kernels need none. No memory patterns: a session would keep its largest run's memory for itself.
    The options of a run say that it is of no CUDA graph: where nothing is said, ONNX Runtime's wrapper raises and
    catches an exception in every run, which takes 30 us under the interpreter's lock, against 2.

    Args:
        form: the model.
        device: the GPU's number.
        stream: the stream's address.
        libraries: of custom operators.
        sharing: GPUs whose sessions take memory from one arena (``share_cuda_arena``).

    Raises:
        onnxruntime's exceptions: there is no such device, or a node has no kernel there.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    _register(options, libraries)
    if not form.on_cpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if device in sharing:
        options.add_session_config_entry("session.use_env_allocators", "1")
    provider = {
        "device_id": str(device),
        "user_compute_stream": str(stream),
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": "0",
    }

    def made(form: CudaForm) -> Any:
        return runtime.InferenceSession(
            form.model.SerializeToString(),
            options,
            providers=[("CUDAExecutionProvider", provider)],
            disabled_optimizers=_LEFT_OUT_OF_LITERAL if form.is_literal else [],
            enable_fallback=0,
        )

    session = made(form)
    if on_host := _on_host(session.get_inputs(), session.get_input_memory_infos()):
        session = made(with_copies(form, on_host))
        on_host = _on_host(session.get_inputs(), session.get_input_memory_infos())
    on_host += _on_host(session.get_outputs(), session.get_output_memory_infos())
    assert not on_host, f"bound to the host's memory: {on_host}"
    run_options = runtime.RunOptions()
    run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    run_options.add_run_config_entry("gpu_graph_id", "-1")
    return session, run_options


def _on_host(values: Sequence[Any], places: Sequence[Any]) -> list[str]:
    """Inputs or outputs of a session that its kernels read or make in the host's memory."""
    return [value.name for value, place in zip(values, places, strict=True) if place.name != "Cuda"]


def sessions_on(devices: Sequence[int], libraries: Sequence[Path] = ()) -> Callable[[CudaForm, int, int], Any]:
    """How this process makes its sessions on GPUs (``cuda_session``); once in a process, before the first.

    Args:
        devices: the GPU of each worker of this process. Sessions of a GPU with one worker share an arena.
        libraries: of custom operators.
    """
    sharing = frozenset(device for device in devices if devices.count(device) == 1)
    for device in sorted(sharing):
        share_cuda_arena(device)
    return partial(cuda_session, libraries=libraries, sharing=sharing)


def fix_cublas_workspace() -> None:
    """Before a process uses a GPU: cuBLAS otherwise takes another workspace for each stream, and may give other bits on
    two runs.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def share_cuda_arena(device: int) -> None:
    """Makes one arena for all sessions of a GPU that are told to share it.

    Only for a GPU with one stream: what one session gives back another one takes at once, which is right where their
    kernels run one after the other. Once in a process for each GPU, before its first session.
    """
    runtime = onnxruntime()
    kind = runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = runtime.OrtMemoryInfo("Cuda", kind, device, runtime.OrtMemType.DEFAULT)
    config = runtime.OrtArenaCfg({"arena_extend_strategy": 1})
    runtime.create_and_register_allocator_v2("CUDAExecutionProvider", place, {"device_id": str(device)}, config)


def body_model(
    body: FunctionProto,
    inputs: Sequence[tuple[Shape, DType]],
    outputs: Sequence[tuple[Shape, DType]],
    *,
    ir_version: int,
) -> ModelProto:
    """The body of a segment as a model of its own, with static shapes.

    Args:
        body: a local function of standard operators.
        inputs: shape and dtype by position of the function's inputs.
        outputs: the same of its outputs.
        ir_version: of the model.
    """
    graph = helper.make_graph(
        list(body.node),
        body.name,
        [
            helper.make_tensor_value_info(name, elem_type_of(dtype), list(shape))
            for name, (shape, dtype) in zip(body.input, inputs, strict=True)
        ],
        [
            helper.make_tensor_value_info(name, elem_type_of(dtype), list(shape))
            for name, (shape, dtype) in zip(body.output, outputs, strict=True)
        ],
    )
    opsets = list(body.opset_import)
    return carried(helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="tofu"))


def carried(model: ModelProto) -> ModelProto:
    """The model, changed in place, with its inputs and outputs in the dtypes that carry them (``DType.carrier``).

    Those that change have another name, too: ``carried_name``.
    """
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for values, casts in ((model.graph.input, before), (model.graph.output, after)):
        for value in values:
            kind = value.type.tensor_type
            dtype = dtype_of(kind.elem_type)
            if dtype is None or dtype is dtype.carrier:
                continue
            inside, outside = value.name, carried_name(value.name, dtype)
            if casts is before:
                casts.append(helper.make_node("Cast", [outside], [inside], to=kind.elem_type))
            else:
                casts.append(helper.make_node("Cast", [inside], [outside], to=elem_type_of(dtype.carrier)))
            value.name, kind.elem_type = outside, elem_type_of(dtype.carrier)
    if before or after:
        nodes = [*before, *model.graph.node, *after]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return model


def carried_name(name: str, dtype: DType) -> str:
    """What ``carried`` calls an input or output."""
    return name if dtype is dtype.carrier else f"{name}.{dtype.carrier.value}"


def bind(
    session: Any, inputs: Mapping[str, tuple[np.ndarray, DType]], outputs: Mapping[str, tuple[np.ndarray, DType]]
) -> Any:
    """An IOBinding of a session to arrays, without a copy; they must outlive it and stay where they are."""
    binding = session.io_binding()
    for name, (array, dtype) in inputs.items():
        assert array.flags.c_contiguous, f"input {name!r} is not contiguous"
        kind = elem_type_of(dtype.carrier)
        binding.bind_input(carried_name(name, dtype), "cpu", 0, kind, array.shape, array.ctypes.data)
    for name, (array, dtype) in outputs.items():
        assert array.flags.c_contiguous, f"output {name!r} is not contiguous"
        kind = elem_type_of(dtype.carrier)
        binding.bind_output(carried_name(name, dtype), "cpu", 0, kind, array.shape, array.ctypes.data)
    return binding
