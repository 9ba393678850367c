"""Sessions on GPUs: their options, the arena that they share, and what a process fixes before the first."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.runtime.engine.core.sessions import FATAL, onnxruntime, register
from planner.runtime.engine.gpu.cuda_form import CudaForm, with_copies

_LEFT_OUT_OF_LITERAL: Final = ["ConstantFolding", "EliminateIdentity"]
"""Where copies and constants stay (``CudaForm.is_literal``)."""


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
    options.log_severity_level = FATAL
    options.use_deterministic_compute = True
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    register(options, libraries)
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

    def session_of(form: CudaForm) -> Any:
        return runtime.InferenceSession(
            form.model.SerializeToString(),
            options,
            providers=[("CUDAExecutionProvider", provider)],
            disabled_optimizers=_LEFT_OUT_OF_LITERAL if form.is_literal else [],
            enable_fallback=0,
        )

    # Only a session knows which inputs its kernels read in the host's memory: if there are any, a second one is made.
    session = session_of(form)
    if on_host := _on_host(session.get_inputs(), session.get_input_memory_infos()):
        session = session_of(with_copies(form, on_host))
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
    """The maker of this process's sessions on GPUs (``cuda_session``); once in a process, before the first.

    Args:
        devices: the GPU of each worker of this process. Sessions of a GPU with one worker share an arena.
        libraries: of custom operators.
    """
    sharing = frozenset(device for device in devices if devices.count(device) == 1)
    for device in sorted(sharing):
        share_cuda_arena(device)
    return partial(cuda_session, libraries=libraries, sharing=sharing)


def fix_cublas_workspace() -> None:
    """Fixes cuBLAS's workspace before a process uses a GPU: cuBLAS otherwise takes another workspace for each stream,
    and may give other bits on two runs.
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
