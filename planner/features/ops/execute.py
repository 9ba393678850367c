"""Executes a local op on arrays: by ONNX Runtime on the CPU, or ONNX's reference evaluator where that has no kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from planner.errors import TofuError
from planner.graph.core.model import Op, dtype_of_array
from planner.graph.files.protos import MAX_IR_VERSION, MAX_OPSET, elem_type_of, op_of, op_to_node
from planner.runtime.engine.core.sessions import onnxruntime
from planner.tdl.builder import Description, ReferenceFunction
from planner.tdl.local import LocalOp

Arrays: TypeAlias = Mapping[str, np.ndarray]


class ExecutionError(TofuError):
    """Neither the runtime nor the reference evaluator can execute a local op."""


class NoKernelError(ExecutionError):
    """The runtime does not have an operator, and its description gives no ``reference``."""


def to_model(local: LocalOp, inputs: Arrays, outputs: Iterable[str], opset: int) -> onnx.ModelProto:
    """A model of one local op.

    Args:
        local: what to execute.
        inputs: the arrays that it will be given, by the names that it uses.
        outputs: the names of those wanted; their types are left to the runtime.
        opset: version of the default domain.
    """
    nodes = []
    for number, node in enumerate(local.nodes):
        attributes = tuple(sorted(node.attributes.items(), key=lambda item: item[0]))
        nodes.append(op_to_node(Op(f"node{number}", node.op_type, node.inputs, node.outputs, attributes, node.domain)))
    used = {name for node in local.nodes for name in node.inputs}
    input_infos = [
        helper.make_tensor_value_info(name, elem_type_of(dtype_of_array(array)), array.shape)
        for name, array in inputs.items()
        if name in used
    ]
    output_infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in local.constants.items()]
    domains = sorted({node.domain for node in local.nodes if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "local", input_infos, output_infos, constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=min(10, MAX_IR_VERSION))


def execute(
    local: LocalOp, inputs: Arrays, outputs: tuple[str, ...], opset: int, description: Description | None = None
) -> dict[str, np.ndarray]:
    """Executes a local op.

    Args:
        local: what to execute.
        inputs: arrays by the names that it uses (``in0``, ...); others may be among them.
        outputs: the names of those wanted (``out0``, ...).
        opset: version of the default domain.
        description: of the op; its ``reference`` computes an operator that the runtime does not have.

    Returns:
        The outputs by name.

    Raises:
        NoKernelError: an operator has neither a kernel nor a reference.
        ExecutionError: it cannot be executed; with what the runtime said.
    """
    runtime = onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    model = to_model(local, inputs, outputs, opset)
    names = {value.name for value in model.graph.input}
    feed = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in inputs.items() if name in names}
    if opset > MAX_OPSET:
        return dict(zip(outputs, _by_reference(model, feed, list(outputs)), strict=True))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(  # one op on the CPU, not a plan: no worker, no binding
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["NchwcTransformer"],
        )
        results = session.run(list(outputs), feed)
    except errors.NotImplemented:
        results = _by_reference(model, feed, list(outputs))
    except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.RuntimeException) as error:
        kinds = ", ".join(node.op_type for node in local.nodes)
        if "is not a registered function/op" not in str(error):
            raise ExecutionError(f"the runtime cannot execute {kinds}", facts=(str(error).splitlines()[0],)) from error
        if description is None or description.reference is None:
            message = f"{kinds} not executed: no kernel (--custom-ops of `tofu run`) and no reference="
            raise NoKernelError(message, hint="add reference= to its description, or results= to show it") from error
        results = _by_reference(model, feed, list(outputs), *_operators(description, description.reference))
    return dict(zip(outputs, results, strict=True))


def _by_reference(model: onnx.ModelProto, feed: Arrays, outputs: list[str], *operators: Any) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    try:
        results = ReferenceEvaluator(model, new_ops=list(operators)).run(outputs, dict(feed))
    except Exception as error:
        evaluator = "reference=" if operators else "the reference evaluator"
        raise ExecutionError(f"no kernel, and {evaluator} fails", facts=(repr(error),)) from error
    return [np.asarray(result) for result in results]


def _operators(description: Description, reference: ReferenceFunction) -> list[Any]:
    """A described operator for ONNX's evaluator: floating-point inputs in float64, results in the first one's dtype."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *inputs: np.ndarray | None, **_: Any) -> tuple[np.ndarray, ...]:
        floats = [array.dtype for array in inputs if array is not None and np.issubdtype(array.dtype, np.floating)]
        wide = [array.astype(np.float64) if array is not None and array.dtype in floats else array for array in inputs]
        results = reference(op_of(self.onnx_node, ""), *wide)
        arrays = map(np.asarray, results if isinstance(results, tuple) else (results,))
        return tuple(array.astype(floats[0]) if floats and array.dtype == np.float64 else array for array in arrays)

    return [type(name, (OpRun,), {"op_domain": description.domain, "_run": run}) for name in description.op_types]
