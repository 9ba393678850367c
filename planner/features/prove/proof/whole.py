"""The model as the prover asks for it: its tensors by symbol, its constants by content, its ops by kind.

Tensors that ops of one kind make of the same tensors are equal, and have one symbol: copies that are computed again,
identities, shared deliveries. Ops that draw random numbers are never taken for equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.features.prove.proof.claims import Symbol
from planner.features.prove.proof.expression import ARITHMETIC, Described, Joins, Num
from planner.features.prove.proof.pairing import Literal
from planner.graph.core.model import DType, Graph, Op, Shape, Tensor, TensorAttribute, of_types
from planner.graph.core.traits import RANDOM
from planner.graph.files.fills import is_fill
from planner.graph.folding.derived import Derived
from planner.graph.step.deliveries import is_delivery
from planner.tdl.bind import BoundOp
from planner.tdl.builder import Description
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import Access, Apply, Match, OpaqueResult, subvalues
from planner.tdl.node_view import NodeView

_MOST_DERIVED = 2**24
"""Elements of what is worked out of the model: a part of it, in a worker's file, may be few enough to be folded."""
_BY_RULE_ALONE = "by its local rule alone"


def _attribute_key(op: Op) -> Hashable:
    """Attributes as they are told apart: of arrays every byte, of numbers also whether they are whole."""
    return tuple((name, value if isinstance(value, TensorAttribute) else repr(value)) for name, value in op.attributes)


def held(value: np.ndarray) -> Num | Literal:
    """The form of a constant array: a number where all of its elements are one, else its elements.

    One that repeats an element takes its memory, whatever its shape.
    """
    first, itemsize = value[(slice(0, 1),) * value.ndim].copy(), value.dtype.itemsize
    if value.size and not is_fill(value) and itemsize in (1, 2, 4, 8):
        bits = np.ascontiguousarray(value).reshape(-1).view(f"u{itemsize}")
        if bool(np.all(bits == bits[0])):
            value = np.broadcast_to(first.reshape(()), value.shape)
    if value.size and is_fill(value):
        if value.dtype.kind in "fiubV" and not value.dtype.metadata:
            number = float(first.reshape(())[()])
            is_exact = abs(number) < (2**53 if value.dtype.kind in "iub" else float("inf"))
            if is_exact and not (number == 0 and np.signbit(number)):
                return Num(number)
        content = first
    else:
        content = np.ascontiguousarray(value)
    digest = hashlib.sha256(f"{value.dtype}{value.shape}{content.size}".encode() + content.tobytes()).hexdigest()
    return Literal(digest, value)


def array_of(constant: Num | Literal, shape: Shape, dtype: DType) -> np.ndarray:
    """The array that is held so."""
    if isinstance(constant, Literal):
        return constant.array
    return np.broadcast_to(np.array(constant.value).astype(dtype.array_dtype), shape)


@dataclass(frozen=True, slots=True)
class ModelOp:
    """An op of the model with what its description says of each output; None where the output is absent."""

    described_op: BoundOp
    outputs: tuple[Described | None, ...]
    kind: int
    reads: tuple[Symbol | Num | Literal | None, ...]
    """By slot."""
    makes: tuple[Symbol | None, ...]
    is_by_rule: bool
    """Whether it has functions, or lookups, that are told by its local rule alone."""


