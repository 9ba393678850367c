"""ONNX Runtime, as this project uses it: one way to make a session.

    - telemetry is on by default on Linux: switched off before the import
    - ``NchwcTransformer`` crashes on some valid backward graphs, and takes no convolution whose filters are trained:
      left out. Its operators are there without it (``graph/decompositions/channel_blocks.py``)
    - if a session cannot be made, the Python wrapper prints to stdout and tries again *without* the list of left-out
      optimizers: that fallback is switched off
    - an arena of its own for every session is too much for hundreds of them: a process that has only our sessions
      shares one
    - idle threads of a pool spin, which takes as much processor time again as the work: here they sleep. The pool that
      sessions can share has no setting for that, so each has its own
    - RunOptions that do not state a ``gpu_graph_id`` cost 30 us in every run, for an exception that is raised and
      caught: on CPUs none are passed, on GPUs (``gpu/cuda_sessions.py``) they state that there is none

Raw pointers bind without a copy, also those of scalars, booleans and half precision.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper

from planner.artifacts.worker_model import body_graph
from planner.graph.core.model import DType, Shape
from planner.graph.decompositions.channel_blocks import DOMAIN
from planner.graph.decompositions.registry import Purpose
from planner.graph.files.protos import dtype_of, elem_type_of
from planner.installed import require_runtime
from planner.runtime.engine.core.faster_ops import with_faster_ops
from planner.runtime.engine.core.halves import in_float32

_PROVIDERS: Final = ["CPUExecutionProvider"]
_LEFT_OUT: Final = ["NchwcTransformer"]
FATAL: Final = 4
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
        module.set_default_logger_severity(FATAL)  # it warns of each session on a GPU that no plugin knows the GPU

    return module  # type: ignore[no-any-return]


@cache
def channels_in_a_block() -> int:
    """The number of channels in a block that convolutions read fastest on this processor; 0 if none do."""
    runtime, fewest = onnxruntime(), np.ones((1, 4, 1, 1), np.float32)  # that it takes
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", fewest.shape), ("y", [None] * 4))
    )
    graph = helper.make_graph([helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, FATAL
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=_PROVIDERS, enable_fallback=0)
    block = int(session.run(None, {"x": fewest})[0].shape[1])
    return block if block > fewest.shape[1] else 0


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(workers: int) -> int:
    """The number of threads for one op of each of so many workers of a machine."""
    return max(1, cores() // workers)


class SessionMaker:
    """Makes sessions that compute with a number of threads each.

    Args:
        threads: for each running session; 1 makes no pool.
        is_shared: all sessions of this process share one arena. Only a process that has made no session yet may ask for
            it, and only once.
        libraries: of custom operators.
    """

    def __init__(self, threads: int, *, is_shared: bool = False, libraries: Sequence[Path] = ()) -> None:
        self._runtime = onnxruntime()
        self._libraries = tuple(libraries)
        self._threads = threads
        self._is_shared = is_shared
        if is_shared:
            kind = self._runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
            place = self._runtime.OrtMemoryInfo("Cpu", kind, 0, self._runtime.OrtMemType.DEFAULT)
            # Grown by what is asked for, not to the next power of two.
            config = self._runtime.OrtArenaCfg({"arena_extend_strategy": 1})
            self._runtime.create_and_register_allocator(place, config)

    def session(
        self, model: ModelProto, *, is_literal: bool = False, is_judge: bool = False, is_small: bool = False
    ) -> Any:
        """An ``InferenceSession`` of a model of standard operators and of those that libraries bring.

        Args:
            model: without local functions, unless it is taken literally.
            is_literal: nothing is changed or optimised.
            is_judge: ops stay as they are, where others would be faster on a CPU.
            is_small: one thread has computed it before another one wakes.

        Raises:
            onnxruntime's exceptions: the model cannot be run.
        """
        options = self._runtime.SessionOptions()
        register(options, self._libraries)
        options.log_severity_level = FATAL
        options.intra_op_num_threads = 1 if is_small else self._threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if self._is_shared:
            options.add_session_config_entry("session.use_env_allocators", "1")
        if is_literal:
            options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if not is_literal:
            model = in_float32(model)
        if not (is_literal or is_judge):
            model = with_faster_ops(model, Purpose.CPU, channels_in_a_block())
        return self._runtime.InferenceSession(
            model.SerializeToString(),
            options,
            providers=_PROVIDERS,
            disabled_optimizers=_LEFT_OUT,
            enable_fallback=0,
        )


def register(options: Any, libraries: Sequence[Path]) -> None:
    """Lets a session know libraries of custom operators."""
    for path in libraries:
        options.register_custom_ops_library(str(path.resolve()))


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
    graph = body_graph(body, inputs, outputs)
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
    """The name by which ``carried`` calls an input or output."""
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
