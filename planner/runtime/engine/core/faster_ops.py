"""Ops of a session's model in others that a device computes faster (``graph/decompositions/cpu.py``, ``cuda.py``)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping

import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Op, Tensor, TensorAttribute
from planner.graph.decompositions.registry import Purpose, decomposition, decompositions
from planner.graph.files.protos import dtype_of, op_of, op_to_node
from planner.runtime.engine.core.halves import kinds_of, with_nodes


def with_faster_ops(model: ModelProto, purpose: Purpose, block: int = 0) -> ModelProto:
    """The model with what is slow written in other ops; the model itself if there is nothing.

    Args:
        model: of static shapes, without local functions. Is left as it is.
        purpose: of a device.
        block: see ``Emitter``.
    """
    better = {name for name, rule in decompositions(purpose).items() if rule.is_better}
    if not any(node.op_type in better for node in model.graph.node):
        return model
    inferred = onnx.shape_inference.infer_shapes(model)
    expander = Expander(purpose, model, inferred, kinds_of(inferred), block)
    changed = [expander.expanded(node) if node.op_type in better else None for node in model.graph.node]
    if not any(changed):
        return model
    nodes = [part for node, parts in zip(model.graph.node, changed, strict=True) for part in parts or [node]]
    result = with_nodes(model, nodes)
    stated = {entry.domain for entry in model.opset_import} | {""}
    domains = sorted({node.domain for node in nodes} - stated)
    result.opset_import.extend(helper.make_opsetid(domain, 1) for domain in domains)
    return result


class Expander:
    """Nodes of one model as other ops.

    Args:
        purpose: what the ops are for.
        model: that the nodes are of.
        inferred: the model with the shapes and dtypes of its tensors.
        kinds: by tensor, its ``TensorProto.DataType``.
        block: see ``Emitter``.
    """

    def __init__(
        self, purpose: Purpose, model: ModelProto, inferred: ModelProto, kinds: Mapping[str, int], block: int = 0
    ) -> None:
        self._purpose, self._block = purpose, block
        self._opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
        graph = inferred.graph
        self._names = sorted({name for node in model.graph.node for name in node.output} | kinds.keys())
        types = {
            value.name: value.type.tensor_type
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }
        shapes = {
            name: tuple(dim.dim_value for dim in kind.shape.dim)
            for name, kind in types.items()
            if all(dim.HasField("dim_value") for dim in kind.shape.dim)
        } | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        constants = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
        bound = {value.name for value in graph.input}
        protos = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in bound} | constants
        self._values = {name: numpy_helper.to_array(proto) for name, proto in protos.items() if proto.data_type}
        dtypes = {name: dtype_of(kinds[name]) for name in shapes.keys() & kinds.keys()}
        self._tensors = {name: Tensor(name, shapes[name], dtype) for name, dtype in dtypes.items() if dtype is not None}

    def expanded(self, node: NodeProto) -> list[NodeProto] | None:
        """The node as other ops; None if nothing is known here."""
        op = op_of(node, node.name)
        rule = decomposition(self._purpose, op)
        if rule is None:
            return None
        read = (*op.inputs, *op.outputs) if rule.is_better else op.inputs
        if not all(name in self._tensors for name in read if name):
            return None
        prefix = free_prefix(f"{next(filter(None, op.outputs))}/", self._names)
        insort(self._names, prefix)
        emitter = Emitter(prefix, self._tensors, self._values, self._opset, block=self._block)
        results = rule(emitter, op)
        if results is None:
            return None
        constants = (Op(name, "Constant", (), (name,), (("value", TensorAttribute(value)),))
                 for name, value in emitter.constants.items())  # fmt: skip
        return [op_to_node(part) for part in (*constants, *emitter.standing_for(op, results))]
