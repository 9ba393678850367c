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

Sequences are followed element by element (see ``sequences``), an If becomes the branch that it takes.
Float tensors of Constant nodes are both: known, and computed from; and, where something reads them as they are or laid
out anew, weights that are not listed as folded (Paddle and spox state all weights so).
Identity, a Cast to the dtype that is there already, and CastLike (which becomes Cast) go on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from onnx import NodeProto

from planner.errors import DescriptionError, ModelError, UnsupportedError
from planner.graph.branches import taken_branch
from planner.graph.derived import Derived, inputs_behind
from planner.graph.evaluate import BOUNDED_BY_INPUTS, FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate, extent
from planner.graph.fills import is_fill
from planner.graph.findings import Findings
from planner.graph.foreign import IN_DEFAULT_DOMAIN, Operators, foreign_outputs
from planner.graph.infer import Inference, UnknownOperatorError
from planner.graph.known_forms import KnownForm, cast_for, gather_for, sizes_for, split_for
from planner.graph.microsoft_forms import FORMS, microsoft_form
from planner.graph.model import Implied, Op, Tensor, TensorAttribute
from planner.graph.protos import array_of, dtype_of_array, elem_type_of, numpy_dtype, op_of, op_to_node, tensor_shape
from planner.graph.sequences import SEQUENCE_OPS, SequenceError, sequence_form
from planner.graph.subgraph import obstacle
from planner.graph.undescribed import qualified
from planner.graph.wellformed import fresh_name

