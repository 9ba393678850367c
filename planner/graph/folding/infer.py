"""Shapes and dtypes of one op's outputs, from those of its inputs and the values that are known."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Tensor
from planner.graph.core.subgraph import graphs_of, read_names
from planner.graph.core.wellformed import every_node
from planner.graph.files.protos import MAX_OPSET, dtype_of, elem_type_name, elem_type_of, shape_fault
from planner.graph.folding.operands import MOST_DIMS, form_fault, operand_fault
from planner.graph.folding.propagation import inferred
from planner.graph.folding.sizes import runtime_sizes

_MAX_DATA_ELEMENTS: Final = 4096
"""Larger values are not shown to shape inference: no operator takes that many sizes."""

_REFUSALS: Final = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


class _Erratum(enum.Enum):
    """A fault of ONNX's inference of an operator; the value says what is right."""

    DEPRECATED = "ONNX calls it deprecated at some opset; tools write it there, and ONNX Runtime executes it"
    UNTYPED = "ONNX infers nothing of it; each result has the type of the operand at its place"
    SCALARS = "the runtime takes a vector of one element for a scalar, which ONNX refuses once the value is known"
    LATER = "a later version takes dtypes that neither the runtime nor a worker's casts execute"


_ERRATA: Final[Mapping[str, tuple[_Erratum, ...]]] = {
    "BitShift": (_Erratum.LATER,),
    "Gradient": (_Erratum.UNTYPED,),
    "GroupNormalization": (_Erratum.DEPRECATED, _Erratum.UNTYPED),
    "MeanVarianceNormalization": (_Erratum.UNTYPED,),
    "Range": (_Erratum.LATER, _Erratum.SCALARS),
}
_MISREAD_DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = {"STFT": {"onesided": 1}}
"""Attributes, with their defaults, of which ONNX's inference assumes another where the node states none."""


class UnknownOperatorError(Exception):
    """ONNX has no (valid) schema of this operator at this version."""


