"""The tensor description language (Tofu, section 4.1) as data.

The grammar, on one page. An op's outputs are lambdas from index variables to values::

    output  ::= lambda var* : value                          one for each output of the op; a dim may go in steps
    value   ::= access | number | function(value*) | reduce | opaque | match
    reduce  ::= (Sum | Max | Min | Prod)(lambda var* : value)
    access  ::= tensor[index*]
    opaque  ::= Opaque(name)(value*)[index*]
    match   ::= [access == index]                        1 where the data name the index, else 0
    index   ::= var | integer | index + index | index * rational | index // integer | index % integer
              | :  (all of the dim) | at(access)  (an index that the data decides)

An index outside the tensor, or one that is not an integer (``(y + p) / s``), reads the tensor's fill; without
a fill it reads nothing. Index variables of the same name in several outputs are one variable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from planner.algebra.tiling import Reducer


class VarKind(enum.Enum):
    """The binding of an index variable."""

    OUTPUT = "output"
    REDUCTION = "reduction"


@dataclass(frozen=True, slots=True)
class Var:
    """An index variable. Its extent is known only where the description is applied to shapes."""

    name: str
    kind: VarKind = VarKind.OUTPUT


@dataclass(frozen=True, slots=True)
class Number:
    """A constant: integer in an index; any real in a value."""

    value: Fraction | float


@dataclass(frozen=True, slots=True)
class Plus:
    """left + right."""

    left: Index
    right: Index


@dataclass(frozen=True, slots=True)
class Times:
    """inner * factor."""

    inner: Index
    factor: Fraction


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """inner // divisor, rounded towards minus infinity."""

    inner: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Mod:
    """inner % divisor, in [0, divisor)."""

    inner: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Whole:
    """All of the dim: the slice ``:``."""


@dataclass(frozen=True, slots=True)
class At:
    """An index that the data decides, so that any part of the dim may be read."""

    access: Access


Index: TypeAlias = Var | Number | Plus | Times | FloorDiv | Mod | Whole | At


@dataclass(frozen=True, slots=True)
class Access:
    """One element (or slice) of an input."""

    slot: int
    """Position of the input."""
    indices: tuple[Index, ...]
    fill: float | None = None
    """What an index out of range reads; None: nothing."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of values, element by element."""

    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction over index variables."""

    reducer: Reducer
    variables: tuple[Var, ...]
    body: Value
    extents: tuple[int, ...] | None = None
    """How far each variable runs; None: as far as the dim that it indexes alone."""


@dataclass(frozen=True, slots=True)
class OpaqueResult:
    """An element of what an opaque function returns: its index variables cannot be divided."""

    name: str
    arguments: tuple[Value, ...]
    indices: tuple[Index, ...]
    takes: tuple[Value, ...] = ()
    """What computing it takes, in the language (``planner.tdl.work``): counted, and looked at in no other way."""


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index used as a value (as Range and CumSum do): the result depends on where it is."""

    index: Index


@dataclass(frozen=True, slots=True)
class Match:
    """1 where an element of an input is the index, else 0 (Iverson's bracket): a lookup that can be cut.

    ``Sum_{v} X[v, d] * [I[i] == v]`` is ``X[I[i], d]`` as a sum over all rows: a worker that holds some of the rows
    finds those that it has, and zeros for the rest. The result does not depend on the position otherwise, so that
    its variable can be cut; the local rule counts the positions from the part's first.
    """

    element: Access
    index: Index


Value: TypeAlias = Access | Number | Apply | Reduce | OpaqueResult | IndexValue | Match


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a description: ``lambda variables: value``."""

    variables: tuple[Var, ...]
    value: Value
    steps: tuple[int, ...] = ()
    """How many elements of each dim go with one value of its variable; () for one of each. With a step of 64 the dim
    holds groups of 64 elements side by side, the variable is a group's number, and the value is of all its elements."""


def index_variables(index: Index) -> Iterator[Var]:
    """The variables in an index, left to right, with repeats; those inside ``at(...)`` are not counted."""
    match index:
        case Var():
            yield index
        case Plus(left, right):
            yield from index_variables(left)
            yield from index_variables(right)
        case Times(inner, _) | FloorDiv(inner, _) | Mod(inner, _):
            yield from index_variables(inner)
        case _:
            return


def subvalues(value: Value) -> Iterator[Value]:
    """This value and every value inside it, outermost first; accesses inside ``at(...)`` too."""
    yield value
    match value:
        case Access(_, indices, _):
            yield from _looked_up(indices)
        case Apply(_, arguments):
            for argument in arguments:
                yield from subvalues(argument)
        case Reduce(body=body):
            yield from subvalues(body)
        case OpaqueResult(_, arguments, indices):
            for argument in arguments:
                yield from subvalues(argument)
            yield from _looked_up(indices)
        case IndexValue(index):
            yield from _looked_up((index,))
        case Match(element, index):
            yield from subvalues(element)
            yield from _looked_up((index,))
        case Number():
            return


def _looked_up(indices: tuple[Index, ...]) -> Iterator[Value]:
    for index in indices:
        match index:
            case At(access):
                yield from subvalues(access)
            case Plus(left, right):
                yield from _looked_up((left, right))
            case Times(inner, _) | FloorDiv(inner, _) | Mod(inner, _):
                yield from _looked_up((inner,))
            case _:
                pass
