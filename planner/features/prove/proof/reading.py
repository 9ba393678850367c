"""Functions as graphs: a worker's, and what a local rule says, both read in one way so that they can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import FunctionProto, GraphProto, helper, numpy_helper

from planner.algebra.region import Region
from planner.artifacts.worker_model import make_body
from planner.errors import TofuError
from planner.features.prove.proof.expression import UnprovenError
from planner.features.prove.proof.whole import ModelOp, Whole
from planner.graph.core.model import DType, Graph, Op, Shape, dtype_of_array
from planner.graph.files.protos import elem_type_of, op_to_node
from planner.graph.files.to_onnx import domain_version
from planner.graph.folding.derived import Derived
from planner.graph.reading.from_onnx import graph_from_proto
from planner.tdl.local import LocalOp, Part

_INSIDE_BYTES: Final = 1 << 13
"""A constant up to this size is read, too: shapes may be told by it."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function's nodes, and what of them no data change."""

    graph: Graph
    constants: Mapping[str, np.ndarray]
    """By name; also those that it is given."""
    derived: Derived

    def is_constant(self, op: Op) -> bool:
        """Whether an op is of constants alone, and can be worked out."""
        return any(map(self.derived.covers, op.outputs))


def read_function(
    function: FunctionProto,
    inputs: Sequence[tuple[Shape, DType]],
    constants: Mapping[str, np.ndarray],
    reference: Whole,
) -> Function:
    """A function's nodes as a graph, with all shapes.

    Args:
        function: of a worker's file.
        inputs: shape and dtype of each input.
        constants: inputs that are known, by name.
        reference: whose descriptions say shapes that ONNX does not know.

    Raises:
        UnprovenError: it cannot be read.
    """
    graph = GraphProto(name=function.name)
    graph.node.extend(function.node)
    for name, (shape, dtype) in zip(function.input, inputs, strict=True):
        if name in constants and constants[name].nbytes <= _INSIDE_BYTES:
            array = np.ascontiguousarray(constants[name]).reshape(shape)
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(helper.make_tensor_value_info(name, elem_type_of(dtype), shape))
    graph.output.extend([helper.make_empty_tensor_value_info(name) for name in function.output])
    graph.value_info.extend(function.value_info)
    # What is read is brought to an opset that plans have, and what runs is of the function's own.
    theirs = {**reference.graph.domains, "": reference.graph.opset, "ai.onnx": reference.graph.opset}
    if any(theirs.get(opset.domain, opset.version) != opset.version for opset in function.opset_import):
        raise UnprovenError(f"function {function.name} has ops of other versions than the model")
    model = helper.make_model(graph, ir_version=10, opset_imports=function.opset_import)
    try:
        read = graph_from_proto(model, state_pairs=(), operators=reference.descriptions)
    except TofuError as error:
        raise UnprovenError(f"function {function.name} cannot be read: {error.what}") from None
    values = {name: value for name, value in read.constants.items() if value is not None} | dict(constants)
    derived = Derived(values, read.opset)
    for op in read.ops:
        derived.note(op, [read.tensors[name] for name in op.outputs if name])
    return Function(read, values, derived)


def read_rule(model_op: ModelOp, local: LocalOp, part: Part, reference: Whole) -> Function:
    """A local op as a worker's function of it is read; its inputs and outputs are ``in0``, ``out0`` and so on.

    Args:
        model_op: the op of the model.
        local: what its local rule makes of the part.
        part: of the op.
        reference: the model.

    Raises:
        UnprovenError: it cannot be read.
    """
    node, arrays, types = model_op.described_op.node, dict(local.constants), []
    produced = dict.fromkeys(name for op in local.nodes for name in op.outputs if name)
    # Labels that no node of the rule makes are inputs: slots of the op, or constants of the rule.
    read = dict.fromkeys(name for op in local.nodes for name in op.inputs if name and name not in produced)
    for label in read:
        if label not in arrays:
            slot = int(label.removeprefix("in"))
            shape, dtype, value = node.input_shapes[slot], node.input_dtypes[slot], node.constants[slot]
            assert shape is not None, "what is read is there"
            assert dtype is not None, "what is read is there"
            region = (part.inputs[slot] if shape else None) or Region.whole(shape)
            types.append((region.shape if shape else (), dtype))
            if value is not None:
                arrays[label] = value[region.within(Region.whole(shape))] if shape else value
        else:
            types.append((arrays[label].shape, dtype_of_array(arrays[label])))
    nodes = [
        op_to_node(Op("", op.op_type, op.inputs, op.outputs, tuple(op.attributes.items()), op.domain))
        for op in local.nodes
    ]
    outputs = {int(name.removeprefix("out")): name for name in produced if name.startswith("out")}
    stated = [
        helper.make_tensor_value_info(name, elem_type_of(kind), out.shape if node.output_shapes[position] else ())
        for position, name in outputs.items()
        if (out := part.outputs[position]) is not None and (kind := node.output_dtypes[position]) is not None
    ]
    domains = {op.domain: domain_version(reference.graph, op.domain) for op in local.nodes if op.domain}
    opset, names = reference.graph.opset, list(outputs.values())
    function = make_body("rule", list(read), names, nodes, opset, domains=domains, types=stated)
    return read_function(function, types, {name: arrays[name] for name in read if name in arrays}, reference)
