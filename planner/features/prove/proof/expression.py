"""Expressions: an op's output element, by its description, in tensors of the model.

Descriptions are read as they are (``planner.tdl``). What an op reads is an array of which a claim is known, a number,
or what an op before it made, whose own expression is then put in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import TypeAlias

from planner.algebra.tiling import Reducer
from planner.features.prove.proof import index
from planner.features.prove.proof.claims import Partial, Symbol
from planner.features.prove.proof.index import Lin, Space
from planner.graph.core.model import DType
from planner.tdl import expr as tdl
from planner.tdl.extents import reduced_extent
from planner.tdl.node_view import NodeView


class UnprovenError(Exception):
    """The rules do not reach this far: nothing is said of what is right."""


@dataclass(frozen=True, slots=True)
class Num:
    value: float


@dataclass(frozen=True, slots=True)
class Acc:
    """An element of a tensor, read through an array that holds a part of it."""

    tensor: Symbol
    at: tuple[Lin | Acc | None, ...]
    """In places of the tensor; None: all of the dim; an access: the data decide."""
    lo: tuple[int | None, ...]
    """Where the array begins, by dim; None where the tensor does not change along the dim."""
    held: tuple[int, ...]
    """Sizes of the array."""
    sizes: tuple[int, ...]
    """Of the tensor."""
    fill: float | None
    partial: Partial | None = None
    origin: int = field(default=-1, compare=False)
    """The number of the claim that says so in its call; less than 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Joins:
    """The tag of a Concat: it takes the one of its arguments whose place it is."""

    axis: int
    places: tuple[tuple[int, int], ...]
    """Where each argument begins along the axis, and its size."""