class Whole:
    """The model.

    Args:
        graph: the form that was divided.
        ops: its ops, described, in its order.
        descriptions: in force.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp], descriptions: Descriptions) -> None:
        self.graph = graph
        self.descriptions = descriptions
        self._kinds: dict[Hashable, int] = {}
        self.rules: dict[Hashable, Any] = {}
        """What local rules say, by kind of op and part, as far as it was read."""
        self._held: dict[int, tuple[np.ndarray, Num | Literal]] = {}
        self._described: dict[int, tuple[Described | None, ...]] = {}
        self._by_rule: dict[int, bool] = {}
        self._constants: dict[str, Num | Literal] = {
            name: self.held(value) for name, value in graph.constants.items() if value is not None
        }
        self._symbols: dict[str, Symbol] = {}
        self.ops: dict[str, ModelOp] = {}
        self.sizes: dict[Symbol, Tensor] = {}
        self.makers = {name: bound.op.name for bound in ops for name in bound.op.outputs}
        symbols_by_key: dict[Hashable, tuple[Symbol | None, ...]] = {}
        arrays = dict(graph.constants)
        self._derived = Derived(arrays, graph.opset, most=_MOST_DERIVED)
        for described_op in ops:
            model_op = self._model_op(described_op, symbols_by_key)
            op = described_op.op
            read = list(op.inputs)
            for slot in described_op.description.shape_only:  # of what it holds nothing matters
                if slot < len(read) and read[slot] and not self._derived.covers(read[slot]):
                    tensor, read[slot] = graph.tensors[read[slot]], f"{op.name}\0{slot}"
                    arrays[read[slot]] = np.broadcast_to(np.zeros((), tensor.dtype.array_dtype), tensor.shape)
            self._derived.note(replace(op, inputs=tuple(read)), [graph.tensors[name] for name in op.outputs if name])
            self.ops[described_op.op.name] = model_op
            for name, symbol in zip(described_op.op.outputs, model_op.makes, strict=True):
                if name and symbol is not None:
                    self._symbols[name] = symbol
        for name, tensor in graph.tensors.items():
            self.sizes.setdefault(self.symbol(name), tensor)

    def held(self, value: np.ndarray) -> Num | Literal:
        """The form of a constant array; the same array is looked at once."""
        if id(value) not in self._held:
            self._held[id(value)] = value, held(value)
        return self._held[id(value)][1]

    def value(self, name: str) -> np.ndarray | None:
        """The value of a tensor that no data change; None of any other, or where it is not worked out."""
        return self._derived.value(name)

    def symbol(self, name: str) -> Symbol:
        """The symbol of a tensor."""
        return self._symbols.get(name, name)

    def label(self, op: str) -> str:
        """An op with its type, if the model has it."""
        model_op = self.ops.get(op)
        return op if model_op is None else f"{op} ({model_op.described_op.op.op_type})"

    def constant(self, name: str) -> Num | Literal | None:
        """The value of a constant; None where it is none, or its value is not there."""
        return self._constants.get(name)

    def _model_op(self, described_op: BoundOp, symbols_by_key: dict[Hashable, tuple[Symbol | None, ...]]) -> ModelOp:
        op = described_op.op
        reads = tuple((self.constant(name) or self.symbol(name)) if name else None for name in op.inputs)
        kind = self._kind(described_op.node)
        makes: tuple[Symbol | None, ...] = tuple(name or None for name in op.outputs)
        if is_delivery(op) or (of_types(op, ("Identity",)) and not isinstance(reads[0], Num | Literal)):
            makes = (reads[0],)
        elif op.op_type not in RANDOM:
            key = (kind, reads, tuple(map(bool, op.outputs)))
            equal_makes = symbols_by_key.setdefault(key, makes)
            makes = equal_makes
        if kind not in self._described:
            # What runs whole because nobody describes it has no expression, and is not proven.
            is_told = not self.descriptions.is_unknown(described_op)
            self._described[kind] = (
                described(described_op.node, described_op.description) if is_told else (None,) * len(op.outputs)
            )
            self._by_rule[kind] = is_told and any(map(_is_by_rule, self._described[kind]))
        return ModelOp(described_op, self._described[kind], kind, reads, makes, self._by_rule[kind])

    def _kind(self, node: NodeView) -> int:
        key = (
            node.op.domain,
            node.op.op_type,
            _attribute_key(node.op),
            node.input_shapes,
            node.output_shapes,
            node.input_dtypes,
            node.output_dtypes,
            tuple(None if value is None else self.held(value) for value in node.constants),
        )
        return self._kinds.setdefault(key, len(self._kinds))


def described(node: NodeView, description: Description) -> tuple[Described | None, ...]:
    """The description of an op's outputs."""
    outputs = description.trace(node)
    present = [shape is not None for shape in node.output_shapes]
    read = {
        value.slot
        for output, is_present in zip(outputs, present, strict=False)
        if is_present
        for value in subvalues(output.value)
        if isinstance(value, Access)
    }
    op = node.op
    unread = tuple(
        (slot, held(value))
        for slot, value in enumerate(node.constants)
        if value is not None and slot not in read and slot not in description.shape_only
    )

    def tag(function: str) -> Hashable:
        dtypes = tuple(dtype.value if dtype else "" for dtype in node.output_dtypes)
        present_slots = tuple(slot for slot, shape in enumerate(node.input_shapes) if shape is not None)
        if of_types(op, ("Concat",)):
            axis = int(node.attribute("axis")) % node.output_rank()
            sizes = [shape[axis] for shape in node.input_shapes if shape is not None]
            return Joins(axis, tuple((sum(sizes[:n]), size) for n, size in enumerate(sizes)))
        if description.local is not None or op.op_type in RANDOM:
            # A new object is equal to no other: the description does not say what is computed.
            return _BY_RULE_ALONE, object()
        return function, op.domain, op.op_type, _attribute_key(op), present_slots, unread, dtypes

    return tuple(
        Described(output, node, tag, dtype) if is_present and dtype is not None else None
        for output, is_present, dtype in zip(outputs, present, node.output_dtypes, strict=False)
    )


def _is_by_rule(expression: Described | None) -> bool:
    for value in () if expression is None else subvalues(expression.output.value):
        if isinstance(value, Match):
            return True
        if isinstance(value, Apply | OpaqueResult):
            name = value.function if isinstance(value, Apply) else value.name
            tag = expression.tag(name) if expression is not None else None
            if isinstance(tag, tuple) and tag[:1] == (_BY_RULE_ALONE,) and name not in ARITHMETIC:
                return True
    return False


def local_view(op: Op, graph: Graph, constants: Mapping[str, np.ndarray]) -> NodeView:
    """A node of a worker's function, as descriptions see it."""
    shapes = graph.tensors

    def of(names: Sequence[str]) -> tuple[tuple[Shape | None, ...], tuple[DType | None, ...]]:
        return (
            tuple(shapes[name].shape if name else None for name in names),
            tuple(shapes[name].dtype if name else None for name in names),
        )

    (inputs, input_dtypes), (outputs, output_dtypes) = of(op.inputs), of(op.outputs)
    return NodeView(
        op,
        inputs,
        outputs,
        tuple(constants.get(name) if name else None for name in op.inputs),
        input_dtypes=input_dtypes,
        output_dtypes=output_dtypes,
        opset=graph.opset,
    )
