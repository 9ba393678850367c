"""Ops that need not be executed: their results are other names for tensors, or constants."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from onnx import NodeProto

from planner.graph.fills import is_fill
from planner.graph.folding.evaluate import BOUNDED_BY_INPUTS, FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate, extent
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.operands import MOST_DIMS
from planner.graph.model import Op, Tensor, TensorAttribute
from planner.graph.protos import dtype_of_array, elem_type_of, numpy_dtype


def elide(op: Op, known: KnownGraph, outputs: Collection[str]) -> bool:
    """Whether the op hands on its operand unchanged; its output is then another name for it.

    Args:
        op: of the default domain.
        known: gets the other name.
        outputs: of the graph. Each is made by an op, an Identity where nothing else is to be done.
    """
    if op.op_type not in ("Identity", "Cast") or len(op.inputs) != 1 or len(op.outputs) != 1 or not op.inputs[0]:
        return False
    (source,), (target,) = op.inputs, op.outputs
    tensor = known.tensors[source]
    if op.op_type == "Cast" and op.attribute("to") != elem_type_of(tensor.dtype):
        return False
    if target in outputs:
        if source not in known.foldable:
            known.tensors[target] = replace(tensor, name=target)
            known.keep(Op(op.name, "Identity", (source,), (target,)))
            return True
        return False
    known.aliases[target] = known.first_name(source)
    known.tensors[target] = tensor
    if source in known.values:
        known.values[target] = known.values[source]
    for group in (known.foldable, known.scalars):
        if source in group:
            group.add(target)
    return True


def compute(op: Op, node: NodeProto, made: Mapping[str, Tensor | None], known: KnownGraph) -> bool:
    """Whether the op's outputs became constants.

    Args:
        op: of the default domain.
        node: the same, as ONNX writes it.
        made: the static types of its outputs; None where they are not known beforehand.
        known: gets the outputs' values.
    """
    if op.op_type in ("Shape", "Size") and len(op.outputs) == 1:
        known.know(op.outputs[0], extent(op, known.tensors[op.inputs[0]]))
        return True
    if op.op_type not in FOLDABLE or not _may_compute(op, made, known):
        return False
    results = evaluate(node, [known.values[name] if name else None for name in op.inputs], known.opset)
    if op.op_type == "ConstantOfShape" and _is_weight(op, known):
        assert results is not None, "a fill can always be made"
        known.know_weight(op.outputs[0], results[0])
        return True
    if results is None or len(results) != len(op.outputs):
        return False
    named = [(name, result) for name, result in zip(op.outputs, results, strict=True) if name]
    for name, result in named:
        tensor = made.get(name)
        if tensor is not None and (result.shape != tensor.shape or result.dtype != numpy_dtype(tensor.dtype)):
            return False
    for name, result in named:
        known.know(name, result.view())
    return True


def _may_compute(op: Op, made: Mapping[str, Tensor | None], known: KnownGraph) -> bool:
    operands = [name for name in op.inputs if name]
    if not all(name in known.foldable or name in known.scalars for name in operands):
        return False
    if not any(name in known.foldable for name in operands):
        return False
    arrays = [array for name in operands if (array := known.values[name]) is not None]
    if op.op_type == "ConstantOfShape" or (op.op_type == "Expand" and is_fill(arrays[0])):
        return arrays[-1].size <= MOST_DIMS
    if any(array.size > MAX_FOLDED_ELEMENTS for array in arrays):
        return False
    if op.op_type in BOUNDED_BY_INPUTS:
        return True
    return all(tensor is not None and tensor.elements <= MAX_FOLDED_ELEMENTS for tensor in made.values())


def _is_weight(op: Op, known: KnownGraph) -> bool:
    """Whether a ConstantOfShape stands for a weight that was not shipped."""
    value = op.attribute("value")
    if op.inputs[0] not in known.initializers or not isinstance(value, TensorAttribute) or value.array.size != 1:
        return False
    shape, fill = known.values[op.inputs[0]], value.array
    if shape is None or shape.size == 0 or not dtype_of_array(fill).is_float:
        return False
    number = float(fill.flat[0])
    return math.isfinite(number) and not number.is_integer()
