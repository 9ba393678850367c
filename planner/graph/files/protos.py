"""Small translations between ONNX's protobufs and ``model.py``: element types, arrays, attributes, names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Attribute, DType, GraphAttribute, Op, Shape, TensorAttribute, of_types
from planner.graph.core.subgraph import captured_names, graph_attribute, graph_proto
from planner.graph.core.traits import CONTROL_FLOW, SEQUENCES
from planner.graph.files.external import KEYS, external_value, stored_bytes

MAX_OPSET: Final = 26
"""The runtime takes no later opset."""
MAX_IR_VERSION: Final = 13
"""The runtime takes no later IR version."""
MAX_ELEMENTS: Final = 2**48
"""A tensor with more elements than this is taken for a mistake in the file."""

_DTYPES: Final[dict[int, DType]] = {
    TensorProto.FLOAT: DType.FLOAT32,
    TensorProto.DOUBLE: DType.FLOAT64,
    TensorProto.FLOAT16: DType.FLOAT16,
    TensorProto.BFLOAT16: DType.BFLOAT16,
    TensorProto.INT8: DType.INT8,
    TensorProto.INT16: DType.INT16,
    TensorProto.INT32: DType.INT32,
    TensorProto.INT64: DType.INT64,
    TensorProto.UINT8: DType.UINT8,
    TensorProto.UINT16: DType.UINT16,
    TensorProto.UINT32: DType.UINT32,
    TensorProto.UINT64: DType.UINT64,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.FLOAT8E4M3FN: DType.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: DType.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: DType.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: DType.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT8E8M0: DType.FLOAT8E8M0,
    TensorProto.INT4: DType.INT4,
    TensorProto.UINT4: DType.UINT4,
    TensorProto.INT2: DType.INT2,
    TensorProto.UINT2: DType.UINT2,
}
_ELEM_TYPES: Final[dict[DType, int]] = {dtype: elem_type for elem_type, dtype in _DTYPES.items()}

_PAYLOADS: Final = ("raw_data", *(f"{kind}_data" for kind in ("float", "int32", "int64", "double", "uint64", "string")))
_SUBGRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_OTHER_FORMS: Final = {
    AttributeProto.SPARSE_TENSOR: "a sparse tensor",
    AttributeProto.SPARSE_TENSORS: "sparse tensors",
    AttributeProto.TYPE_PROTO: "a type",
    AttributeProto.TYPE_PROTOS: "types",
    AttributeProto.TENSORS: "a list of tensors",
}


def dtype_of(elem_type: int) -> DType | None:
    """The DType of a ``TensorProto.DataType`` value; None where a plan cannot hold it."""
    return _DTYPES.get(elem_type)


def elem_type_of(dtype: DType) -> int:
    """The ``TensorProto.DataType`` value of a DType."""
    return _ELEM_TYPES[dtype]


def elem_type_name(elem_type: int) -> str:
    """``FLOAT8E4M3FN`` for 17; ``type 99`` for what ONNX has no name for."""
    names = {int(value): str(name) for name, value in TensorProto.DataType.items()}
    return names.get(elem_type, f"type {elem_type}")


def shape_fault(shape: Iterable[int]) -> str:
    """The reason why a shape cannot be one, or ""."""
    elements = 1
    for size in shape:
        if size < 0:
            return f"has a negative size ({size})"
        elements *= size
    if elements > MAX_ELEMENTS:
        return f"has {elements} elements, more than 2**48"
    return ""


def tensor_shape(tensor: TensorProto, owner: str) -> tuple[Shape, DType]:
    """Shape and dtype that a TensorProto states.

    Args:
        tensor: any TensorProto, its data external or not.
        owner: how to name it in an error, e.g. ``initializer 'W'``.

    Raises:
        UnsupportedError: strings, complex numbers, 4-bit floats, segments.
        ModelError: a negative or absurd size.
    """
    dtype = dtype_of(tensor.data_type)
    if dtype is None:
        raise UnsupportedError(f"{owner} is of {elem_type_name(tensor.data_type)}, which is not supported")
    if tensor.HasField("segment"):
        raise UnsupportedError(f"{owner} is stored in segments, which is not supported")
    shape = tuple(tensor.dims)
    fault = shape_fault(shape)
    if fault:
        raise ModelError(f"{owner} {fault}")
    return shape, dtype


def array_of(tensor: TensorProto, owner: str) -> np.ndarray | None:
    """The value of a TensorProto; None if it is external, for no external file is ever opened.

    Raises:
        UnsupportedError: see ``tensor_shape``.
        ModelError: there are several values, the data does not fill the shape, or is not where it could be.
    """
    shape, dtype = tensor_shape(tensor, owner)
    fault = payload_fault(tensor)
    if fault:
        raise ModelError(f"{owner} {fault}")
    if tensor.data_location == TensorProto.EXTERNAL:
        external_location(tensor, owner)
        return None
    needed_bytes = stored_bytes(dtype, int(np.prod(shape, dtype=object)))
    if tensor.HasField("raw_data") and len(tensor.raw_data) != needed_bytes:
        raise ModelError(
            f"{owner} has {len(tensor.raw_data)} bytes of data; its shape {list(shape)} of {dtype.value} "
            f"needs {needed_bytes}"
        )
    try:
        array: np.ndarray = numpy_helper.to_array(tensor)
        return array.reshape(shape)
    except (ValueError, TypeError):
        raise ModelError(f"{owner} has data that does not fill its shape {list(shape)} of {dtype.value}") from None


def stored_array(tensor: TensorProto, owner: str) -> np.ndarray:
    """The value of a TensorProto that must hold it itself.

    Raises:
        UnsupportedError: its data is external, or see ``tensor_shape``.
        ModelError: see ``array_of``.
    """
    array = array_of(tensor, owner)
    if array is None:
        raise UnsupportedError(f"{owner} has external data, which is not supported there")
    return array


def payload_fault(tensor: TensorProto) -> str:
    """The reason why a TensorProto's value cannot be told, or "": it has several."""
    payloads = [name for name in _PAYLOADS if len(getattr(tensor, name))]
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        payloads.append("external_data")
    return f"has several values: {' and '.join(payloads)}" if len(payloads) > 1 else ""


