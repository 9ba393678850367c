"""Writing descriptions as Python functions (Tofu, section 4.1 and figure 3).

A description is a function from a node and its input tensors to one lambda for each output::

    @op("Conv")
    def conv(node, X, W, B=None):
        return lambda b, co, *y: Sum(lambda ci, *k: X[b, ci, ...] * W[co, ci, *k], count=len(y))

``lambda *b, m, n: ...`` is how a description covers every rank: the starred name stands for as many variables
as the output has dims left. Variables of the same name in several outputs are the same variable.

Ranks, attributes and constant inputs are known while the function runs; sizes stay symbolic unless asked for
(``node.size``), which makes them part of the op's signature.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from planner.algebra.tiling import Reducer
from planner.errors import DescriptionError
from planner.graph.model import Attribute, DType, Op, Shape
from planner.tdl.expr import (
    Access,
    Apply,
    At,
    FloorDiv,
    Index,
    IndexValue,
    Match,
    Mod,
    Number,
    OpaqueResult,
    Output,
    Plus,
    Reduce,
    Times,
    Value,
    Var,
    VarKind,
    Whole,
)
from planner.tdl.local import LocalRule

Constants: TypeAlias = tuple[np.ndarray | None, ...]


class Ix:
    """An index expression under construction; arithmetic stays affine or is refused."""

    __slots__ = ("tree",)
    __hash__ = None  # type: ignore[assignment]  # an index is not a key: comparing two is an error

    def __init__(self, tree: Index) -> None:
        self.tree = tree

    def __add__(self, other: Ix | int) -> Ix:
        return Ix(Plus(self.tree, _index(other)))

    __radd__ = __add__

    def __neg__(self) -> Ix:
        return Ix(Times(self.tree, Fraction(-1)))

    def __sub__(self, other: Ix | int) -> Ix:
        return self + (-other)

    def __rsub__(self, other: int) -> Ix:
        return -self + other

    def __mul__(self, other: int | Fraction | Ix) -> Ix:
        if isinstance(other, Ix):
            raise DescriptionError("the product of two index variables is not affine")
        return self if other == 1 else Ix(Times(self.tree, Fraction(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: int | Fraction | Ix) -> Ix:
        if isinstance(other, Ix):
            raise DescriptionError("an index variable cannot be divided by another: that is not affine")
        return Ix(Times(self.tree, 1 / Fraction(other)))

    def __floordiv__(self, other: int) -> Ix:
        return self if _divisor(other) == 1 else Ix(FloorDiv(self.tree, other))

    def __mod__(self, other: int) -> Ix:
        return Ix(Mod(self.tree, _divisor(other)))

    def _refuse(self, other: object) -> bool:
        raise DescriptionError("index variables cannot be compared")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse


def _divisor(value: object) -> int:
    if not isinstance(value, int) or value <= 0:
        raise DescriptionError("an index can be divided by a positive integer only")
    return value


def _index(value: Ix | int | slice | At) -> Index:
    match value:
        case Ix():
            return value.tree
        case int():
            return Number(Fraction(value))
        case slice(start=None, stop=None, step=None):
            return Whole()
        case At():
            return value
    raise DescriptionError(f"{value!r} is not an index: use index variables, integers, ':' or at(tensor[...])")


class Val:
    """A value under construction."""

    __slots__ = ("tree",)

    def __init__(self, tree: Value) -> None:
        self.tree = tree

    def __add__(self, other: Val | float) -> Val:
        return call("+", self, other)

    def __radd__(self, other: float) -> Val:
        return call("+", other, self)

    def __sub__(self, other: Val | float) -> Val:
        return call("-", self, other)

    def __rsub__(self, other: float) -> Val:
        return call("-", other, self)

    def __mul__(self, other: Val | float) -> Val:
        return call("*", self, other)

    def __rmul__(self, other: float) -> Val:
        return call("*", other, self)

    def __truediv__(self, other: Val | float) -> Val:
        return call("/", self, other)

    def __neg__(self) -> Val:
        return call("-", 0.0, self)


def _value(value: Val | float | Ix) -> Value:
    match value:
        case Val():
            return value.tree
        case Ix():
            return IndexValue(value.tree)
        case int() | float():
            return Number(float(value))
    raise DescriptionError(f"{value!r} is not a value")


def call(function: str, *arguments: Val | float | Ix) -> Val:
    """A function of values, element by element: ``call("Exp", X[i])``."""
    return Val(Apply(function, tuple(_value(argument) for argument in arguments)))


class TensorArg:
    """An input of the op: index it to read an element, with ``:`` to read a slice, with ``...`` to read all of it."""

    __slots__ = ("fill", "rank", "slot")

    def __init__(self, slot: int, rank: int, fill: float | None = None) -> None:
        self.slot = slot
        self.rank = rank
        self.fill = fill

    def padded(self, fill: float) -> TensorArg:
        """The same tensor, surrounded by ``fill``."""
        return TensorArg(self.slot, self.rank, fill)

    def __getitem__(self, key: object) -> Val:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) == 1 and keys[0] is ...:
            keys = (slice(None),) * self.rank
        if len(keys) != self.rank:
            raise DescriptionError(f"input {self.slot} has rank {self.rank} and is read with {len(keys)} indices")
        return Val(Access(self.slot, tuple(_index(part) for part in keys), self.fill))

    def scalar(self) -> Val:
        """The value of a tensor of rank 0."""
        return self[()]


def at(value: Val) -> At:
    """An index that the data decides: ``X[at(I[i]), j]``."""
    if not isinstance(value.tree, Access):
        raise DescriptionError("at(...) takes an element of a tensor")
    return At(value.tree)


def match(element: Val, index: Ix | int) -> Val:
    """A value: 1 where an element of a tensor is the index, else 0.

    ``Sum(lambda v: X[v, d] * match(I[i], v))`` looks up ``X[I[i], d]``.
    """
    if not isinstance(element.tree, Access):
        raise DescriptionError("match(...) takes an element of a tensor, and an index")
    return Val(Match(element.tree, _index(index)))


@dataclass(frozen=True, slots=True)
class _ReducerFunction:
    """Sum, Max, Min or Prod over the variables of a lambda."""

    reducer: Reducer

    def __call__(
        self, body: Callable[..., Val | float], *, extents: Sequence[int] | None = None, count: int | None = None
    ) -> Val:
        """Reduces ``body`` over its variables.

        Args:
            body: a lambda whose parameters are the reduction variables.
            extents: how far each variable runs, where no tensor is indexed by it alone.
            count: how many variables a starred parameter stands for.
        """
        given = len(extents) if extents is not None else count
        names = variable_names(body, given)
        variables = tuple(Var(name, VarKind.REDUCTION) for name in names)
        if extents is not None and len(extents) != len(names):
            raise DescriptionError(f"{len(names)} reduction variables and {len(extents)} extents")
        inner = _value(_apply(body, variables))
        return Val(Reduce(self.reducer, variables, inner, tuple(extents) if extents else None) if variables else inner)


def over(names: Sequence[str], body: Callable[..., Val | float]) -> Callable[..., Val | float]:
    """A lambda whose index variables are named by a list, for outputs that share some of their variables.

    ``over(("b", "i1"), lambda *v: X[*v])`` is ``lambda b, i1: X[b, i1]``.
    """

    def named(*variables: Ix) -> Val | float:
        return body(*variables)

    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named.__signature__ = inspect.Signature([inspect.Parameter(name, plain) for name in names])  # type: ignore[attr-defined]
    return named


Sum = _ReducerFunction(Reducer.SUM)
Max = _ReducerFunction(Reducer.MAX)
Min = _ReducerFunction(Reducer.MIN)
Prod = _ReducerFunction(Reducer.PROD)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A function that the language does not look into (Tofu, section 4.1): the dims of its result stay whole.

    ``Opaque("Cholesky")(M[b, :, :])[i, j]``: element (i, j) of the Cholesky factor of the b-th matrix.
    """

    name: str

    def __call__(self, *arguments: Val) -> _OpaqueCall:
        return _OpaqueCall(self.name, tuple(_value(argument) for argument in arguments))


