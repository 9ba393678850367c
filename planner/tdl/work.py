"""Work, the operations of an op: the functions and additions of its description, each as often as it is needed.

A value of a description is computed once for all values of the index variables in it, however many output elements
read it: the scores of an attention once for a query and a head, not once for each element of the head. So what is
counted of a function is the points of the variables in its arguments, and of a reduction those of its term. For
``C[m, n] = Sum_{k} A[m, k] * B[k, n] + D[n]`` that is m·n·k products, m·n·k additions, and m·n more. Besides:

- ``i // 64`` takes as many values as there are blocks: what depends on i in no other way is done once for a block.
- Where the data choose one value of a variable (``Match``), nothing is done for the others under its reduction.
- An index that is a whole number at every second point (``(y + p) / 2``) lets every second product be made.
- An opaque function is a function of each element that it reads and of each that it makes, or what it says (``takes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm, prod
from operator import attrgetter
from typing import TypeAlias

from planner.tdl.expr import (
    Access,
    Apply,
    At,
    FloorDiv,
    Index,
    IndexValue,
    Match,
    Mod,
    OpaqueResult,
    Plus,
    Reduce,
    Times,
    Value,
    Var,
    Whole,
    subvalues,
)
from planner.tdl.extents import Extent, reduced_extent


@dataclass(frozen=True, slots=True)
class Work:
    """Operations that are done for each point of some variables."""

    operations: Fraction | int
    """For each point; a fraction where there is an operation at some of the points only."""
    along: tuple[tuple[str, int], ...] = ()
    """The variables, sorted by name, each with how long the blocks are for which it is done once: 1 as a rule."""
    inside: tuple[Extent, ...] = ()
    """What each point runs through besides, whatever part of the op is computed."""


_Along: TypeAlias = Mapping[Var, int]
"""By variable the length of its blocks."""
_Reach: TypeAlias = Mapping[Var, Extent]
"""By variable that only ``takes`` binds how far it runs."""


def work_of(values: Iterable[Value]) -> tuple[Work, ...]:
    """The work to compute values; what stands in them twice is computed once.

    Args:
        values: of an op's outputs.

    Raises:
        DescriptionError: how far a variable of ``takes`` runs is not known.
    """
    counted = _Counted()
    for value in values:
        counted.add(value, frozenset(), None)
    return tuple(
        Work(operations, along, inside) for (along, inside), operations in counted.operations.items() if operations
    )


class _Counted:
    """The operations of the values that were added so far."""

    def __init__(self) -> None:
        self.operations: dict[tuple[tuple[tuple[str, int], ...], tuple[Extent, ...]], Fraction] = {}
        """By what they are along and inside of."""
        self._values: set[tuple[Value, frozenset[tuple[Var, Extent]]]] = set()

    def add(self, value: Value, chosen: frozenset[Var], reach: _Reach | None) -> None:
        """Adds the work of a value, and of all inside it.

        Args:
            value: a value.
            chosen: variables of which the data choose one value.
            reach: of variables that ``takes`` binds outside of it; None outside of ``takes``.
        """
        along = _variables(value)
        # The same value is more work where its variables reach further.
        key = (value, frozenset((variable, extent) for variable, extent in (reach or {}).items() if variable in along))
        if key in self._values:
            return
        self._values.add(key)
        match value:
            case Apply(_, arguments):
                self._count(_share(value), along, chosen, reach)
                for argument in arguments:
                    self.add(argument, chosen, reach)
            case Reduce(_, variables, term):
                chosen = chosen.union(_chosen(term))
                if reach is not None:
                    reach = {**reach, **{var: reduced_extent(value, number) for number, var in enumerate(variables)}}
                self._count(_share(term), _merged((_variables(term), dict.fromkeys(variables, 1))), chosen, reach)
                self.add(term, chosen, reach)
            case OpaqueResult(_, arguments, _, ()):
                for argument in arguments:
                    for read in subvalues(argument):
                        if isinstance(read, Access):
                            self._count(Fraction(1), _variables(read), chosen, reach, _whole_dims(read))
                self._count(Fraction(1), along, chosen, reach)
            case OpaqueResult(takes=takes):
                for inner in takes:
                    self.add(inner, chosen, {})
            case _:
                pass

    def _count(
        self,
        operations: Fraction,
        along: _Along,
        chosen: frozenset[Var],
        reach: _Reach | None,
        inside: Iterable[Extent] = (),
    ) -> None:
        reach = reach or {}
        outer = sorted((var.name, block) for var, block in along.items() if var not in reach and var not in chosen)
        inner = sorted((*inside, *(reach[var] for var in along if var in reach)), key=attrgetter("side", "position"))
        key = (tuple(outer), tuple(inner))
        self.operations[key] = self.operations.get(key, Fraction(0)) + operations


def _chosen(term: Value) -> frozenset[Var]:
    """The variables of which the data choose one value in a reduction's term."""
    return frozenset(
        value.index for value in subvalues(term) if isinstance(value, Match) and isinstance(value.index, Var)
    )


