"""Ops written otherwise for what is known of what they read, before they are folded or kept.

An If is the branch that it takes, what makes or reads a sequence works on its elements, CastLike is a Cast, a Compress
by known flags a Gather; some of ONNX Runtime's own operators are several of ONNX's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import integer
from planner.graph.core.model import Op, Tensor
from planner.graph.core.traits import carried
from planner.graph.decompositions.reading import microsoft_form
from planner.graph.files.protos import array_of, op_to_node, tensor_shape
from planner.graph.folding.branches import taken_branch
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.known_forms import (
    KnownForm,
    cast_for,
    gather_for,
    instances_for,
    mod_for,
    sizes_for,
    split_for,
    unpooled_for,
)
from planner.graph.folding.places import grid_for, places_for
from planner.graph.folding.sequences import sequence_form

Nodes: TypeAlias = Sequence[tuple[str, NodeProto]]
"""Unique op name and node, in execution order. What they read that no op makes is known already."""


_FLOATS_FLOORED: Final = 28
"""Since this opset Mod takes floats without ``fmod``, too."""


def branch_nodes(op: Op, node: NodeProto, graph: KnownGraph) -> Nodes:
    """The nodes of the branch that an If takes, whose condition is known.

    Raises:
        ModelError: the condition is no scalar.
        UnsupportedError: an initializer of the branch that is not in the model's file.
    """
    condition = graph.values[op.inputs[0]]
    assert condition is not None, "it is known"
    if condition.size != 1:
        raise ModelError(f"op {op.name!r} (If): its condition has {condition.size} elements, and must have one")
    branch = taken_branch(node, bool(condition.item()), op.name, graph.tensors)
    know_initializers(branch.initializers, op, graph)
    return [(f"{op.name}/{number}", inner) for number, inner in enumerate(branch.nodes)]


def know_initializers(initializers: Sequence[TensorProto], op: Op, graph: KnownGraph) -> None:
    """The initializers of a graph inside of an op, under the names that they have outside of it.

    Raises:
        UnsupportedError: one that is not in the model's file.
    """
    for tensor in initializers:
        owner = f"initializer {tensor.name!r} inside of op {op.name!r}"
        value = array_of(tensor, owner)
        if value is None:
            raise UnsupportedError(f"{owner} has external data, which is not supported there")
        graph.tensors[tensor.name] = Tensor(tensor.name, *tensor_shape(tensor, tensor.name))
        graph.values[tensor.name] = value
        if not graph.tensors[tensor.name].dtype.is_float:
            graph.foldable.add(tensor.name)


def sequence_nodes(op: Op, graph: KnownGraph) -> Nodes:
    """The nodes that make or read a sequence, in tensors; the elements of a sequence that it makes are known then.

    Raises:
        SequenceError: a sequence, position or length that is known only at run time; a position outside.
    """
    form = sequence_form(op, graph.sequences, graph.tensors, graph.value_of)
    for name, value in (form.constants or {}).items():
        graph.know(name, value)
    if form.elements is not None:
        graph.sequences[op.outputs[0]] = form.elements
    return _nodes(form.ops)


def nodes_by_operands(op: Op, graph: KnownGraph) -> Nodes | None:
    """A CastLike, a Compress by known flags, a Resize by known scales, a Mod of floats, a normalisation of groups that
    a Reshape has merged, a Gather of constant places, a MaxUnpool of what a pool found, in other ops; None for others.

    Args:
        op: of the default domain.
        graph: gets the constants that the other ops read.
    """
    form: KnownForm | None = None
    if op.op_type == "CastLike" and op.has_input(1):
        form = cast_for(op, graph.tensors)
    elif op.op_type == "Compress" and graph.demand(op.inputs[1:]):
        flags = graph.values[op.inputs[1]]
        assert flags is not None, "it is known"
        form = gather_for(op, flags, graph.tensors)
    elif op.op_type == "Mod" and graph.written_at >= _FLOATS_FLOORED and _is_floored(op, graph):
        form = mod_for(op, graph.tensors)
    elif op.op_type == "Resize" and op.has_input(0) and op.has_input(2):
        scales = graph.values.get(op.inputs[2])
        form = None if scales is None else sizes_for(op, scales, graph.tensors)
    elif op.op_type == "MaxUnpool" and (maker := _maker(op.inputs[1], graph)) is not None:
        sizes = graph.value_of(op.inputs[2]) if op.has_input(2) else None
        is_pools = not op.has_input(2) or (sizes is not None and tuple(sizes) == graph.tensors[maker.inputs[0]].shape)
        if maker.op_type == "MaxPool" and is_pools:
            form = unpooled_for(op, maker, graph.tensors, graph.opset)
    elif op.op_type == "InstanceNormalization":
        source = op.inputs[0]
        # The tensor whose groups a Reshape merged is some moves above; the nearest that gives a form counts.
        while form is None and (maker := _maker(source, graph)) is not None and carried(maker.op_type, 1):
            source = maker.inputs[0]
            form = instances_for(op, graph.tensors[source], graph.tensors) if source in graph.tensors else None
    elif op.op_type == "Where" and _is_guarded_in_vain(op, graph):
        form = {}, (Op(op.name, "Identity", op.inputs[2:], op.outputs),)
    elif op.op_type in ("Gather", "GatherND") and op.inputs[0] not in graph.initializers:
        indices = None if graph.value_of(op.inputs[0]) is not None else graph.value_of(op.inputs[1])
        if indices is not None and op.op_type == "Gather":
            form = places_for(op, indices, graph.tensors, graph.opset)
        elif indices is not None:
            form = grid_for(op, indices, graph.tensors)
    return None if form is None else _with_constants(form, graph)


def _maker(name: str, graph: KnownGraph) -> Op | None:
    """The op of the default domain that makes a tensor, and stays in the graph."""
    maker = graph.makers.get(name)
    return None if maker is None or maker.domain else maker


def _is_guarded_in_vain(op: Op, graph: KnownGraph) -> bool:
    """Whether a Where takes a softmax where that is a number, and no row of its constant mask is empty.

    PyTorch's exporter writes attention so. Only a row of -inf alone has no softmax. Products of numbers have one, also
    with a mask that has a number in each row.
    """
    guard, softmax = _maker(op.inputs[0], graph), _maker(op.inputs[2], graph)
    if guard is None or softmax is None or (guard.op_type, softmax.op_type) != ("IsNaN", "Softmax"):
        return False
    scores = _maker(softmax.inputs[0], graph)
    if guard.inputs != op.inputs[2:] or scores is None:
        return False
    if scores.op_type == "Add":
        masks = [name for name in scores.inputs if name in graph.folded and graph.values.get(name) is not None]
        if len(masks) != 1 or not _has_numbers(masks[0], softmax, graph):
            return False
        scores = _maker(next(name for name in scores.inputs if name != masks[0]), graph)
    return scores is not None and scores.op_type == "MatMul"


def _has_numbers(mask: str, softmax: Op, graph: KnownGraph) -> bool:
    """Whether each row of a known mask has a number, and is nowhere larger than all numbers."""
    value, rank = graph.values[mask], len(graph.tensors[softmax.inputs[0]].shape)
    axis = integer(softmax, "axis", -1)
    assert value is not None, "it is known"
    wide = value.reshape((1,) * (rank - value.ndim) + value.shape)
    return bool(np.isfinite(wide).any(axis=axis).all() and (wide < np.inf).all())


def _is_floored(op: Op, graph: KnownGraph) -> bool:
    return op.has_input(0) and graph.tensors[op.inputs[0]].dtype.is_float and not op.attribute("fmod", 0)


def full_split_nodes(op: Op, full: Sequence[Tensor], graph: KnownGraph) -> Nodes:
    """A Split that makes only those of its outputs that have elements."""
    return _with_constants(split_for(op, full, graph.tensors), graph)


def microsoft_nodes(op: Op, graph: KnownGraph) -> Nodes | None:
    """The nodes that restate an op of ONNX Runtime's own in others; None where it is planned as it is.

    Raises:
        ModelError: the op contradicts its inputs.
        UnsupportedError: a form of the operator that is not taken.
    """
    form = microsoft_form(op, graph.tensors, graph.values)
    if form is None:
        return None
    for name, value in form.constants.items():
        graph.know(name, value)
    for name, value in form.weights.items():
        graph.know_weight(name, value)
    return _nodes(form.ops)


def _with_constants(form: KnownForm, graph: KnownGraph) -> Nodes:
    constants, ops = form
    for name, value in constants.items():
        graph.know(name, value)
    return _nodes(ops)


def _nodes(ops: Sequence[Op]) -> Nodes:
    return [(op.name, op_to_node(op)) for op in ops]