@dataclass(frozen=True, slots=True)
class _OpaqueCall:
    name: str
    arguments: tuple[Value, ...]

    def __getitem__(self, key: object) -> Val:
        keys = key if isinstance(key, tuple) else (key,)
        return Val(OpaqueResult(self.name, self.arguments, tuple(_index(part) for part in keys)))


def variable_names(function: Callable[..., object], total: int | None) -> tuple[str, ...]:
    """The index variables that a lambda's parameters stand for.

    Args:
        function: its plain, starred and keyword-only parameters are index variables, in that order.
        total: how many there are in all; needed where a parameter is starred.

    Raises:
        DescriptionError: the count does not fit.
    """
    before, after, star = [], [], None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            star = parameter.name
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            after.append(parameter.name)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise DescriptionError("a description's lambda cannot take **keywords")
        else:
            before.append(parameter.name)
    if star is None:
        names = (*before, *after)
        if total is not None and total != len(names):
            raise DescriptionError(f"a lambda of {len(names)} index variables ({', '.join(names)}) where {total} fit")
        return names
    if total is None:
        raise DescriptionError(f"how many index variables *{star} stands for is not said", hint="give count=")
    starred = total - len(before) - len(after)
    if starred < 0:
        raise DescriptionError(f"a lambda of at least {len(before) + len(after)} index variables where {total} fit")
    return (*before, *(f"{star}{position}" for position in range(starred)), *after)


