"""Ops written otherwise for what is known of what they read, before they are folded or kept.

An If is the branch that it takes, what makes or reads a sequence works on its elements, CastLike is a Cast, a Compress
by known flags a Gather; some of ONNX Runtime's own operators are several of ONNX's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from onnx import NodeProto, TensorProto

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Op, Tensor
from planner.graph.decompositions.reading.form import microsoft_form
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
    unguarded_for,
    unpooled_for,
)
from planner.graph.folding.places import grid_for, places_for
from planner.graph.folding.sequences import sequence_form

Nodes: TypeAlias = Sequence[tuple[str, NodeProto]]
"""Unique op name and node, in execution order. What they read that no op makes is known already."""


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
    if form.elements is not None:
        graph.sequences[op.outputs[0]] = form.elements
    return _with_constants((form.constants or {}, form.ops), graph)


_FORMS: Final[Mapping[str, Callable[[Op, KnownGraph], KnownForm | None]]] = {
    "CastLike": cast_for,
    "Compress": gather_for,
    "Gather": places_for,
    "GatherND": grid_for,
    "InstanceNormalization": instances_for,
    "MaxUnpool": unpooled_for,
    "Mod": mod_for,
    "Resize": sizes_for,
    "Where": unguarded_for,
}
"""The form of an op in others, by op type, where what is known of its operands gives one."""


def nodes_by_operands(op: Op, graph: KnownGraph) -> Nodes | None:
    """An op in other ops, for what is known of its operands (``_FORMS``); None where there is no such form.

    Args:
        op: of the default domain.
        graph: gets the constants that the other ops read.
    """
    form_of = _FORMS.get(op.op_type)
    form = None if form_of is None else form_of(op, graph)
    return None if form is None else _with_constants(form, graph)


def full_split_nodes(op: Op, full: Sequence[Tensor], graph: KnownGraph) -> Nodes:
    """A Split that makes only those of its outputs that have elements."""
    return _with_constants(split_for(op, full, graph.tensors), graph)


def microsoft_nodes(op: Op, graph: KnownGraph, *, is_plan: bool) -> Nodes | None:
    """The nodes that restate an op of ONNX Runtime's own in others; None where it stays as it is.

    Raises:
        ModelError: the op contradicts its inputs.
        UnsupportedError: a form of the operator that is not taken.
    """
    form = microsoft_form(op, graph.tensors, graph.values, graph.opset, is_plan=is_plan)
    if form is None:
        return None
    nodes = _with_constants((form.constants, tuple(form.ops)), graph)
    for name, value in form.weights.items():
        graph.know_weight(name, value)
    return nodes


def _with_constants(form: KnownForm, graph: KnownGraph) -> Nodes:
    constants, ops = form
    for name, value in constants.items():
        graph.know(name, value)
    return [(op.name, op_to_node(op)) for op in ops]