_FEW_NUMBERS: Final = 8
"""So many a user would state on a command line."""
_FEW_FLOATS: Final = 64
"""More of them are weights, and no scales, bounds or borders."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What is left of a graph once its shape arithmetic is folded."""

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
    declared: Mapping[str, Tensor] | None = None,
    operators: Operators | None = None,
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
        declared: what the file states of tensors; believed of what ONNX has no inference for.
        operators: which operators can be planned; None: all of them.

    Raises:
        UnsupportedError: operators that cannot be planned, outputs that no plan can hold: all of them.
        ModelError: ops that contradict their inputs: all of them; or tensors without a static shape.
    """
    inference = Inference(opsets, ir_version)
    folder = _Folder(inputs, initializers, values, outputs, computed, inference, opsets, declared or {}, operators)
    for name, node in nodes:
        folder.take(name, node)
    return folder.finish()


class _Folder:
    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        initializers: Mapping[str, Tensor],
        values: Mapping[str, np.ndarray | None],
        outputs: Sequence[str],
        computed: frozenset[str],
        inference: Inference,
        opsets: Mapping[str, int],
        declared: Mapping[str, Tensor],
        operators: Operators | None,
    ) -> None:
        self.inputs = inputs
        self.initializers = initializers
        self.outputs = outputs
        self.inference = inference
        self.opsets = opsets
        self.opset = opsets[""]
        self.declared = declared
        self.operators = operators
        self.tensors: dict[str, Tensor] = {**initializers, **inputs}
        self.values: dict[str, np.ndarray | None] = dict(values)
        """Every constant."""
        self.known: set[str] = set()
        """Those of them that may be folded through; no floats that are stated, for they may be weights."""
        self.scalars: set[str] = set()
        """Float initializers of rank 0: known where an operand besides them is."""
        self.derived = Derived(self.values, self.opset)
        self.sequences: dict[str, tuple[str, ...]] = {}
        """By sequence the tensors that are its elements."""
        self.folded: set[str] = set(computed)
        self.aliases: dict[str, str] = {}
        self.ops: list[Op] = []
        self.found = Findings()
        for name, tensor in initializers.items():
            if values[name] is None:
                continue
            if not tensor.dtype.is_float or name in computed:
                self.known.add(name)
            elif tensor.shape == ():
                self.scalars.add(name)
        for tensor in inputs.values():
            if not tensor.elements:
                self._know_empty(tensor, is_kept=True)

    def take(self, name: str, node: NodeProto) -> None:
        """The next op: elide it, fold it, or keep it."""
        op = op_of(node, name)
        default_domain = op.domain == ""
        if default_domain and op.op_type == "Constant":
            self._constant(op)
            return
        try:
            self.inference.schema(node)
        except UnknownOperatorError:
            if self.operators is not None and (op.domain, op.op_type) in FORMS and self._by_form(op):
                return
            if default_domain and op.op_type not in IN_DEFAULT_DOMAIN:
                self._blame(
                    self.found.unsupported, op, f"op {op.name!r}: no operator {op.op_type} at opset {self.opset}"
                )
            else:
                self._foreign(op)
            return
        if any(operand in self.found.lost for operand in op.inputs):
            self._lose(op)
            return
        if default_domain and op.op_type == "If" and self._demand(op.inputs[:1]):
            self._branch(op, node)
            return
        if any(operand in self.sequences for operand in op.inputs) or (default_domain and op.op_type in SEQUENCE_OPS):
            self._sequence(op, default_domain=default_domain)
            return
        if default_domain and op.op_type == "CastLike" and len(op.inputs) == 2:
            op, node = self._restate(cast_for(op, self.tensors))
        if default_domain and op.op_type == "Compress" and self._demand(op.inputs[1:]):
            flags = self.values[op.inputs[1]]
            assert flags is not None, "it is known"
            op, node = self._restate(gather_for(op, flags, self.tensors))
        scales = self.values.get(op.inputs[2]) if op.op_type == "Resize" and op.has_input(2) else None
        if default_domain and scales is not None:
            form = sizes_for(op, scales, self.tensors)
            op, node = (op, node) if form is None else self._restate(form)
        if default_domain and op.op_type == "Pad" and op.has_input(2) and self._is_stated(op.inputs[2]):
            self._demand(op.inputs[2:3])  # what lies beyond a border is part of its description
        if default_domain and self._elide(op):
            return
        try:
            made = self.inference.outputs(node, self.tensors, self.values)
            for names in self._deciding(op) if default_domain and None in made.values() else ():
                if None in made.values() and self._demand(names):
                    made = self.inference.outputs(node, self.tensors, self.values)
        except UnsupportedError as error:
            self._blame(self.found.unsupported, op, f"op {op.name!r} ({op.op_type}): {error.what}")
            return
        except ModelError as error:
            self._blame(self.found.faults, op, f"op {op.name!r} ({op.op_type}): {error.what}")
            return
        empty = [tensor for tensor in made.values() if tensor is not None and not tensor.elements]
        is_split = default_domain and op.op_type == "Split"
        for tensor in empty:
            self._know_empty(tensor, is_kept=len(empty) < len(made) and not is_split)
        if len(empty) == len(made):
            return
        if empty and is_split:
            full = [tensor for tensor in made.values() if tensor is not None and tensor.elements]
            op, node = self._restate(split_for(op, full, self.tensors))
            made = {name: made[name] for name in op.outputs}
            if self._elide(op):
                return
        if default_domain and self._fold(op, node, made):
            return
        if default_domain and op.has_graphs:
            self.found.decided_by[op.name] = self._deciders(op.inputs[0]) if op.op_type == "If" else ()
            reason = obstacle(node) if self.operators is not None else "control flow (a subgraph as attribute)"
            if reason:
                self._blame(self.found.unsupported, op, f"op {op.name!r} ({op.op_type}): {reason}")
                return
        if not default_domain or op.has_graphs:
            self._foreign(op, made)
            return
        if any(tensor is None for tensor in made.values()):
            unread = [name for name in op.inputs if name in self.values and self.values[name] is None]
            beside = f"; {', '.join(unread)}: external data, which planning does not read" if unread else ""
            self.found.unread.update(unread)
            self._lose(op, f"depends on data that is known only at run time ({op.op_type} {op.name!r}){beside}")
            return
        self._keep(op, made)

    def _foreign(self, op: Op, inferred: Mapping[str, Tensor | None] | None = None) -> None:
        """An op of another domain: what ONNX does not infer is believed."""
        nobody = f"op {op.name!r}: no operator {op.op_type} of domain {op.domain!r}"
        is_stated = op.domain in self.opsets and all(name in self.declared for name in op.outputs if name)
        if self.operators is None and inferred is None and not is_stated:
            self._blame(self.found.unsupported, op, nobody)
            return
        if op.domain not in self.opsets:
            self._blame(
                self.found.faults,
                op,
                f"op {op.name!r} ({op.op_type}): the model does not import its domain {op.domain!r}",
            )
            return
        if any(operand in self.found.lost for operand in op.inputs):
            if is_stated:  # so that the error names no more tensors than are to blame
                self._keep(op, {name: self.declared[name] for name in op.outputs if name})
            else:
                self._lose(op)
            return
        implied: Sequence[Implied | None] = (None,) * len(op.outputs)
        try:
            if self.operators is not None:
                implied = self.operators.implied_outputs(op, self.tensors, self.values, self.opset)
            made = foreign_outputs(op, self.tensors, implied, self.declared)
        except (DescriptionError, ModelError) as error:
            self._blame(self.found.faults, op, f"op {op.name!r} ({op.op_type}): {error.what}")
            return
        made |= {name: tensor for name, tensor in (inferred or {}).items() if tensor is not None}
        if any(tensor is None for tensor in made.values()):
            self.found.foreign.add(op.name)
            what = qualified(op.domain, op.op_type)
            self._lose(op, f"made by op {op.name!r}; nothing states the shapes of {what}")
            return
        self._keep(op, made)

    def _keep(self, op: Op, made: Mapping[str, Tensor | None]) -> None:
        self.tensors.update((name, tensor) for name, tensor in made.items() if tensor is not None)
        self.ops.append(replace(op, inputs=tuple(self.aliases.get(operand, operand) for operand in op.inputs)))
        self.derived.note(self.ops[-1], made.values())

    def _lose(self, op: Op, reason: str = "") -> None:
        self.found.lost.update((name, reason) for name in op.outputs if name)
        self.ops.append(replace(op, inputs=tuple(self.aliases.get(operand, operand) for operand in op.inputs)))

    def _blame(self, findings: dict[str, str], op: Op, why: str) -> None:
        findings[op.name] = why
        self._lose(op)

    def _know(self, name: str, value: np.ndarray) -> None:
        value.flags.writeable = False
        self.tensors[name] = Tensor(name, value.shape, dtype_of_array(value))
        self.values[name] = value
        self.known.add(name)
        self.folded.add(name)

    def _know_empty(self, tensor: Tensor, *, is_kept: bool) -> None:
        """A tensor without elements is known, whatever makes it, and nothing of it can be given to a worker.

        Where it stays a tensor (an input, one output of several), those that read it read a constant in its place.
        """
        names = [tensor.name]
        if is_kept:
            self.aliases[tensor.name] = fresh_name(f"{tensor.name}.empty", self.tensors)
            names.append(self.aliases[tensor.name])
        for name in names:
            self._know(name, np.empty(tensor.shape, numpy_dtype(tensor.dtype)))

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
                self._blame(
                    self.found.unsupported,
                    op,
                    f"op {op.name!r} (Constant): its value is a {key.removeprefix('value_')}",
                )
                return
            case _:
                self._blame(self.found.faults, op, f"op {op.name!r} (Constant): does not state exactly one value")
                return
        self._know(op.outputs[0], array)
        if array.ndim and array.size > 1 and self.tensors[op.outputs[0]].dtype.is_float:
            # It may be a weight, as an initializer may.
            self.known.discard(op.outputs[0])
            self.folded.discard(op.outputs[0])

    def _branch(self, op: Op, node: NodeProto) -> None:
        """The ops of the branch that an If takes."""
        condition = self.values[op.inputs[0]]
        assert condition is not None, "it is known"
        branch = taken_branch(node, bool(condition.item()), op.name, self.tensors)
        for tensor in branch.initializers:
            owner = f"initializer {tensor.name!r} inside of op {op.name!r}"
            value = array_of(tensor, owner)
            if value is None:
                raise UnsupportedError(f"{owner} has external data, which is not supported there")
            self.tensors[tensor.name] = Tensor(tensor.name, *tensor_shape(tensor, tensor.name))
            self.values[tensor.name] = value
            if not self.tensors[tensor.name].dtype.is_float:
                self.known.add(tensor.name)
        for number, inner in enumerate(branch.nodes):
            self.take(f"{op.name}/{number}", inner)

    def _sequence(self, op: Op, *, default_domain: bool) -> None:
        """What makes or reads a sequence, in tensors."""
        if not default_domain or op.op_type not in (*SEQUENCE_OPS, "Identity"):
            self._blame(self.found.unsupported, op, f"op {op.name!r} ({op.op_type}): sequences, optionals and strings")
            return
        try:
            form = sequence_form(op, self.sequences, self.tensors, self._value_of)
        except SequenceError as error:
            self.found.decided_by[op.name] = tuple(name for read in op.inputs[1:] for name in self._deciders(read))
            self._blame(self.found.unsupported, op, f"op {op.name!r} ({op.op_type}): {error}")
            return
        for name, value in (form.constants or {}).items():
            self._know(name, value)
        for inner in form.ops:
            self.take(inner.name, op_to_node(inner))
        if form.elements is not None:
            self.sequences[op.outputs[0]] = form.elements

    def _value_of(self, name: str) -> np.ndarray | None:
        """The value of a tensor that depends on no input; None of one that does."""
        return self.derived.value(self.aliases.get(name, name))

    def _deciders(self, name: str) -> tuple[str, ...]:
        """The inputs that a tensor depends on, if they are so few and small that one would state their values."""
        found = inputs_behind(self.aliases.get(name, name), self.ops, self.inputs)
        return found if all(self.tensors[name].elements <= _FEW_NUMBERS for name in found) else ()

    def _deciding(self, op: Op) -> tuple[Sequence[str], Sequence[str]]:
        """Operands that depend on no input and may decide shapes: those that are no floats, and a few that are."""
        names = [name for name in op.inputs if name and self.derived.covers(self.aliases.get(name, name))]
        floats = [name for name in names if self.tensors[name].dtype.is_float]
        few = [name for name in floats if self.tensors[name].elements <= _FEW_FLOATS]
        return [name for name in names if name not in floats], few

    def _is_stated(self, name: str) -> bool:
        """Whether a tensor is computed from what is known and from scalars, and from no weight that may be trained."""
        return self.derived.sources(self.aliases.get(name, name)) <= self.known | self.scalars

    def _demand(self, names: Sequence[str]) -> bool:
        """Has tensors known that depend on no input, and whether there were such and they all are.

        An initializer is as known as it was: nothing more is computed from a weight.
        """
        for name in names:
            source = self.aliases.get(name, name)
            op, value = self.derived.maker(source), self.derived.value(source)
            if value is None:
                return False
            if op is not None and source not in self.known:
                self.ops = [kept for kept in self.ops if kept.name != op.name]
                for output in op.outputs:
                    if (made := self.derived.value(output)) is not None:
                        self._know(output, made)
            if op is not None:
                self.values[name] = value
                self.known.add(name)
        return bool(names)

    def _by_form(self, op: Op) -> bool:
        """Whether other ops were taken in the place of one of ONNX Runtime's own."""
        if op.domain not in self.opsets or any(operand in self.found.lost for operand in op.inputs):
            return False
        try:
            form = microsoft_form(op, self.tensors, self.values)
        except UnsupportedError as error:
            self._blame(self.found.unsupported, op, error.what)
            return True
        except ModelError as error:
            self._blame(self.found.faults, op, f"op {op.name!r} ({op.op_type}): {error.what}")
            return True
        if form is None:
            return False
        for name, value in {**form.constants, **form.weights}.items():
            self._know(name, value)
        self.known -= form.weights.keys()
        self.folded -= form.weights.keys()
        for inner in form.ops:
            self.take(inner.name, op_to_node(inner))
        return True

    def _restate(self, form: KnownForm) -> tuple[Op, NodeProto]:
        """The op in another form, for which its constants are known and the ops before it are taken."""
        constants, (*before, op) = form
        for name, value in constants.items():
            self._know(name, value)
        for earlier in before:
            self.take(earlier.name, op_to_node(earlier))
        return op, op_to_node(op)

    def _elide(self, op: Op) -> bool:
        """Whether the op hands on its operand unchanged; its output is then another name for it."""
        if op.op_type not in ("Identity", "Cast") or len(op.inputs) != 1 or len(op.outputs) != 1 or not op.inputs[0]:
            return False
        (source,), (target,) = op.inputs, op.outputs
        tensor = self.tensors[source]
        if op.op_type == "Cast" and op.attribute("to") != elem_type_of(tensor.dtype):
            return False
        if target in self.outputs:
            if source not in self.known:
                self.tensors[target] = replace(tensor, name=target)
                self.ops.append(Op(op.name, "Identity", (self.aliases.get(source, source),), (target,)))
                return True
            return False
        self.aliases[target] = self.aliases.get(source, source)
        self.tensors[target] = tensor
        if source in self.values:
            self.values[target] = self.values[source]
        for group in (self.known, self.scalars):
            if source in group:
                group.add(target)
        return True

    def _fold(self, op: Op, node: NodeProto, made: Mapping[str, Tensor | None]) -> bool:
        """Whether the op's outputs became constants."""
        if op.op_type in ("Shape", "Size") and len(op.outputs) == 1:
            self._know(op.outputs[0], extent(op, self.tensors[op.inputs[0]]))
            return True
        if op.op_type not in FOLDABLE or not self._may_fold(op, made):
            return False
        if op.op_type == "ConstantOfShape" and self._is_weight(op):
            return self._fill_weight(op, node)
        results = evaluate(node, [self.values[name] if name else None for name in op.inputs], self.opset)
        if results is None or len(results) != len(op.outputs):
            return False
        named = [(name, result) for name, result in zip(op.outputs, results, strict=True) if name]
        for name, result in named:
            tensor = made.get(name)
            if tensor is not None and (result.shape != tensor.shape or result.dtype != numpy_dtype(tensor.dtype)):
                return False
        for name, result in named:
            self._know(name, result.view())
        return True

    def _may_fold(self, op: Op, made: Mapping[str, Tensor | None]) -> bool:
        operands = [name for name in op.inputs if name]
        if not all(name in self.known or name in self.scalars for name in operands):
            return False
        if not any(name in self.known for name in operands):
            return False
        arrays = [array for name in operands if (array := self.values[name]) is not None]
        if op.op_type == "ConstantOfShape" or (op.op_type == "Expand" and is_fill(arrays[0])):
            return True
        if any(array.size > MAX_FOLDED_ELEMENTS for array in arrays):
            return False
        if op.op_type in BOUNDED_BY_INPUTS:
            return True
        return all(tensor is not None and tensor.elements <= MAX_FOLDED_ELEMENTS for tensor in made.values())

    def _is_weight(self, op: Op) -> bool:
        value = op.attribute("value")
        if op.inputs[0] not in self.initializers or not isinstance(value, TensorAttribute) or value.array.size != 1:
            return False
        shape, fill = self.values[op.inputs[0]], value.array
        if shape is None or shape.size == 0 or not dtype_of_array(fill).is_float:
            return False
        number = float(fill.flat[0])
        return math.isfinite(number) and not number.is_integer()

    def _fill_weight(self, op: Op, node: NodeProto) -> bool:
        results = evaluate(node, [self.values[op.inputs[0]]], self.opset)
        assert results is not None, "a fill can always be made"
        self._know(op.outputs[0], results[0])
        self.known.discard(op.outputs[0])
        self.folded.discard(op.outputs[0])
        return True

    def finish(self) -> Folded:
        """Drop what is dead, and refuse what is not static."""
        ops = list(self.ops)
        made = {name for op in ops for name in op.outputs}
        for output in self.outputs:
            if output not in made and output not in self.inputs:
                ops = self._with_identity(output, ops)
        wanted = set(self.outputs)
        live: list[Op] = []
        for op in reversed(ops):
            if any(name in wanted for name in op.outputs if name):
                wanted.update(name for name in op.inputs if name)
                live.append(op)
        live.reverse()
        self.found.refuse(live, self.operators, self.opset)
        names = dict.fromkeys(self.inputs)
        names.update(dict.fromkeys(name for op in live for name in (*op.inputs, *op.outputs) if name))
        computed = {*self.inputs, *(name for op in live for name in op.outputs)}
        constants = {name: self.values[name] for name in names if name in self.values and name not in computed}
        return Folded(
            ops=tuple(live),
            tensors={name: self.tensors[name] for name in names},
            constants=constants,
            folded=frozenset(self.folded & constants.keys()),
        )

    def _with_identity(self, output: str, ops: Sequence[Op]) -> list[Op]:
        """An output that is a constant is made by an op all the same: the constant gets a name of its own."""
        source = fresh_name(f"{output}.value", self.tensors)
        self.tensors[source] = replace(self.tensors[output], name=source)
        self.values[source] = self.values.pop(output)
        if output in self.folded:
            self.folded.add(source)
        renamed = [replace(op, inputs=tuple(source if name == output else name for name in op.inputs)) for op in ops]
        name = fresh_name(f"Identity.{output}", {op.name for op in ops})
        return [*renamed, Op(name, "Identity", (source,), (output,))]
