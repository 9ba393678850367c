"""Folding and inference in one walk over the graph: afterwards every tensor has a static shape and dtype.

Shapes are static once the inputs are, so one walk in execution order is enough: when an op is reached, whatever can
be known of its operands is known. What is folded, and what is not:

- *Known* are Constant nodes, Shape and Size, integer and boolean initializers, and what is computed from known
  values alone, up to ``evaluate.MAX_FOLDED_ELEMENTS``. A fill (Expand of a zero, a ConstantOfShape) is a view of one
  element and may be of any size.
- Float initializers are weights. Nothing is computed from them (Transpose(W) stays an op), but that a scalar takes
  part in arithmetic with values that are known otherwise; and that what a shape, a branch or a position in a sequence
  depends on becomes known (see ``derived``).
- A float ConstantOfShape of rank 1 or more whose shape is an initializer, with a value that is no whole number, is a
  weight too: this is how architectures are shipped without their weights. Fills with 0, 1 or -inf are arithmetic.

Sequences are followed element by element (see ``sequences``), an If becomes the branch that it takes, a loop that goes
round as often as is known its rounds (see ``loops``).
Float tensors of Constant nodes that have more than one element are weights, like float initializers (Paddle and spox
state all weights so).
Identity, a Cast to the dtype that is there already, and CastLike (which becomes Cast) go on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from onnx import NodeProto

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import label
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Implied, Op, Tensor, TensorAttribute, of_types, qualified
from planner.graph.core.subgraph import obstacle
from planner.graph.core.traits import LOOPS, SEQUENCES
from planner.graph.core.wellformed import fresh_name
from planner.graph.files.protos import op_of
from planner.graph.folding.computed import compute, elide
from planner.graph.folding.evaluate import BOUNDED_BY_INPUTS
from planner.graph.folding.findings import Findings
from planner.graph.folding.foreign import IN_DEFAULT_DOMAIN, Operators, foreign_outputs
from planner.graph.folding.infer import Inference, UnknownOperatorError
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.loops import NotUnrolledError, Unroller
from planner.graph.folding.restated import (
    Nodes,
    branch_nodes,
    full_split_nodes,
    microsoft_nodes,
    nodes_by_operands,
    sequence_nodes,
)
from planner.graph.folding.sequences import SequenceError

Rewriting: TypeAlias = Callable[[KnownGraph], Callable[[Op], Nodes | None]]
"""Of a graph under way: the nodes that stand for an op; None where it stays."""
Types: TypeAlias = Mapping[str, Tensor | None]
"""Of an op's outputs; None where a type is known only at run time."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The graph after its shape arithmetic is folded."""

    ops: tuple[Op, ...]
    """In execution order; each leads to an output."""
    tensors: Mapping[str, Tensor]
    """Every input, and every tensor that ops read or make."""
    constants: Mapping[str, np.ndarray | None]
    """Those that ops read; None where the value was not loaded."""
    folded: frozenset[str]
    """The constants that the file computes."""


def fold(
    nodes: Sequence[tuple[str, NodeProto]],
    *,
    inputs: Mapping[str, Tensor],
    initializers: Mapping[str, Tensor],
    values: Mapping[str, np.ndarray | None],
    outputs: Sequence[str],
    computed: frozenset[str] = frozenset(),
    opsets: Mapping[str, int],
    ir_version: int,
    written_at: int | None = None,
    declared: Mapping[str, Tensor] | None = None,
    operators: Operators | None = None,
    rewriting: Rewriting | None = None,
) -> Folded:
    """Fold a graph's shape arithmetic and infer every tensor's shape and dtype.

    Args:
        nodes: unique op name and node, in execution order, all names defined before their use.
        inputs: the graph's inputs.
        initializers: constants by name.
        values: the constants' values; None where external.
        outputs: names of the graph's outputs. An output that is known, or is an initializer, is made by an Identity.
        computed: initializers that an earlier folding made: values like any other, not weights.
        opsets: version of each operator domain.
        ir_version: IR version of the file.
        written_at: version of the default domain in the file, if it is later than the runtime's last one.
        declared: what the file states of tensors; believed of what ONNX has no inference for.
        operators: which operators can be planned; None: all of them.
        rewriting: writes ops of the file in others; None: none.

    Raises:
        UnsupportedError: operators that cannot be planned, outputs that no plan can hold: all of them.
        ModelError: ops that contradict their inputs: all of them; or tensors without a static shape.
    """
    graph = KnownGraph(inputs, initializers, values, computed, opsets[""], written_at or opsets[""])
    folder = _Folder(graph, outputs, Inference(opsets, ir_version), opsets, declared or {}, operators)
    rewrite = rewriting(graph) if rewriting else None
    for name, node in nodes:
        if rewrite is None or not folder.by_form(op_of(node, name), rewrite):
            folder.take(name, node)
    return folder.finish()