def _apply(function: Callable[..., Any], variables: Sequence[Var]) -> Any:
    parameters = inspect.signature(function).parameters.values()
    after = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    positional = [Ix(variable) for variable in variables[: len(variables) - len(after)]]
    keywords = {name: Ix(variable) for name, variable in zip(after, variables[len(positional) :], strict=True)}
    return function(*positional, **keywords)


Derivation: TypeAlias = "Callable[[NodeView], Hashable]"


@dataclass
class NodeView:
    """What a description and a local rule may know of the op.

    Reading a size or a constant makes it part of the op's signature, so ask for as few as the mathematics needs.
    """

    op: Op
    input_shapes: tuple[Shape | None, ...]
    """By position; None where the input is absent."""
    output_shapes: tuple[Shape | None, ...]
    constants: Constants
    """By position: the value of an input that is a constant, else None."""
    asked: set[tuple[str, int, int]] = field(default_factory=set)
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
        """What a function makes of the op; its result becomes part of the signature, and not the sizes that it reads.

        A Reshape needs of its shapes only how dims are merged and split.

        Args:
            function: defined once (not inside of the description), so that it is known again; its result is hashable.
        """
        self.derived[function] = None
        return self.answer(function)

    def answer(self, function: Derivation) -> Hashable:
        """What a function makes of the op, without a trace of what it asked."""
        return function(replace(self, asked=set(), derived={}))

    def attribute(self, name: str, default: Attribute | None = None) -> Any:
        """The attribute's value; ONNX's default must be given by the caller."""
        return self.op.attribute(name, default)

    def has(self, slot: int) -> bool:
        return slot < len(self.input_shapes) and self.input_shapes[slot] is not None

    def rank(self, slot: int) -> int:
        shape = self.input_shapes[slot]
        if shape is None:
            raise DescriptionError(f"input {slot} is absent")
        return len(shape)

    def output_rank(self, position: int = 0) -> int:
        shape = self.output_shapes[position]
        if shape is None:
            raise DescriptionError(f"output {position} is absent")
        return len(shape)

    def size(self, slot: int, dim: int) -> int:
        """The size of an input's dim; it becomes part of the signature."""
        shape = self.input_shapes[slot]
        if shape is None:
            raise DescriptionError(f"input {slot} is absent")
        self.asked.add(("in", slot, dim % len(shape)))
        return shape[dim]

    def is_single(self, slot: int, dim: int) -> bool:
        """True if an input's dim has size 1, and so may be broadcast; only that becomes part of the signature."""
        shape = self.input_shapes[slot]
        if shape is None:
            raise DescriptionError(f"input {slot} is absent")
        self.asked.add(("single", slot, dim % len(shape)))
        return shape[dim] == 1

    def output_size(self, dim: int, position: int = 0) -> int:
        """The size of an output's dim; it becomes part of the signature."""
        shape = self.output_shapes[position]
        if shape is None:
            raise DescriptionError(f"output {position} is absent")
        self.asked.add(("out", position, dim % len(shape)))
        return shape[dim]

    def constant(self, slot: int) -> np.ndarray:
        """The value of an input that must be constant (axes, a shape); it becomes part of the signature.

        Raises:
            DescriptionError: the input is computed by the graph.
        """
        value = self.constant_if_known(slot)
        if value is None:
            raise DescriptionError(f"input {slot} is not a constant")
        return value

    def constant_if_known(self, slot: int) -> np.ndarray | None:
        """The value of an input if it is constant, else None; which of them becomes part of the signature."""
        self.asked.add(("constant", slot, 0))
        return self.constants[slot] if slot < len(self.constants) else None