@dataclass(frozen=True, slots=True)
class App:
    tag: Hashable
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Red:
    reducer: Reducer
    variables: tuple[int, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Opq:
    tag: Hashable
    arguments: tuple[Expr, ...]
    at: tuple[Lin | None, ...]


@dataclass(frozen=True, slots=True)
class Pos:
    """A place as a value."""

    at: Lin


@dataclass(frozen=True, slots=True)
class Hit:
    element: Expr
    at: Lin


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of terms times factors."""

    terms: tuple[tuple[float, Expr], ...]


@dataclass(frozen=True, slots=True)
class Times:
    factors: tuple[Expr, ...]


Expr: TypeAlias = Num | Acc | App | Red | Opq | Pos | Hit | Total | Times
At: TypeAlias = "tuple[Lin | Acc | None, ...]"
Read: TypeAlias = Callable[[int, At, "float | None"], Expr]
"""From a slot, indices and a fill to what is read."""


ARITHMETIC = frozenset(("+", "-", "*", "/", "Add", "Sub", "Mul", "Div", "Sum", "Neg", "Identity"))
"""Functions of descriptions that are known by their names."""


def terms_of(value: Expr) -> tuple[tuple[float, Expr], ...]:
    return value.terms if isinstance(value, Total) else ((1.0, value),)


def scaled(factor: float, value: Expr) -> Expr:
    if isinstance(value, Num):
        return Num(factor * value.value)
    return _total(tuple((factor * coefficient, term) for coefficient, term in terms_of(value)))


def _total(terms: tuple[tuple[float, Expr], ...]) -> Expr:
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Total(terms)


def _product(factors: Sequence[Expr]) -> Expr:
    constant = 1.0
    symbolic: list[Expr] = []
    for factor in factors:
        terms = terms_of(factor)
        if isinstance(factor, Num):
            constant *= factor.value
        elif len(terms) == 1:
            constant *= terms[0][0]
            symbolic.extend(terms[0][1].factors if isinstance(terms[0][1], Times) else (terms[0][1],))
        else:
            symbolic.append(factor)
    if not symbolic:
        return Num(constant)
    return scaled(constant, symbolic[0] if len(symbolic) == 1 else Times(tuple(symbolic)))


@dataclass(frozen=True, slots=True)
class Described:
    """One output of an op, as its description says."""

    output: tdl.Output
    node: NodeView
    tag: Callable[[str], Hashable]
    """What tells a function of the description from others: its name, and what of the op it may depend on."""
    dtype: DType

    def at(self, where: Sequence[Lin], read: Read, space: Space) -> Expr:
        """The element at an index."""
        if any(step != 1 for step in self.output.steps):
            raise UnprovenError("an output in steps")
        names = {variable.name: lin for variable, lin in zip(self.output.variables, where, strict=False)}
        return self._value(self.output.value, names, read, space)

    def _value(self, value: tdl.Value, names: dict[str, Lin], read: Read, space: Space) -> Expr:
        match value:
            case tdl.Number(constant):
                return Num(float(constant))
            case tdl.Access(slot, indices, fill):
                return read(slot, tuple(self._index(place, names, read, space) for place in indices), fill)
            case tdl.Apply(function, arguments):
                return self._applied(function, [self._value(child, names, read, space) for child in arguments])
            case tdl.Reduce(reducer, variables, body):
                body_names = dict(names)
                numbers = []
                for place, variable in enumerate(variables):
                    lin = space.variable(reduced_extent(value, place).size(self.node))
                    body_names[variable.name] = lin
                    numbers.append(index.variable_of(lin))
                inner = self._value(body, body_names, read, space)
                return _reduced(reducer, tuple(number for number in numbers if number is not None), inner)
            case tdl.OpaqueResult(name, arguments, indices):
                at = tuple(_plain(self._index(place, names, read, space)) for place in indices)
                return Opq(self.tag(name), tuple(self._value(child, names, read, space) for child in arguments), at)
            case tdl.IndexValue(where):
                return Pos(_lin(self._index(where, names, read, space)))
            case tdl.Match(element, where):
                return Hit(self._value(element, names, read, space), _lin(self._index(where, names, read, space)))

    def _applied(self, function: str, arguments: list[Expr]) -> Expr:
        match function:
            case "+" | "Add" | "Sum":
                return _total(tuple(term for child in arguments for term in terms_of(child)))
            case "-" | "Sub" if len(arguments) == 2:
                zero = isinstance(arguments[0], Num) and arguments[0].value == 0
                minus = scaled(-1.0, arguments[1])
                return minus if zero else _total((*terms_of(arguments[0]), *terms_of(minus)))
            case "Neg":
                return scaled(-1.0, arguments[0])
            case "Identity":
                return arguments[0]
            case "*" | "Mul":
                return _product(arguments)
            case "/" | "Div":
                by = arguments[1].value if isinstance(arguments[1], Num) and self.dtype.is_float else 0.0
                if by and isfinite(1.0 / by):
                    return scaled(1.0 / by, arguments[0])
                return App(("Div", self.dtype.is_float), tuple(arguments))
        return App(self.tag(function), tuple(arguments))

    def _index(self, place: tdl.Index, names: dict[str, Lin], read: Read, space: Space) -> Lin | Acc | None:
        match place:
            case tdl.Var(name):
                return names[name]
            case tdl.Number(value):
                return index.number(Fraction(value))
            case tdl.Plus(first, second):
                return index.plus(
                    _lin(self._index(first, names, read, space)), _lin(self._index(second, names, read, space))
                )
            case tdl.Times(inner, factor):
                return index.times(_lin(self._index(inner, names, read, space)), factor)
            case tdl.FloorDiv(inner, divisor):
                return index.divided(_lin(self._index(inner, names, read, space)), divisor, space, is_remainder=False)
            case tdl.Mod(inner, divisor):
                return index.divided(_lin(self._index(inner, names, read, space)), divisor, space, is_remainder=True)
            case tdl.Whole():
                return None
            case tdl.At(access):
                element = self._value(access, names, read, space)
                if isinstance(element, Acc):
                    return element
        raise UnprovenError("an index that is made by an op")


def _lin(place: Lin | Acc | None) -> Lin:
    if not isinstance(place, Lin):
        raise UnprovenError("an index of a whole dim, or of data, in a sum")
    return place


def _plain(place: Lin | Acc | None) -> Lin | None:
    if isinstance(place, Acc):
        raise UnprovenError("a result that the data index")
    return place


def _reduced(reducer: Reducer, variables: tuple[int, ...], body: Expr) -> Expr:
    if not variables:
        return body
    if reducer is Reducer.SUM:
        terms = terms_of(body)
        if len(terms) == 1:
            factor, inner = terms[0]
            if isinstance(inner, Red) and inner.reducer is reducer:
                return scaled(factor, Red(reducer, (*variables, *inner.variables), inner.body))
            return scaled(factor, Red(reducer, variables, inner))
    return Red(reducer, variables, body)
