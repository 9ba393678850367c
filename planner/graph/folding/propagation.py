"""ONNX's own inference over a whole model, with the values of small vectors where shapes depend on them.

ONNX follows values of vectors and scalars from op to op (``data_prop``), each element by itself: of a ConstantOfShape
of 2^40 ones it would make 2^40 elements. What has a vector of so many elements is inferred without that; a shape that
only such a vector's elements would say stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from planner.graph.core.subgraph import graphs_of
from planner.graph.core.traits import BROADCASTING, GENERATING
from planner.graph.files.protos import array_of, op_of
from planner.graph.folding.evaluate import EXTENTS, FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate

_MOST_ELEMENTS: Final = 2**16
"""Of a vector that is followed."""


def inferred(model: ModelProto, *, strict: bool = False) -> ModelProto:
    """The model with the shapes that ONNX infers.

    Args:
        model: is left as it is.
        strict: what cannot be inferred is an error.

    Raises:
        onnx.shape_inference.InferenceError: ops contradict what they read.
    """
    plain = onnx.shape_inference.infer_shapes(model, check_type=strict, strict_mode=strict)
    if _is_static(plain.graph) or not _is_small(plain.graph, {}, {}):
        return plain
    return onnx.shape_inference.infer_shapes(model, check_type=strict, strict_mode=strict, data_prop=True)


def _is_static(graph: GraphProto) -> bool:
    """Whether the shape of everything is known that the graph's own nodes make."""
    typed = {value.name for value in (*graph.value_info, *graph.output) if _sizes(value.type) is not None}
    return all(name in typed for node in graph.node for name in node.output if name)


def _sizes(kind: TypeProto) -> list[int] | None:
    if not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value for dim in dims] if all(dim.HasField("dim_value") for dim in dims) else None


def _is_small(graph: GraphProto, outer: Mapping[str, np.ndarray | None], types: Mapping[str, TypeProto]) -> bool:
    """Whether no vector has many elements.

    Args:
        graph: with the shapes that are inferred without values.
        outer: what is known around it; None where it is known to ONNX perhaps, and not here.
        types: of tensors around it.
    """
    typed = {**types, **{value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}}
    values: dict[str, np.ndarray | None] = {**outer, **{tensor.name: _small(tensor) for tensor in graph.initializer}}
    typed |= {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        for tensor in graph.initializer
    }
    shapes = [sizes for kind in typed.values() if (sizes := _sizes(kind)) is not None]
    if any(len(sizes) == 1 and sizes[0] > _MOST_ELEMENTS for sizes in shapes):
        return False
    for node in graph.node:
        if not all(_is_small(inner, values, typed) for inner in graphs_of(node)):
            return False
        if extent := EXTENTS.get(node.op_type):
            sizes = _sizes(typed[node.input[0]]) if node.input[0] in typed else None
            value = None if sizes is None else extent(op_of(node, node.name), sizes)
        elif all(name in values for name in node.input if name):
            operands = [values[name] if name else None for name in node.input]
            is_told = all(operand is not None for operand, name in zip(operands, node.input, strict=True) if name)
            if node.op_type in GENERATING and not (is_told and _makes_few(node, operands)):
                return False
            value = _value(node, operands) if is_told else None
        else:
            continue
        # ONNX may know an output that is not followed here (None): a generator that reads it is refused above.
        values.update(dict.fromkeys(node.output))
        if node.output:
            values[node.output[0]] = value
    return True


def _small(tensor: TensorProto) -> np.ndarray | None:
    if math.prod(tensor.dims) > _MOST_ELEMENTS:
        return None
    return array_of(tensor, f"initializer {tensor.name!r}")


def _makes_few(node: NodeProto, operands: Sequence[np.ndarray | None]) -> bool:
    try:
        return _vector_elements(node, operands) <= _MOST_ELEMENTS
    except (ValueError, IndexError, OverflowError):
        return False  # operands that the operator does not take


def _vector_elements(node: NodeProto, operands: Sequence[np.ndarray | None]) -> int:
    """How many elements the vector has at most that a generator makes of operands that are known; 0 if it is none."""
    arrays = [operand for operand in operands if operand is not None]
    first, *parameters = arrays
    expanded_dims = max((first.ndim, *(sizes.size for sizes in parameters[:1])))
    if {"ConstantOfShape": first.size, "Expand": expanded_dims}.get(node.op_type, first.ndim) > 1:
        return 0  # no vector: its elements are not followed
    match node.op_type:
        case "ConstantOfShape":
            return _product(first)
        case "Expand":
            return _product(first.shape) * _product(parameters[0]) if parameters else first.size
        case "Tile":
            return first.size * _product(parameters[0]) if parameters else first.size
        case "Pad":
            return first.size + sum(abs(int(size)) for size in (parameters[0].reshape(-1) if parameters else ()))
        case "Range":
            start, limit, step = (float(array.reshape(-1)[0]) for array in arrays[:3])
            return math.ceil(abs(limit - start) / abs(step)) if step else 0
    return sum(array.size for array in arrays)


def _product(sizes: Iterable[int]) -> int:
    return math.prod(max(1, abs(int(size))) for size in sizes)


def _value(node: NodeProto, operands: Sequence[np.ndarray | None]) -> np.ndarray | None:
    if node.op_type == "Constant":
        values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        if values:
            return _small(values[0])
        listed = [onnx.helper.get_attribute_value(attr) for attr in node.attribute if attr.name.startswith("value_")]
        return np.array(listed[0]) if listed and not isinstance(listed[0], bytes) else None
    is_read = node.op_type in FOLDABLE and all(array is None or array.size <= _MOST_ELEMENTS for array in operands)
    if not is_read or (node.op_type in GENERATING and not _vector_elements(node, operands)):
        return None
    if not _makes_little(node, operands):
        return None
    results = evaluate(node, operands, _OPSET)
    return None if results is None or results[0].size > _MOST_ELEMENTS else results[0]


def _makes_little(node: NodeProto, operands: Sequence[np.ndarray | None]) -> bool:
    """Whether small operands give a result that is small enough to be made: two vectors may give a matrix."""
    arrays = [operand for operand in operands if operand is not None]
    try:
        return _made_elements(node, arrays) <= MAX_FOLDED_ELEMENTS
    except (ValueError, IndexError, OverflowError):
        return False  # operands that the operator does not take


def _made_elements(node: NodeProto, arrays: Sequence[np.ndarray]) -> int:
    """How many elements an op makes at most that can make more than it reads; 0 of others, and of generators."""
    match node.op_type:
        case "OneHot":
            return arrays[0].size * abs(int(arrays[1].reshape(-1)[0]))
        case "GatherND" | "MatMul":
            return arrays[0].size * arrays[1].size
        case "Gather":
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            rows: int = arrays[0].shape[axis]
            return arrays[0].size // max(1, rows) * arrays[1].size
        case op_type if op_type in BROADCASTING:
            return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    return 0


_OPSET: Final = 21
"""Whose forms the operators above are read in; of an older one that means another, no value is found."""