DescriptionFunction: TypeAlias = Callable[..., Any]
ReferenceFunction: TypeAlias = Callable[..., Any]
"""From the op and its inputs, as arrays of which floating-point ones are float64, to the output or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Description:
    """An op type's meaning, and how its local op is built where that is not plain."""

    op_types: tuple[str, ...]
    function: DescriptionFunction
    domain: str = ""
    local: LocalRule | None = None
    """None: the local op is the same op on smaller tensors."""
    reference: ReferenceFunction | None = None
    """The operator in NumPy, to verify runs by; None where nobody wrote it."""
    shape_only: tuple[int, ...] = ()
    """Inputs of which nothing but the shape matters: nothing of them is brought to a worker."""

    def trace(self, node: NodeView) -> tuple[Output, ...]:
        """Runs the description for one op.

        Raises:
            DescriptionError: naming the description's line.
        """
        arguments = [
            None if shape is None else TensorArg(slot, len(shape)) for slot, shape in enumerate(node.input_shapes)
        ]
        try:
            returned = self.function(node, *arguments)
            lambdas = returned if isinstance(returned, tuple) else (returned,)
            return tuple(self._output(node, position, body) for position, body in enumerate(lambdas))
        except DescriptionError as error:
            raise DescriptionError(
                f"description of {node.op.op_type} (op {node.op.name}), {self._line(error)}: {error.what}",
                facts=error.facts,
                hint=error.hint,
            ) from error

    def _output(self, node: NodeView, position: int, body: Callable[..., Val | float]) -> Output:
        present = position < len(node.output_shapes) and node.output_shapes[position] is not None
        if not present:
            return Output((), Number(0.0))
        variables = tuple(Var(name) for name in variable_names(body, node.output_rank(position)))
        return Output(variables, _value(_apply(body, variables)))

    def _line(self, error: BaseException) -> str:
        file = inspect.getfile(self.function)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        return f"{file}:{frames[-1].lineno if frames else self.function.__code__.co_firstlineno}"


def op(
    *op_types: str,
    domain: str = "",
    local: LocalRule | None = None,
    reference: ReferenceFunction | None = None,
    shape_only: tuple[int, ...] = (),
) -> Callable[[DescriptionFunction], Description]:
    """Turns a function into the description of these op types.

    Args:
        op_types: ONNX operator names that share the description.
        domain: the operators' domain; "" is ONNX's default one.
        local: builds the local op where it is not the same op with the same attributes.
        reference: the operator in NumPy, ``reference(op, *inputs)``, by which `tofu run --verify` judges runs.
        shape_only: inputs of which nothing but the shape matters; the local rule does without them.
    """

    def wrap(function: DescriptionFunction) -> Description:
        return Description(op_types, function, domain, local, reference, shape_only)

    return wrap