def external_location(tensor: TensorProto, owner: str) -> dict[str, str]:
    """The place of an external tensor's data, as it says: ``location``, and ``offset``, ``length`` where stated.

    Raises:
        ModelError: see ``external_value``; a key that is stated twice.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) < len(tensor.external_data):
        raise ModelError(f"{owner} says twice where its data lie")
    external_value(entries, *tensor_shape(tensor, owner), owner)
    return {key: entries[key] for key in KEYS if key in entries}


def refused_forms(node: NodeProto, *, takes_graphs: bool = False) -> str:
    """The forms that keep a node from being an Op, in words, or "".

    Args:
        node: any node.
        takes_graphs: control flow can be executed whole.
    """
    if takes_graphs and of_types(node, CONTROL_FLOW):
        return ""
    for attribute in node.attribute:
        if attribute.type in _SUBGRAPHS or attribute.HasField("g") or attribute.graphs:
            return "control flow (a subgraph as attribute)"
        if attribute.type in _OTHER_FORMS:
            return f"{_OTHER_FORMS[attribute.type]} as attribute {attribute.name!r}"
    if node.op_type.startswith(("Sequence", "Optional", "String")) or node.op_type in SEQUENCES:
        return "sequences, optionals and strings"
    return ""


def attribute_of(attribute: AttributeProto, owner: str, captured: tuple[str, ...] = ()) -> Attribute:
    """The value of an AttributeProto.

    Args:
        attribute: one that ``refused_forms`` has nothing against.
        owner: how to name its op in an error, e.g. ``op 'conv1' (Conv)``.
        captured: what the op's graphs read from around it.

    Raises:
        ModelError: a string that is not UTF-8, a tensor that cannot be read, an unknown attribute type.
    """
    where = f"{owner}, attribute {attribute.name!r},"
    # A reference states its value's type, and no value: it is refused before the types are told apart.
    if attribute.ref_attr_name:
        raise ModelError(f"{where} refers to a function's attribute, outside of a function")
    try:
        match attribute.type:
            case AttributeProto.INT:
                return int(attribute.i)
            case AttributeProto.FLOAT:
                return float(attribute.f)
            case AttributeProto.STRING:
                return attribute.s.decode()
            case AttributeProto.INTS:
                return tuple(int(value) for value in attribute.ints)
            case AttributeProto.FLOATS:
                return tuple(float(value) for value in attribute.floats)
            case AttributeProto.STRINGS:
                return tuple(value.decode() for value in attribute.strings)
            case AttributeProto.TENSOR:
                array = array_of(attribute.t, where)
                if array is None:
                    raise UnsupportedError(f"{where} has external data, which is not supported there")
                return TensorAttribute(array)
            case AttributeProto.GRAPH:
                return graph_attribute(attribute.g, captured)
    except UnicodeDecodeError:
        raise ModelError(f"{where} is a string that is not UTF-8") from None
    raise ModelError(f"{where} is of unknown type {attribute.type}")


def op_of(node: NodeProto, name: str) -> Op:
    """The Op of a NodeProto, under the name given.

    Raises:
        ModelError: see ``attribute_of``; also an attribute that is stated twice.
    """
    owner = f"op {name!r} ({node.op_type})"
    captured = captured_names(node)
    attributes = {attribute.name: attribute_of(attribute, owner, captured) for attribute in node.attribute}
    if len(attributes) < len(node.attribute):
        raise ModelError(f"{owner} states an attribute twice")
    domain = "" if node.domain == "ai.onnx" else node.domain
    return Op(
        name,
        node.op_type,
        (*node.input, *captured),
        tuple(node.output),
        tuple(sorted(attributes.items(), key=_key)),
        domain,
    )


def _key(item: tuple[str, Attribute]) -> str:
    return item[0]


def op_to_node(op: Op) -> NodeProto:
    """An Op as ONNX writes it; ``op_of`` of the result is the Op again, but for last inputs that have no name.

    An empty tuple is written with the attribute type that the operator's schema gives it, else as INTS.
    """
    captured = max((value.captured for _, value in op.attributes if isinstance(value, GraphAttribute)), default=0)
    inputs = op.inputs[: len(op.inputs) - captured]
    # Not said is the same, and ONNX Runtime 1.31 dies of SIGSEGV where a LayerNormalization's bias has no name.
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    node = NodeProto(name=op.name, op_type=op.op_type, domain=op.domain, input=inputs, output=op.outputs)
    node.attribute.extend(_attribute_proto(op, name, value) for name, value in op.attributes)
    return node


def _attribute_proto(op: Op, name: str, value: Attribute) -> AttributeProto:
    proto = AttributeProto(name=name)
    if isinstance(value, TensorAttribute):
        proto.type = AttributeProto.TENSOR
        proto.t.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value.array).reshape(value.array.shape)))
    elif isinstance(value, GraphAttribute):
        proto.type = AttributeProto.GRAPH
        proto.g.CopyFrom(graph_proto(value, op.inputs[len(op.inputs) - value.captured :]))
    elif isinstance(value, bool | int | np.integer):
        proto.type, proto.i = AttributeProto.INT, int(value)
    elif isinstance(value, float):
        proto.type, proto.f = AttributeProto.FLOAT, value
    elif isinstance(value, str):
        proto.type, proto.s = AttributeProto.STRING, value.encode()
    elif not value:
        proto.type = _empty_type(op, name)
    elif isinstance(value[0], str):
        proto.type = AttributeProto.STRINGS
        proto.strings.extend(str(item).encode() for item in value)
    elif isinstance(value[0], float):
        proto.type = AttributeProto.FLOATS
        proto.floats.extend(float(item) for item in value)
    else:
        proto.type = AttributeProto.INTS
        proto.ints.extend(int(item) for item in value)
    return proto


def _empty_type(op: Op, name: str) -> AttributeProto.AttributeType:
    try:
        declared = str(onnx.defs.get_schema(op.op_type, op.domain).attributes[name].type)
    except (onnx.defs.SchemaError, KeyError):
        return AttributeProto.INTS
    for kind in (AttributeProto.FLOATS, AttributeProto.STRINGS):
        if declared.endswith(AttributeProto.AttributeType.Name(kind)):
            return kind
    return AttributeProto.INTS
