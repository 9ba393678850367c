"""The registry of emitters: each writes one ONNX operator, on a worker's own arrays, as an expression of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.model import Attribute, DType, TensorAttribute
from planner.tdl.local import LocalNode


class InexpressibleError(Exception):
    """An op that cannot be written in JAX, and why; collected, and named all at once."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of an op."""

    text: str
    """The Python name that holds it, or an expression of a constant."""
    constant: np.ndarray | None = None
    """Its value, where it is a constant."""


@dataclass(frozen=True)
class Form:
    """An op that is to be written."""

    node: LocalNode
    operands: tuple[Operand | None, ...]
    """By position; None where an input is absent."""
    opset: int
    dtypes: tuple[DType | None, ...] = ()
    """Of the outputs, where they are known."""
    helpers: set[str] = field(default_factory=set)
    """Names of helper functions that the text uses (``planner.features.export.helpers``)."""
    read: set[str | int] = field(default_factory=set)
    """Attributes and inputs, by position, that the emitter has looked at."""

    def __getitem__(self, position: int) -> str:
        self.read.add(position)
        operand = self.operands[position]
        assert operand is not None, f"input {position} of {self.node.op_type} is there"
        return operand.text

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        self.read.add(position)
        return position < len(self.operands) and self.operands[position] is not None

    def constant(self, position: int) -> np.ndarray:
        """The value of an input that must be a constant.

        Raises:
            InexpressibleError: it is none.
        """
        operand = self.operands[position] if self.has(position) else None
        if operand is None or operand.constant is None:
            raise InexpressibleError(f"{self.node.op_type}: input {position} is no constant")
        return operand.constant

    def integers(self, position: int) -> tuple[int, ...]:
        """The value of an input that is a list of integers."""
        return tuple(int(value) for value in np.atleast_1d(self.constant(position)))

    def attribute(self, name: str, default: Attribute | None = None) -> Attribute | None:
        """An attribute, or the default."""
        self.read.add(name)
        return self.node.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is an integer."""
        value = self.attribute(name, default)
        assert isinstance(value, int), f"{name} of {self.node.op_type} is an integer"
        return value

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.attribute(name, default)
        assert isinstance(value, int | float), f"{name} of {self.node.op_type} is a number"
        return float(value)

    def listed(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None where it is not stated."""
        value = self.attribute(name)
        return tuple(int(number) for number in value) if isinstance(value, tuple) else None

    def needs(self, helper: str) -> str:
        """The name of a helper function, which is then written into the file."""
        self.helpers.add(helper)
        return helper

    def refuse(self, why: str) -> InexpressibleError:
        """The error of a form of the operator that is not written."""
        return InexpressibleError(f"{self.node.op_type}: {why}")


def is_exported(dtype: DType) -> bool:
    """Whether arrays of a dtype may stand in JAX: XLA rounds narrow floats otherwise, and holds no packed integers."""
    return dtype.item_bytes > 1 or dtype in (DType.INT8, DType.UINT8, DType.BOOL)


Emitter: TypeAlias = Callable[[Form], "str | Sequence[str]"]
_EMITTERS: dict[str, Emitter] = {}


def emitter(*op_types: str) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for operators of ONNX's default domain."""

    def register(function: Emitter) -> Emitter:
        for op_type in op_types:
            assert op_type not in _EMITTERS, f"{op_type} has an emitter already"
            _EMITTERS[op_type] = function
        return function

    return register


def emitted(form: Form) -> tuple[str, ...]:
    """The expressions of an op's outputs; a single one may be a tuple of all.

    Raises:
        InexpressibleError: the operator has no emitter, or none for this form: the text would leave out an attribute
            or an input that the emitter does not read.
    """
    node = form.node
    if node.domain or node.op_type not in _EMITTERS:
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise InexpressibleError(f"operator {name} has no form in JAX")
    text = _EMITTERS[node.op_type](form)
    unread = [name for name in sorted(node.attributes) if name not in form.read]
    unread += [f"input {n}" for n, operand in enumerate(form.operands) if operand is not None and n not in form.read]
    if unread:
        raise form.refuse(f"{', '.join(unread)}")
    return (text,) if isinstance(text, str) else tuple(text)


MOST_ELEMENTS: Final = 256
"""Of a constant that is written out element by element."""


def literal(value: np.ndarray) -> str:
    """A constant as an expression of JAX, with its dtype.

    Raises:
        InexpressibleError: it is too large to be written out, and not of one value.
    """
    dtype = f"jnp.{value.dtype.name}" if value.dtype != np.bool_ else "jnp.bool_"
    if value.size and (value == value.reshape(-1)[0]).all() and value.ndim:
        return f"jnp.full({value.shape}, {_number(value.reshape(-1)[0])}, {dtype})"
    if value.ndim == 0:
        return f"{dtype}({_number(value[()])})"
    if value.ndim == 1 and value.size > 2 and value.dtype.kind in "iu":
        steps = np.diff(value)
        if (steps == steps[0]).all() and steps[0]:
            start, step = int(value[0]), int(steps[0])
            return f"jnp.arange({start}, {start + step * value.size}, {step}, dtype={dtype})"
    if value.size > MOST_ELEMENTS:
        raise InexpressibleError(f"a constant of {value.size:,} elements is too large to be written out")
    return f"jnp.array({_listed(value)}, {dtype})"


def _number(value: object) -> str:
    if isinstance(value, np.bool_):
        return str(bool(value))
    if isinstance(value, np.integer):
        return str(int(value))
    number = float(value)  # type: ignore[arg-type]
    return repr(number) if np.isfinite(number) else f'float("{number}")'


def _listed(value: np.ndarray) -> str:
    if value.ndim == 0:
        return _number(value[()])
    return "[" + ", ".join(_listed(row) for row in value) + "]"


def tensor_attribute(form: Form, name: str) -> np.ndarray | None:
    """An attribute that is a tensor; None where it is not stated."""
    value: object = form.attribute(name)
    return value.array if isinstance(value, TensorAttribute) else None


def per_axes(form: Form) -> tuple[int, ...] | None:
    """Axes, from an input in newer opsets and an attribute in older ones; None: not stated."""
    return form.integers(1) if form.has(1) else form.listed("axes")
