"""Symbolic intervals: where an index can fall while its variables range over a box.

Tofu, section 4.2: an interval is affine in the symbolic extents (equation 1), with the arithmetic of figure 4.
Here the symbols are the two ends of every variable's range, so that one analysis serves every box, not only
halves: equation 1 is the case where a range is ``[0, X)``. Arithmetic is exact. Floor-division and remainder,
which ONNX needs beyond the paper, become derived symbols.

An interval is closed, ``[first, last]``, over the rationals; the integers in it are
``ceil(first) .. floor(last)``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import DescriptionError

Ints: TypeAlias = NDArray[np.int64]


class End(enum.Enum):
    """One end of a variable's range: its first value, or its last."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The first or last value of an index variable."""

    variable: str
    end: End


@dataclass(frozen=True, slots=True)
class Floor:
    """floor(of / divisor)."""

    of: Affine
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """The first or last value of ``x % divisor`` while x ranges over [first, last]."""

    first: Affine
    last: Affine
    divisor: int
    end: End


Term: TypeAlias = Symbol | Floor | Remainder


@dataclass(frozen=True, slots=True)
class Affine:
    """A rational combination of symbols, plus a constant: one bound of equation 1."""

    terms: tuple[tuple[Term, Fraction], ...]
    """Sorted, without zero coefficients, so that equal forms are equal objects."""
    constant: Fraction
    _integers: tuple[tuple[tuple[Term, int], ...], int, int] = field(init=False, repr=False, compare=False)
    """The same over a common denominator: numerators, the constant's numerator, the denominator."""

    def __post_init__(self) -> None:
        denominator = lcm(self.constant.denominator, *(value.denominator for _, value in self.terms))
        numerators = tuple((term, int(value * denominator)) for term, value in self.terms)
        object.__setattr__(self, "_integers", (numerators, int(self.constant * denominator), denominator))

    @classmethod
    def of(cls, terms: Mapping[Term, Fraction], constant: Fraction) -> Affine:
        sorted_terms = sorted(((term, value) for term, value in terms.items() if value), key=lambda item: repr(item[0]))
        return cls(tuple(sorted_terms), constant)

    def __add__(self, addend: Affine) -> Affine:
        terms = dict(self.terms)
        for term, value in addend.terms:
            terms[term] = terms.get(term, Fraction(0)) + value
        return Affine.of(terms, self.constant + addend.constant)

    def scale(self, factor: Fraction) -> Affine:
        return Affine.of({term: value * factor for term, value in self.terms}, self.constant * factor)

    def along(self) -> Iterator[str]:
        """The index variables in it, some of them perhaps more than once."""
        for term, _ in self.terms:
            match term:
                case Symbol(variable):
                    yield variable
                case Floor(of):
                    yield from of.along()
                case Remainder(first, last):
                    yield from first.along()
                    yield from last.along()

    def at_origin(self, variables: AbstractSet[str]) -> Affine:
        """The form where these variables are 0, as those are that have no other value."""
        constant, terms = self.constant, dict[Term, Fraction]()
        for term, value in self.terms:
            origin_term: Term | None = term
            match term:
                case Symbol(variable) if variable in variables:
                    origin_term = None
                case Floor(of, divisor):
                    inner = of.at_origin(variables)
                    origin_term = Floor(inner, divisor) if inner.terms else None
                    constant += value * (inner.constant // divisor) if origin_term is None else 0
                case Remainder(first, last, divisor, end):
                    origin_term = Remainder(first.at_origin(variables), last.at_origin(variables), divisor, end)
            if origin_term is not None:
                terms[origin_term] = terms.get(origin_term, Fraction(0)) + value
        return Affine.of(terms, constant)

    @property
    def alone(self) -> Symbol | None:
        """The symbol that it is; None if it is anything else."""
        if len(self.terms) != 1 or self.constant != 0:
            return None
        term, factor = self.terms[0]
        return term if isinstance(term, Symbol) and factor == 1 else None

    def evaluate(self, ends: Mapping[Symbol, Ints]) -> tuple[Ints, int]:
        """The value for each box as (numerator, denominator), exact.

        Args:
            ends: every symbol's values, one for each box; all of one shape.
        """
        factors, constant, denominator = self._integers
        total: Ints = np.asarray(constant, dtype=np.int64)
        for term, factor in factors:
            value = _evaluate_term(term, ends)
            total = total + (value if factor == 1 else factor * value)
        return total, denominator


def _evaluate_term(term: Term, ends: Mapping[Symbol, Ints]) -> Ints:
    match term:
        case Symbol():
            return ends[term]
        case Floor(of, divisor):
            numerator, denominator = of.evaluate(ends)
            return numerator // (denominator * divisor)
        case Remainder(first, last, divisor, end):
            low, high = ceil_of(first.evaluate(ends)), floor_of(last.evaluate(ends))
            one_period = low // divisor == high // divisor
            if end is End.FIRST:
                return np.where(one_period, low % divisor, 0)
            return np.where(one_period, high % divisor, divisor - 1)


def ceil_of(value: tuple[Ints, int]) -> Ints:
    """The least integer not below numerator / denominator."""
    numerator, denominator = value
    result: Ints = numerator if denominator == 1 else -(-numerator // denominator)
    return result


def floor_of(value: tuple[Ints, int]) -> Ints:
    """The greatest integer not above numerator / denominator."""
    numerator, denominator = value
    result: Ints = numerator if denominator == 1 else numerator // denominator
    return result


@dataclass(frozen=True, slots=True)
class Interval:
    """[first, last], both affine in the symbols (equation 1)."""

    first: Affine
    last: Affine

    @classmethod
    def constant(cls, value: Fraction) -> Interval:
        """The interval of one point."""
        form = Affine((), value)
        return cls(form, form)

    @classmethod
    def variable(cls, name: str) -> Interval:
        """The range of an index variable."""
        unit = Fraction(1)
        return cls(
            Affine(((Symbol(name, End.FIRST), unit),), Fraction(0)),
            Affine(((Symbol(name, End.LAST), unit),), Fraction(0)),
        )

    @property
    def along(self) -> frozenset[str]:
        """The index variables that it depends on."""
        return frozenset((*self.first.along(), *self.last.along()))

    @property
    def alone(self) -> str | None:
        """The index variable whose range it is; None if it is anything else."""
        first, last = self.first.alone, self.last.alone
        if first is None or last is None or first.variable != last.variable:
            return None
        return first.variable if (first.end, last.end) == (End.FIRST, End.LAST) else None

    def at_origin(self, variables: AbstractSet[str]) -> Interval:
        """The interval where these variables are 0."""
        return Interval(self.first.at_origin(variables), self.last.at_origin(variables))

    def __add__(self, addend: Interval) -> Interval:
        return Interval(self.first + addend.first, self.last + addend.last)

    def scale(self, factor: Fraction) -> Interval:
        """Figure 4's product with a constant; a negative one swaps the ends."""
        ends = self.first.scale(factor), self.last.scale(factor)
        return Interval(*ends) if factor >= 0 else Interval(ends[1], ends[0])

    def floor_div(self, divisor: int) -> Interval:
        """The interval of ``x // divisor``.

        Raises:
            DescriptionError: the divisor is not positive.
        """
        _positive(divisor)
        unit, none = Fraction(1), Fraction(0)
        return Interval(
            Affine(((Floor(self.first, divisor), unit),), none), Affine(((Floor(self.last, divisor), unit),), none)
        )

    def mod(self, divisor: int) -> Interval:
        """The interval of ``x % divisor``: exact within one period, all of [0, divisor) beyond.

        Raises:
            DescriptionError: the divisor is not positive.
        """
        _positive(divisor)
        unit, none = Fraction(1), Fraction(0)
        first = Remainder(self.first, self.last, divisor, End.FIRST)
        last = Remainder(self.first, self.last, divisor, End.LAST)
        return Interval(Affine(((first, unit),), none), Affine(((last, unit),), none))

    def integers(self, ends: Mapping[Symbol, Ints]) -> tuple[Ints, Ints]:
        """Half-open integer bounds for each box: (lo, hi) with lo = ceil(first), hi = floor(last) + 1."""
        return ceil_of(self.first.evaluate(ends)), floor_of(self.last.evaluate(ends)) + 1


def _positive(divisor: int) -> None:
    if divisor <= 0:
        raise DescriptionError(f"an index is divided by {divisor}", hint="divisors of indices are positive integers")