@dataclass(eq=False)
class _Folder:
    """The walk: one op after the other is elided, computed, written otherwise, or kept."""

    graph: KnownGraph
    outputs: Sequence[str]
    inference: Inference
    opsets: Mapping[str, int]
    declared: Mapping[str, Tensor]
    operators: Operators | None

    def __post_init__(self) -> None:
        self.findings = Findings()
        self.unroller = Unroller(self.graph, self.take_all)

    def take_all(self, nodes: Nodes) -> None:
        """The next ops."""
        for name, node in nodes:
            self.take(name, node)

    def take(self, name: str, node: NodeProto) -> None:
        """The next op: the first step that takes it says what becomes of it."""
        op = op_of(node, name)
        if any(step(self, op, node) for step in _BEFORE_TYPES):
            return
        types = self._outputs(op, node)
        if types is not None and not any(step(self, op, node, types) for step in _WITH_TYPES):
            self.graph.keep_typed(op, types)

    def _take_constant(self, op: Op, node: NodeProto) -> bool:
        if is_constant := of_types(op, ("Constant",)) is not None:
            self._constant(op)
        return is_constant

    def _take_unknown(self, op: Op, node: NodeProto) -> bool:
        try:
            self.inference.schema(node)
        except UnknownOperatorError:
            self._unknown(op)
            return True
        return False

    def _take_lost(self, op: Op, node: NodeProto) -> bool:
        if is_lost := any(operand in self.findings.lost for operand in op.inputs):
            self._lose(op)
        return is_lost

    def _take_branch(self, op: Op, node: NodeProto) -> bool:
        if is_decided := of_types(op, ("If",)) is not None and self.graph.demand(op.inputs[:1]):
            self.take_all(branch_nodes(op, node, self.graph))
        return is_decided

    def _take_rounds(self, op: Op, node: NodeProto) -> bool:
        return of_types(op, LOOPS) is not None and self._unroll(op, node)

    def _take_sequence(self, op: Op, node: NodeProto) -> bool:
        reads_one = any(operand in self.graph.sequences for operand in op.inputs)
        if is_sequence := reads_one or of_types(op, SEQUENCES) is not None:
            self._sequence(op)
        return is_sequence

    def _take_restated(self, op: Op, node: NodeProto) -> bool:
        nodes = None if op.domain else nodes_by_operands(op, self.graph)
        if nodes is not None:
            self.take_all(nodes)
        return nodes is not None

    def _take_elided(self, op: Op, node: NodeProto) -> bool:
        if of_types(op, ("Pad",)) is not None and op.has_input(2) and self.graph.is_stated(op.inputs[2]):
            self.graph.demand(op.inputs[2:3])  # what lies beyond a border is part of its description
        return not op.domain and elide(op, self.graph, self.outputs)

    def _take_empty(self, op: Op, node: NodeProto, types: Types) -> bool:
        """Outputs without elements are known; of a Split the others are those of a smaller one."""
        empty = [tensor for tensor in types.values() if tensor is not None and not tensor.elements]
        is_split = of_types(op, ("Split",)) is not None
        for tensor in empty:
            self.graph.know_empty(tensor, is_kept=len(empty) < len(types) and not is_split)
        if empty and is_split and len(empty) < len(types):
            full = [tensor for tensor in types.values() if tensor is not None and tensor.elements]
            self.take_all(full_split_nodes(op, full, self.graph))
        return len(empty) == len(types) or (bool(empty) and is_split)

    def _take_computed(self, op: Op, node: NodeProto, types: Types) -> bool:
        return not op.domain and compute(op, node, types, self.graph)

    def _take_bounded(self, op: Op, node: NodeProto, types: Types) -> bool:
        return of_types(op, BOUNDED_BY_INPUTS) is not None and None in types.values() and self.graph.settle(op)

    def _take_control_flow(self, op: Op, node: NodeProto, types: Types) -> bool:
        if op.domain or not op.has_graphs:
            return False
        self.findings.decided_by[op.name] = self.graph.deciders(op.inputs[0]) if op.op_type == "If" else ()
        reason = obstacle(node)
        if self.operators is None:
            reason = self.findings.loops.get(op.name) or "control flow (a subgraph as attribute)"
        if reason:
            self._blame(self.findings.unsupported, op, reason)
        return bool(reason)

    def _take_foreign(self, op: Op, node: NodeProto, types: Types) -> bool:
        if is_foreign := bool(op.domain) or op.has_graphs:
            self._foreign(op, types)
        return is_foreign

    def _take_unread(self, op: Op, node: NodeProto, types: Types) -> bool:
        """An op whose outputs' types are known only at run time is lost, and said with what decides them."""
        if None not in types.values():
            return False
        graph = self.graph
        unread = [name for name in op.inputs if name in graph.values and graph.values[name] is None]
        beside = f"; {', '.join(unread)}: external data, which planning does not read" if unread else ""
        self.findings.unread.update(unread)
        if op.op_type in BOUNDED_BY_INPUTS:
            decide = op.inputs[BOUNDED_BY_INPUTS[op.op_type] :]
            self.findings.decided_by[op.name] = tuple(name for read in decide for name in graph.deciders(read))
        self._lose(op, f"depends on data that is known only at run time ({op.op_type} {op.name!r}){beside}")
        return True

    def _unroll(self, op: Op, node: NodeProto) -> bool:
        """Whether a loop's rounds were taken in its place."""
        try:
            self.unroller.unroll(op, node)
        except NotUnrolledError as why:
            if str(why):
                self.findings.loops[op.name] = f"control flow: {why}"
            return False
        return True

    def _outputs(self, op: Op, node: NodeProto) -> Mapping[str, Tensor | None] | None:
        """The static types of an op's outputs, for which operands that decide them are worked out; None if it is wrong.

        A type is None where it is known only at run time.
        """
        graph = self.graph
        try:
            types = self.inference.outputs(node, graph.tensors, graph.values)
            for names in graph.deciding(op) if not op.domain and None in types.values() else ():
                if None in types.values() and graph.demand(names):
                    types = self.inference.outputs(node, graph.tensors, graph.values)
        except ModelError as error:
            is_fault = not isinstance(error, UnsupportedError)
            self._blame(self.findings.faults if is_fault else self.findings.unsupported, op, error.what)
            return None
        return types

    def _unknown(self, op: Op) -> None:
        """An op that ONNX does not define: others stand for it, or it is believed, or refused."""
        if self.by_form(op, partial(microsoft_nodes, graph=self.graph, is_plan=self.operators is not None)):
            return
        if op.domain == "" and op.op_type not in IN_DEFAULT_DOMAIN:
            reason = f"op {op.name!r}: no operator {op.op_type} at opset {self.graph.opset}"
            self._blame(self.findings.unsupported, op, reason)
        else:
            self._foreign(op)

    def by_form(self, op: Op, nodes_of: Callable[[Op], Nodes | None]) -> bool:
        """Whether other ops were taken in the place of an op, or it was refused."""
        if op.domain not in self.opsets or any(operand in self.findings.lost for operand in op.inputs):
            return False
        try:
            nodes = nodes_of(op)
        except ModelError as error:
            is_fault = not isinstance(error, UnsupportedError)
            self._blame(self.findings.faults if is_fault else self.findings.unsupported, op, error.what)
            return True
        self.take_all(nodes or ())
        return nodes is not None

    def _sequence(self, op: Op) -> None:
        """What makes or reads a sequence."""
        if not of_types(op, SEQUENCES | {"Identity"}):
            self._blame(self.findings.unsupported, op, "sequences, optionals and strings")
            return
        try:
            nodes = sequence_nodes(op, self.graph)
        except SequenceError as error:
            self.findings.decided_by[op.name] = tuple(
                name for read in op.inputs[1:] for name in self.graph.deciders(read)
            )
            self._blame(self.findings.unsupported, op, str(error))
            return
        self.take_all(nodes)

    def _foreign(self, op: Op, inferred: Mapping[str, Tensor | None] | None = None) -> None:
        """An op of another domain: what ONNX does not infer is believed."""
        reason = f"op {op.name!r}: no operator {op.op_type} of domain {op.domain!r}"
        is_stated = op.domain in self.opsets and all(name in self.declared for name in op.outputs if name)
        if self.operators is None and inferred is None and not is_stated:
            self.findings.foreign.add(op.name)
            self._blame(self.findings.unsupported, op, reason)
            return
        if op.domain not in self.opsets:
            self._blame(self.findings.faults, op, f"the model does not import its domain {op.domain!r}")
            return
        if any(operand in self.findings.lost for operand in op.inputs):
            if is_stated:  # so that the error names no more tensors than are to blame
                self.graph.keep_typed(op, {name: self.declared[name] for name in op.outputs if name})
            else:
                self._lose(op)
            return
        implied: Sequence[Implied | None] = (None,) * len(op.outputs)
        try:
            if self.operators is not None:
                implied = self.operators.implied_outputs(op, self.graph.tensors, self.graph.values, self.graph.opset)
            types = foreign_outputs(op, self.graph.tensors, implied, self.declared)
        except ModelError as error:
            self._blame(self.findings.faults, op, error.what)
            return
        types |= {name: tensor for name, tensor in (inferred or {}).items() if tensor is not None}
        if any(tensor is None for tensor in types.values()):
            self.findings.foreign.add(op.name)
            operator = qualified(op.domain, op.op_type)
            self._lose(op, f"made by op {op.name!r}; nothing states the shapes of {operator}")
            return
        self.graph.keep_typed(op, types)

    def _lose(self, op: Op, reason: str = "") -> None:
        self.findings.lost.update((name, reason) for name in op.outputs if name)
        self.graph.keep(op)

    def _blame(self, findings: dict[str, str], op: Op, why: str) -> None:
        findings[op.name] = why if why.startswith(f"op {op.name!r}") else f"{label(op)}: {why}"
        self._lose(op)

    def _constant(self, op: Op) -> None:
        key, value = op.attributes[0] if len(op.attributes) == 1 else ("", 0)
        match key:
            case "value" if isinstance(value, TensorAttribute):
                array = value.array.view()
            case "value_int" | "value_ints":
                array = np.array(value, np.int64)
            case "value_float" | "value_floats":
                array = np.array(value, np.float32)
            case "value_string" | "value_strings" | "sparse_value":
                self._blame(self.findings.unsupported, op, f"its value is a {key.removeprefix('value_')}")
                return
            case _:
                self._blame(self.findings.faults, op, "does not state exactly one value")
                return
        self.graph.know(op.outputs[0], array)
        if array.ndim and array.size > 1 and self.graph.tensors[op.outputs[0]].dtype.is_float:
            # It may be a weight, as an initializer may.
            self.graph.foldable.discard(op.outputs[0])
            self.graph.folded.discard(op.outputs[0])

    def finish(self) -> Folded:
        """Drops dead ops, and refuses shapes that are not static."""
        graph = self.graph
        ops = list(graph.ops)
        op_outputs = {name for op in ops for name in op.outputs}
        for output in self.outputs:
            if output not in op_outputs and output not in graph.inputs:
                ops = self._with_identity(output, ops)
        live = list(live_ops(ops, self.outputs))
        read = {*self.outputs, *(name for op in live for name in op.inputs)}
        for position, op in enumerate(live):
            if op.op_type.endswith("LayerNormalization"):  # mean and deviation are made for a gradient's sake
                live[position] = replace(op, outputs=_read(op.outputs, read))
        self.findings.refuse(live, self.operators, graph.opset)
        names = dict.fromkeys(graph.inputs)
        names.update(dict.fromkeys(name for op in live for name in (*op.inputs, *op.outputs) if name))
        computed = {*graph.inputs, *(name for op in live for name in op.outputs)}
        constants = {name: graph.values[name] for name in names if name in graph.values and name not in computed}
        return Folded(
            ops=tuple(live),
            tensors={name: graph.tensors[name] for name in names},
            constants=constants,
            folded=frozenset(graph.folded & constants.keys()),
        )

    def _with_identity(self, output: str, ops: Sequence[Op]) -> list[Op]:
        """An output that is a constant is made by an op all the same: the constant gets a name of its own."""
        graph = self.graph
        source = fresh_name(f"{output}.value", graph.tensors)
        graph.tensors[source] = replace(graph.tensors[output], name=source)
        graph.values[source] = graph.values.pop(output)
        if output in graph.folded:
            graph.folded.add(source)
        renamed = [replace(op, inputs=tuple(source if name == output else name for name in op.inputs)) for op in ops]
        name = fresh_name(f"Identity.{output}", {op.name for op in ops})
        return [*renamed, Op(name, "Identity", (source,), (output,))]


def _read(outputs: tuple[str, ...], wanted: Collection[str]) -> tuple[str, ...]:
    """The first output, and those further ones that somebody reads; the others have no name, or no place at the end."""
    named = [name if name in wanted or not slot else "" for slot, name in enumerate(outputs)]
    while len(named) > 1 and not named[-1]:
        named.pop()
    return tuple(named)


_BEFORE_TYPES = (
    _Folder._take_constant,
    _Folder._take_unknown,
    _Folder._take_lost,
    _Folder._take_branch,
    _Folder._take_rounds,
    _Folder._take_sequence,
    _Folder._take_restated,
    _Folder._take_elided,
)
"""Steps of the walk, in order; each says whether it takes an op."""
_WITH_TYPES = (
    _Folder._take_empty,
    _Folder._take_computed,
    _Folder._take_bounded,
    _Folder._take_control_flow,
    _Folder._take_foreign,
    _Folder._take_unread,
)
"""Those that look at the types of its outputs, too."""
