"""Ops that need not be executed: their results are other names for tensors, or constants."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from onnx import NodeProto

from planner.graph.core.model import Op, Tensor, TensorAttribute, dtype_of_array
from planner.graph.core.traits import COPYING
from planner.graph.files.protos import elem_type_of
from planner.graph.folding.evaluate import BOUNDED_BY_INPUTS, EXTENTS, FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate, fills
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.operands import MOST_DIMS


def elide(op: Op, graph: KnownGraph, outputs: Collection[str]) -> bool:
    """Whether the op hands on its operand unchanged; its output is then another name for it.

    Args:
        op: of the default domain.
        graph: gets the other name.
        outputs: of the graph. Each is made by an op, an Identity where nothing else is to be done.
    """
    if op.op_type not in COPYING or len(op.inputs) != 1 or len(op.outputs) != 1 or not op.inputs[0]:
        return False
    (source,), (target,) = op.inputs, op.outputs
    tensor = graph.tensors[source]
    kind = elem_type_of(tensor.dtype)
    if op.attribute("to", kind) != kind:
        return False
    if target in outputs:
        if source not in graph.foldable:
            graph.tensors[target] = replace(tensor, name=target)
            graph.keep(Op(op.name, "Identity", (source,), (target,)))
            return True
        return False
    graph.aliases[target] = graph.first_name(source)
    graph.tensors[target] = tensor
    if source in graph.values:
        graph.values[target] = graph.values[source]
    for group in (graph.foldable, graph.scalars):
        if source in group:
            group.add(target)
    return True


def compute(op: Op, node: NodeProto, types: Mapping[str, Tensor | None], graph: KnownGraph) -> bool:
    """Whether the op's outputs became constants.

    Args:
        op: of the default domain.
        node: the same, as ONNX writes it.
        types: the static types of its outputs; None where they are not known beforehand.
        graph: gets the outputs' values.
    """
    if (extent := EXTENTS.get(op.op_type)) and len(op.outputs) == 1:
        graph.know(op.outputs[0], extent(op, graph.tensors[op.inputs[0]].shape))
        return True
    if op.op_type not in FOLDABLE or not _may_compute(op, types, graph):
        return False
    results = evaluate(node, [graph.values[name] if name else None for name in op.inputs], graph.opset)
    if op.op_type == "ConstantOfShape" and _is_weight(op, graph):
        assert results is not None, "a fill can always be made"
        graph.know_weight(op.outputs[0], results[0])
        return True
    if results is None or len(results) != len(op.outputs):
        return False
    named = [(name, result) for name, result in zip(op.outputs, results, strict=True) if name]
    for name, result in named:
        tensor = types.get(name)
        if tensor is not None and (result.shape != tensor.shape or result.dtype != tensor.dtype.array_dtype):
            return False
    for name, result in named:
        graph.know(name, result.view())
    return True


def _may_compute(op: Op, types: Mapping[str, Tensor | None], graph: KnownGraph) -> bool:
    operands = [name for name in op.inputs if name]
    is_known = all(name in graph.foldable or name in graph.scalars for name in operands)
    if not is_known or graph.foldable.isdisjoint(operands):
        return False
    arrays = [array for name in operands if (array := graph.values[name]) is not None]
    if fills(op.op_type, arrays[0] if arrays else None):
        return arrays[-1].size <= MOST_DIMS
    if any(array.size > MAX_FOLDED_ELEMENTS for array in arrays):
        return False
    if op.op_type in BOUNDED_BY_INPUTS:
        return True
    return all(tensor is not None and tensor.elements <= MAX_FOLDED_ELEMENTS for tensor in types.values())


def _is_weight(op: Op, graph: KnownGraph) -> bool:
    """Whether a ConstantOfShape stands for a weight that was not shipped."""
    value = op.attribute("value")
    if op.inputs[0] not in graph.initializers or not isinstance(value, TensorAttribute) or value.array.size != 1:
        return False
    shape, fill = graph.values[op.inputs[0]], value.array
    if shape is None or shape.size == 0 or not dtype_of_array(fill).is_float:
        return False
    number = float(fill.flat[0])
    return math.isfinite(number) and not number.is_integer()
