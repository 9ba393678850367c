"""Operators that ONNX does not define: libraries that bring kernels of them, and one of their ops executed alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Graph, Op, qualified
from planner.graph.files.protos import elem_type_of, op_to_node
from planner.graph.files.to_onnx import to_model
from planner.runtime.engine.core.sessions import SessionMaker, bind, carried, onnxruntime
from planner.runtime.engine.gpu.cuda_kernels import has_cuda_kernel, is_of_runtime


def check_libraries(paths: Sequence[Path]) -> None:
    """Loads libraries of custom operators once, so that one that cannot be used is refused before anything runs.

    Raises:
        UsageError: there is no such file, or the runtime cannot load it.
    """
    for path in paths:
        if not path.is_file():
            raise UsageError(f"--custom-ops {path}: no such file")
        try:
            onnxruntime().SessionOptions().register_custom_ops_library(str(path.resolve()))
        except Exception as error:  # the runtime's exceptions have no common type
            raise UsageError(
                f"--custom-ops {path}: the runtime cannot load it",
                facts=(first_line(error),),
                hint="it must be a library of custom operators, with RegisterCustomOps, built for this ONNX Runtime",
            ) from error


def check_kernels(graph: Graph, libraries: Sequence[Path], *, on_gpus: bool = False) -> None:
    """Tries whether the runtime has a kernel for every operator that ONNX does not define.

    Args:
        graph: whose ops are tried.
        libraries: of custom operators.
        on_gpus: an op that has a CUDA kernel by the table needs none on the CPU.

    Raises:
        UsageError: operators without one, all of them.
    """
    missing: dict[str, str] = {}
    tried: set[tuple[str, str]] = set()
    for op in graph.ops:
        if op.domain and (op.domain, op.op_type) not in tried:
            tried.add((op.domain, op.op_type))
            if on_gpus and (_has_cuda_kernel(graph, op) or (libraries and not is_of_runtime(op.domain))):
                continue  # a library's kernels for GPUs can be tried on one only
            try:
                ForeignOp(graph, op, libraries)
            except Exception as error:  # noqa: BLE001 -- the runtime's exceptions have no common type
                missing[qualified(op.domain, op.op_type)] = f"op {op.name!r}: {first_line(error)}"
    if missing:
        names = ", ".join(sorted(missing))
        raise UsageError(
            f"the runtime cannot execute {names}",
            facts=tuple(missing.values()),
            hint="give the library that has the kernel: --custom-ops LIBRARY.so",
        )


def check_attributes(graph: Graph) -> None:
    """Tries each form of the runtime's own operators that has attributes: ONNX allows words and numbers that it lacks.

    Raises:
        ModelError: ops whose attributes the runtime refuses when it makes their kernel, one of each form.
    """
    refused: dict[Hashable, str] = {}
    for op in graph.ops:
        kind, dtypes = qualified(op.domain, op.op_type), [graph.tensors[name].dtype for name in op.inputs if name]
        form, is_runtimes = (kind, op.attributes, *dtypes), not op.domain or is_of_runtime(op.domain)
        if not op.attributes or form in refused or not is_runtimes or op.has_graphs:
            continue
        refused[form] = ""
        try:
            ForeignOp(graph, op, ())
        except Exception as error:  # noqa: BLE001 -- the runtime's exceptions have no common type
            # It has no kernel for a dtype? Other devices have.
            if any(word in str(error) for word in _OF_ATTRIBUTES):
                refused[form] = f"op {op.name!r} ({kind}): {first_line(error)}"
    if facts := tuple(filter(None, refused.values())):
        hint = "export the model without them"
        raise ModelError("ONNX Runtime refuses attributes of the model's ops", facts=facts, hint=hint)


_OF_ATTRIBUTES: Final = ("Exception during initialization", "Unrecognized attribute", "ShapeInferenceError")


def _has_cuda_kernel(graph: Graph, op: Op) -> bool:
    if not is_of_runtime(op.domain):
        return False
    kinds = {name: elem_type_of(graph.tensors[name].dtype) for name in (*op.inputs, *op.outputs) if name}
    return has_cuda_kernel(op_to_node(op), kinds, {"": graph.opset, **dict(graph.domains)})


def graph_of_op(graph: Graph, op: Op) -> Graph:
    """One op of a graph with the constants that it reads; its other operands are inputs."""
    names = tuple(dict.fromkeys(name for name in op.inputs if name))
    outputs = tuple(name for name in op.outputs if name)
    return Graph(
        name=op.name,
        tensors={name: graph.tensors[name] for name in (*names, *outputs)},
        ops=(op,),
        inputs=tuple(name for name in names if name not in graph.constants),
        outputs=outputs,
        constants={name: graph.constants[name] for name in names if name in graph.constants},
        opset=graph.opset,
        domains=graph.domains,
    )


class ForeignOp:
    """One op of a graph as a session of its own, in the op's own precision.

    Args:
        graph: that the op is of.
        op: the op.
        libraries: of custom operators.

    Raises:
        onnxruntime's exceptions: it has no kernel.
    """

    def __init__(self, graph: Graph, op: Op, libraries: Sequence[Path]) -> None:
        alone = replace(graph_of_op(graph, op), inputs=tuple(dict.fromkeys(filter(None, op.inputs))), constants={})
        self._tensors, self._inputs, self._outputs = alone.tensors, alone.inputs, alone.outputs
        self._session: Any = SessionMaker(1, libraries=libraries).session(carried(to_model(alone)), is_judge=True)

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs, in order, where floating-point inputs may be of any precision."""
        tensors = self._tensors
        feeds = {name: np.asarray(inputs[name], tensors[name].dtype.array_dtype, order="C") for name in self._inputs}
        results = {name: np.empty(tensors[name].shape, tensors[name].dtype.array_dtype) for name in self._outputs}
        binding = bind(
            self._session,
            {name: (array, tensors[name].dtype) for name, array in feeds.items()},
            {name: (array, tensors[name].dtype) for name, array in results.items()},
        )
        self._session.run_with_iobinding(binding)
        return list(results.values())


def first_line(error: Exception) -> str:
    """The text of an error in one line; its type where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