class Inference:
    """ONNX's own inference, asked op by op; nothing that the file says about inner tensors is believed.

    Args:
        opsets: version of each operator domain; "" is the default one.
        ir_version: IR version that the nodes are checked against.
    """

    def __init__(self, opsets: Mapping[str, int], ir_version: int) -> None:
        self._opsets = dict(opsets)
        self._ir_version = ir_version
        self._imports = [helper.make_opsetid(domain, version) for domain, version in sorted(opsets.items())]
        self._context = onnx.checker.C.CheckerContext()
        self._context.ir_version = ir_version
        self._context.opset_imports = self._opsets

    def schema(self, node: NodeProto) -> onnx.defs.OpSchema:
        """The operator's schema at its version.

        Raises:
            UnknownOperatorError: ONNX has no such operator at this version.
        """
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opsets[domain], domain)
        except (onnx.defs.SchemaError, KeyError):
            raise UnknownOperatorError from None
        if schema.deprecated and (domain or _Erratum.DEPRECATED not in _ERRATA.get(node.op_type, ())):
            raise UnknownOperatorError
        return schema

    def outputs(
        self, node: NodeProto, tensors: Mapping[str, Tensor], values: Mapping[str, np.ndarray | None]
    ) -> dict[str, Tensor | None]:
        """The tensors that an op makes.

        Args:
            node: an op all of whose inputs are in ``tensors``.
            tensors: static types by name.
            values: what is known of them; only small ones are looked at.

        Returns:
            By name; None where the shape depends on data that is not known.

        Raises:
            UnknownOperatorError: ONNX has no such operator at this version.
            UnsupportedError: an output that is no tensor, or of a dtype that a plan cannot hold.
            ModelError: the op contradicts its schema or its inputs.
        """
        schema, errata = self.schema(node), _ERRATA.get(node.op_type, ())
        for position, name in enumerate(node.output):
            formal = schema.outputs[min(position, len(schema.outputs) - 1)]
            if not name and formal.option is not onnx.defs.OpSchema.FormalParameterOption.Optional:
                raise ModelError(f"its output {position} ({formal.name}) has no name, and the operator always makes it")
        for inner in every_node([node]):
            is_typed = inner is node and node.input and node.input[0] in tensors
            if fault := form_fault(inner, len(tensors[node.input[0]].shape) if is_typed else MOST_DIMS):
                raise ModelError(fault)
        names = [name for name in dict.fromkeys(read_names(node)) if name]
        types = {name: _type_proto(tensors[name]) for name in names}
        data = {name: proto for name in names if (proto := _data(values.get(name))) is not None}
        one_each = all(tensors[name].elements == 1 for name in names)
        if _Erratum.SCALARS in errata and one_each:
            for proto in data.values():
                del proto.dims[:]
            types = {name: _type_proto(replace(tensors[name], shape=())) for name in names}
        try:
            if not graphs_of(node) and not schema.deprecated:
                onnx.checker.check_node(node, self._context)
            if graphs_of(node):
                protos = self._control_flow(node, types)
            elif _Erratum.UNTYPED in errata:
                protos = {result: types[operand] for operand, result in zip(node.input, node.output, strict=False)}
            else:
                protos = self._infer(schema, node, types, data)
        except (*_REFUSALS, IndexError, ValueError, RuntimeError) as error:
            raise ModelError(_first_line(str(error))) from None
        outputs = {name: _tensor(name, protos.get(name)) for name in node.output if name}
        _check_operands(node, schema.since_version, tensors, outputs)
        return outputs if schema.domain else runtime_sizes(node, tensors, values, outputs)

    def _control_flow(self, node: NodeProto, types: Mapping[str, TypeProto]) -> Mapping[str, TypeProto]:
        """What ONNX infers of an op with graphs inside, which it can do in a model only."""
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        inputs = [helper.make_value_info(name, kind) for name, kind in types.items()]
        model = helper.make_model(
            helper.make_graph([node], "control flow", inputs, outputs),
            opset_imports=self._imports,
            ir_version=self._ir_version,
        )
        return {value.name: value.type for value in inferred(model, strict=True).graph.output}

    def _infer(
        self, schema: onnx.defs.OpSchema, node: NodeProto, types: dict[str, TypeProto], data: dict[str, TensorProto]
    ) -> Mapping[str, TypeProto]:
        """What ONNX infers.

        A model that is newer than the runtime has the stamp of the runtime's last opset (``load.convert_opset``), and
        may have dtypes that only a later version of the operator takes: then that version is asked.
        """
        infer = partial(onnx.shape_inference.infer_node_outputs, ir_version=self._ir_version)
        missing = {} if schema.domain else dict(_MISREAD_DEFAULTS.get(node.op_type, {}))
        for attribute in node.attribute:
            missing.pop(attribute.name, None)
        if missing:
            stated = NodeProto()
            stated.CopyFrom(node)
            stated.attribute.extend(helper.make_attribute(name, value) for name, value in missing.items())
            node = stated
        try:
            return infer(schema, node, types, data, opset_imports=self._imports)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            newest = onnx.defs.get_schema(node.op_type, domain=schema.domain)
            is_later = self._opsets[""] == MAX_OPSET < newest.since_version and not schema.domain
            if not is_later or _Erratum.LATER in _ERRATA.get(node.op_type, ()):
                raise
            imports = [helper.make_opsetid("", newest.since_version)]
            return infer(newest, node, types, data, opset_imports=imports)


def _type_proto(tensor: Tensor) -> TypeProto:
    return helper.make_tensor_type_proto(elem_type_of(tensor.dtype), tensor.shape)


def _data(value: np.ndarray | None) -> TensorProto | None:
    if value is None or value.size > _MAX_DATA_ELEMENTS:
        return None
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape))


def _first_line(text: str) -> str:
    return next(filter(None, map(str.strip, text.splitlines())), "shape inference failed")


def _tensor(name: str, proto: TypeProto | None) -> Tensor | None:
    form = None if proto is None else proto.WhichOneof("value")
    if proto is None or form is None:
        return None
    if form != "tensor_type":
        raise UnsupportedError(f"makes {name!r}, a {form.removesuffix('_type').replace('_', ' ')}")
    kind = proto.tensor_type
    if not kind.elem_type:
        return None
    dtype = dtype_of(kind.elem_type)
    if dtype is None:
        raise UnsupportedError(f"makes {name!r}, of {elem_type_name(kind.elem_type)}")
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    shape = tuple(int(dim.dim_value) for dim in kind.shape.dim)
    fault = shape_fault(shape)
    if fault:
        raise ModelError(f"its output {name!r} {fault}")
    return Tensor(name, shape, dtype)


def _check_operands(
    node: NodeProto, version: int, tensors: Mapping[str, Tensor], types: Mapping[str, Tensor | None]
) -> None:
    if node.domain not in ("", "ai.onnx"):
        return
    inputs = [tensors[name].shape if name else None for name in node.input]
    outputs = [tensor.shape if (tensor := types.get(name)) is not None else None for name in node.output]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type == "Mod" and tensors[node.input[0]].dtype.is_float and not attributes.get("fmod"):
        raise ModelError("floats without fmod = 1, which the operator takes since opset 28")
    if fault := operand_fault(node.op_type, version, inputs, outputs, attributes):
        raise ModelError(fault)
