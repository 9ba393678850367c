"""The signature of an op that a description and a local rule see, and a record of their questions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from planner.errors import DescriptionError
from planner.graph.core.model import Attribute, DType, Op, Shape

Constants: TypeAlias = tuple[np.ndarray | None, ...]
Derivation: TypeAlias = "Callable[[NodeView], Hashable]"
_Item = TypeVar("_Item")


@dataclass
class NodeView:
    """The view of an op that a description and a local rule have.

    Reading a size or a constant makes it part of the op's signature, so ask for as few as the mathematics needs.
    """

    op: Op
    input_shapes: tuple[Shape | None, ...]
    """By position; None where the input is absent."""
    output_shapes: tuple[Shape | None, ...]
    constants: Constants
    """By position: the value of an input that is a constant, else None."""
    questions: set[tuple[str, int, int]] = field(default_factory=set)
    """What was asked for: sizes ("in" or "out", position, dim), whether a size is 1 ("single", position, dim) and
    constants ("constant", position, 0)."""
    input_dtypes: tuple[DType | None, ...] = ()
    """By position, for local rules that make constants; None where the input is absent."""
    output_dtypes: tuple[DType | None, ...] = ()
    opset: int = 21
    """Version of the default operator domain."""
    derived: dict[Derivation, None] = field(default_factory=dict)
    """What ``derive`` was asked for, in order."""

    def derive(self, function: Derivation) -> Any:
        """The answer of a function about the op; its result becomes part of the signature, and not the sizes that it
        reads.

        A Reshape needs of its shapes only how dims are merged and split.

        Args:
            function: defined once (not inside of the description), so that it is known again; its result is hashable.
        """
        self.derived[function] = None
        return self.answer(function)

    def answer(self, function: Derivation) -> Hashable:
        """The answer of a function about the op, without a trace of its questions."""
        return function(replace(self, questions=set(), derived={}))

    def attribute(self, name: str, default: Attribute | None = None) -> Any:
        """The attribute's value; ONNX's default must be given by the caller."""
        return self.op.attribute(name, default)

    def has(self, slot: int) -> bool:
        return slot < len(self.input_shapes) and self.input_shapes[slot] is not None

    def input_shape(self, slot: int) -> Shape:
        """The shape of an input that is there. It does not become part of the signature: descriptions ask for sizes."""
        return _present(self.input_shapes, slot, "input")

    def output_shape(self, position: int = 0) -> Shape:
        """The same of an output."""
        return _present(self.output_shapes, position, "output")

    def input_dtype(self, slot: int) -> DType:
        """The dtype of an input that is there."""
        return _present(self.input_dtypes, slot, "input")

    def rank(self, slot: int) -> int:
        shape = self.input_shape(slot)
        return len(shape)

    def output_rank(self, position: int = 0) -> int:
        shape = self.output_shape(position)
        return len(shape)

    def size(self, slot: int, dim: int) -> int:
        """The size of an input's dim; it becomes part of the signature."""
        shape = self.input_shape(slot)
        self.questions.add(("in", slot, dim % len(shape)))
        return shape[dim]

    def is_single(self, slot: int, dim: int) -> bool:
        """True if an input's dim has size 1, and so may be broadcast; only that becomes part of the signature."""
        shape = self.input_shape(slot)
        self.questions.add(("single", slot, dim % len(shape)))
        return shape[dim] == 1

    def output_size(self, dim: int, position: int = 0) -> int:
        """The size of an output's dim; it becomes part of the signature."""
        shape = self.output_shape(position)
        self.questions.add(("out", position, dim % len(shape)))
        return shape[dim]

    def constant(self, slot: int) -> np.ndarray:
        """The value of an input that must be constant (axes, a shape); it becomes part of the signature.

        Raises:
            DescriptionError: the input is computed by the graph.
        """
        value = self.constant_if_known(slot)
        if value is None:
            raise DescriptionError(
                f"its input {slot} ({self.op.inputs[slot]!r}) is data, and a plan needs its value",
                hint="make it a constant of the model; what an input is fixed to is said with --value",
            )
        return value

    def constant_if_known(self, slot: int) -> np.ndarray | None:
        """The value of an input if it is constant, else None; which of them becomes part of the signature."""
        self.questions.add(("constant", slot, 0))
        return self.constants[slot] if slot < len(self.constants) else None


def _present(items: Sequence[_Item | None], position: int, side: str) -> _Item:
    item = items[position] if position < len(items) else None
    if item is None:
        raise DescriptionError(f"{side} {position} is absent")
    return item