def _whole_dims(read: Access) -> Iterator[Extent]:
    return (Extent("in", read.slot, dim) for dim, index in enumerate(read.indices) if isinstance(index, Whole))


def _merged(parts: Iterable[_Along]) -> dict[Var, int]:
    """What depends on all of these: of two lengths of blocks, blocks that tell both apart."""
    blocks: dict[Var, int] = {}
    for part in parts:
        for variable, block in part.items():
            blocks[variable] = gcd(blocks.get(variable, block), block)
    return blocks


def _variables(value: Value) -> dict[Var, int]:
    """The variables in a value that it does not bind itself, with the lengths of their blocks."""
    match value:
        case Access(_, indices, _):
            return _merged(map(_of_index, indices))
        case Apply(_, arguments):
            return _merged(map(_variables, arguments))
        case Reduce(_, variables, term):
            return {variable: block for variable, block in _variables(term).items() if variable not in variables}
        case OpaqueResult(_, arguments, indices):
            return _merged((*map(_variables, arguments), *map(_of_index, indices)))
        case IndexValue(index):
            return _of_index(index)
        case Match(element, index):
            return _merged((_variables(element), _of_index(index)))
        case _:
            return {}


def _of_index(index: Index) -> dict[Var, int]:
    match index:
        case Var():
            return {index: 1}
        case Plus(left, right):
            return _merged((_of_index(left), _of_index(right)))
        case FloorDiv(Var() | FloorDiv() as inner, divisor):
            return {variable: block * divisor for variable, block in _of_index(inner).items()}
        case Times(inner, _) | FloorDiv(inner, _) | Mod(inner, _):
            return _of_index(inner)
        case At(access):
            return _variables(access)
        case _:
            return {}


def _share(value: Value) -> Fraction:
    """At which share of the points all factors of a product are there."""
    return prod((_share_of_integers(index) for index in _divided(value)), start=Fraction(1))


def _divided(value: Value) -> frozenset[Index]:
    """The indices of a product's factors, or of a sum's terms, that are no whole numbers at some points."""
    match value:
        case Access(_, indices, _):
            return frozenset(index for index in indices if _share_of_integers(index) != 1)
        case Apply("*", arguments):
            return frozenset().union(*map(_divided, arguments))
        case Reduce(_, _, term):
            return _divided(term)
        case _:
            return frozenset()


def _share_of_integers(index: Index) -> Fraction:
    """At which share of the points an index is a whole number, over all remainders of its variables."""
    factors = list(_factors(index, Fraction(1)))
    below = lcm(*(factor.denominator for factor in factors))
    return Fraction(gcd(below, *(int(factor * below) for factor in factors)), below)


def _factors(index: Index, by: Fraction) -> Iterator[Fraction]:
    """What variables and what is divided in an index are multiplied with."""
    match index:
        case Plus(left, right):
            yield from _factors(left, by)
            yield from _factors(right, by)
        case Times(inner, factor):
            yield from _factors(inner, by * factor)
        case Var() | FloorDiv() | Mod():
            yield by
        case _:
            pass
