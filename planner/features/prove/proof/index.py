"""Index expressions in a normal form: exact, affine in their variables, with quotients and remainders as atoms.

A variable is a number; ``Space`` says how far each runs, from 0. Two expressions are equal on a box if their normal
forms are, or, where quotients stand in the way, if they are at every place of a box that is small enough to be gone
through. Nothing else is called equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import floor, prod
from typing import Final, TypeAlias

import numpy as np

MOST_PLACES: Final = 1 << 18
"""Of a box, at most so many places are gone through one by one."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """``inner // divisor``, or with ``is_remainder`` ``inner % divisor``."""

    inner: Lin
    divisor: int
    is_remainder: bool


Atom: TypeAlias = "int | Quotient"


@dataclass(frozen=True)
class Lin:
    """A sum of atoms times rational factors, and a constant."""

    terms: tuple[tuple[Atom, Fraction], ...]
    constant: Fraction

    @cached_property
    def variables(self) -> frozenset[int]:
        variables: set[int] = set()
        for atom, _ in self.terms:
            variables |= atom.inner.variables if isinstance(atom, Quotient) else {atom}
        return frozenset(variables)


@dataclass
class Space:
    """The variables that there are, and how far each runs."""

    extents: dict[int, int] = field(default_factory=dict)
    _numbers: Iterable[int] = field(default_factory=itertools.count)

    def variable(self, extent: int) -> Lin:
        number = next(iter(self._numbers))
        self.extents[number] = extent
        return Lin(((number, Fraction(1)),), Fraction(0))


def number(value: int | Fraction) -> Lin:
    return Lin((), Fraction(value))


def variable_of(lin: Lin) -> int | None:
    """The variable that an expression is; None if it is anything else."""
    if len(lin.terms) == 1 and not lin.constant and lin.terms[0][1] == 1 and isinstance(lin.terms[0][0], int):
        return lin.terms[0][0]
    return None


def _normal_form(factors: Mapping[Atom, Fraction], constant: Fraction) -> Lin:
    remaining = {atom: factor for atom, factor in factors.items() if factor}
    for atom in list(remaining):  # d * (e // d) + e % d is e
        if isinstance(atom, Quotient) and atom.is_remainder and atom in remaining:
            quotient = _above(atom)
            if remaining.get(quotient) == remaining[atom] * atom.divisor:
                factor = remaining.pop(atom)
                del remaining[quotient]
                return plus(_normal_form(remaining, constant), times(atom.inner, factor))
    return Lin(tuple(sorted(remaining.items(), key=lambda term: repr(term[0]))), constant)


def _above(remainder: Quotient) -> Quotient:
    """The quotient that goes with a remainder, as the normal form has it."""
    terms = remainder.inner.terms
    if len(terms) == 1 and terms[0][1] == 1 and not remainder.inner.constant:
        under = terms[0][0]
        if isinstance(under, Quotient) and not under.is_remainder:
            return Quotient(under.inner, under.divisor * remainder.divisor, is_remainder=False)
    return Quotient(remainder.inner, remainder.divisor, is_remainder=False)


def plus(first: Lin, second: Lin) -> Lin:
    if not second.terms:
        return Lin(first.terms, first.constant + second.constant) if second.constant else first
    factors = dict(first.terms)
    for atom, factor in second.terms:
        factors[atom] = factors.get(atom, Fraction(0)) + factor
    return _normal_form(factors, first.constant + second.constant)


def times(lin: Lin, factor: Fraction) -> Lin:
    if factor == 1:
        return lin
    return Lin(tuple((atom, f * factor) for atom, f in lin.terms) if factor else (), lin.constant * factor)


def divided(lin: Lin, divisor: int, space: Space, *, is_remainder: bool) -> Lin:
    """``lin // divisor``, or with ``is_remainder`` ``lin % divisor``; what runs in one row only is taken apart."""
    if divisor == 1:
        return number(0) if is_remainder else lin
    rows: dict[Atom, Fraction] = {}
    beside: dict[Atom, Fraction] = {}
    for atom, factor in lin.terms:
        (rows if factor.denominator == 1 and factor.numerator % divisor == 0 else beside)[atom] = factor
    quotient = floor(lin.constant / divisor)
    inner = _normal_form(beside, lin.constant - quotient * divisor)
    outer = _normal_form({atom: factor / divisor for atom, factor in rows.items()}, Fraction(quotient))
    low, high = reach(inner, space)
    if low >= 0 and high < divisor:
        return inner if is_remainder else outer
    if floor(low / divisor) == floor(high / divisor):
        row = floor(low / divisor)
        return plus(inner, number(-row * divisor)) if is_remainder else plus(outer, number(row))
    if not is_remainder and len(inner.terms) == 1 and not inner.constant and inner.terms[0][1] == 1:
        atom = inner.terms[0][0]
        if isinstance(atom, Quotient) and not atom.is_remainder:
            return plus(
                outer,
                Lin(((Quotient(atom.inner, atom.divisor * divisor, is_remainder=False), Fraction(1)),), Fraction(0)),
            )
    mine = Lin(((Quotient(inner, divisor, is_remainder), Fraction(1)),), Fraction(0))
    return mine if is_remainder else plus(outer, mine)


def reach(lin: Lin, space: Space) -> tuple[Fraction, Fraction]:
    """Bounds of an expression, both included; exact for an affine one."""
    low = high = lin.constant
    for atom, factor in lin.terms:
        if isinstance(atom, Quotient):
            ends = (Fraction(0), Fraction(atom.divisor - 1))
            if not atom.is_remainder:
                inner = reach(atom.inner, space)
                ends = (Fraction(floor(inner[0] / atom.divisor)), Fraction(floor(inner[1] / atom.divisor)))
        else:
            ends = (Fraction(0), Fraction(space.extents[atom] - 1))
        low += min(factor * ends[0], factor * ends[1])
        high += max(factor * ends[0], factor * ends[1])
    return low, high


def replaced(lin: Lin, by: Mapping[int, Lin], space: Space) -> Lin:
    """An expression with others in place of variables."""
    if not lin.variables & by.keys():
        return lin
    total = number(lin.constant)
    for atom, factor in lin.terms:
        if isinstance(atom, Quotient):
            inner = divided(replaced(atom.inner, by, space), atom.divisor, space, is_remainder=atom.is_remainder)
        else:
            inner = by.get(atom) or Lin(((atom, Fraction(1)),), Fraction(0))
        total = plus(total, times(inner, factor))
    return total


def equal(first: Lin, second: Lin, space: Space) -> bool:
    """Whether two expressions are equal wherever their variables run: False also where that is not found out."""
    if first == second:
        return True
    used = sorted(first.variables | second.variables)
    single = {variable: number(0) for variable in used if space.extents[variable] == 1}
    if single:
        first, second = replaced(first, single, space), replaced(second, single, space)
        used = [variable for variable in used if variable not in single]
        if first == second:
            return True
    atoms = [atom for atom, _ in (*first.terms, *second.terms) if isinstance(atom, Quotient)]
    if not atoms or any(map(_is_broken, atoms)) or prod(space.extents[variable] for variable in used) > MOST_PLACES:
        return False
    grid = np.indices([space.extents[variable] for variable in used], dtype=np.int64)
    places = dict(zip(used, grid, strict=True))
    scale = _denominator(first) * _denominator(second)
    return bool(np.all(_at(first, places, scale) == _at(second, places, scale)))


def _is_broken(quotient: Quotient) -> bool:
    """Whether fractions stand inside of a quotient."""
    return _denominator(quotient.inner) != 1 or any(
        isinstance(atom, Quotient) and _is_broken(atom) for atom, _ in quotient.inner.terms
    )


def values_at(lin: Lin, places: Mapping[int, np.ndarray]) -> np.ndarray:
    """The values of a whole expression at places.

    Args:
        lin: of whole numbers everywhere.
        places: by variable.
    """
    scale = _denominator(lin)
    return _at(lin, places, scale) // scale


def _denominator(lin: Lin) -> int:
    denominator = lin.constant.denominator
    for _, factor in lin.terms:
        denominator *= factor.denominator
    return denominator


def _at(lin: Lin, places: Mapping[int, np.ndarray], scale: int) -> np.ndarray:
    """The values of an expression at every place, times ``scale``."""
    values = np.asarray(int(lin.constant * scale))
    for atom, factor in lin.terms:
        if isinstance(atom, Quotient):
            inner = _at(atom.inner, places, 1)
            value = inner % atom.divisor if atom.is_remainder else inner // atom.divisor
        else:
            value = places[atom]
        values = values + value * int(factor * scale)
    return values


def solve(
    equations: Sequence[tuple[Lin, Fraction]], rooms: Mapping[int, int], fixed: Mapping[int, int], space: Space
) -> dict[int, int]:
    """Offsets that may satisfy equations ``lin(offsets) == value``: a proposal, which is still to be checked.

    Args:
        equations: in the unknowns.
        rooms: by unknown, the largest value that it may have; it is at least 0.
        fixed: unknowns that are known.
        space: of the unknowns.
    """
    offsets = dict(fixed)
    offsets.update({unknown: 0 for unknown, room in rooms.items() if room == 0 and unknown not in offsets})
    unsolved = list(equations)
    moving = True
    while moving:
        moving = False
        by = {unknown: number(value) for unknown, value in offsets.items()}
        rests: list[tuple[Lin, Fraction]] = []
        for lin, value in unsolved:
            lin = replaced(lin, by, space)
            rests.append((Lin(lin.terms, Fraction(0)), value - lin.constant))
        rests = [(lin, value) for lin, value in rests if lin.terms]
        joined = [equation for equation in _joined(rests) if equation not in rests]
        moving = bool(joined)
        rests += joined
        for lin, value in rests:
            digits = _single(lin, value, rooms)
            if digits:
                offsets.update(digits)
                moving = True
                break
        unsolved = rests
    return offsets


def _joined(rests: Sequence[tuple[Lin, Fraction]]) -> list[tuple[Lin, Fraction]]:
    """What follows from a quotient and its remainder: the number itself."""
    value_of = {lin.terms[0][0]: value / lin.terms[0][1] for lin, value in rests if len(lin.terms) == 1}
    equations = []
    for atom, value in value_of.items():
        if isinstance(atom, Quotient) and atom.is_remainder:
            above = value_of.get(_above(atom))
            if above is not None:
                inner = atom.inner
                equation = (Lin(inner.terms, Fraction(0)), above * atom.divisor + value - inner.constant)
                if len(equation[0].terms) > 1 or equation[0].terms[0][0] not in value_of:
                    equations.append(equation)
    return equations


def _single(lin: Lin, value: Fraction, rooms: Mapping[int, int]) -> dict[int, int]:
    """The unknowns of one equation, if they can be told: one alone, or the digits of a number."""
    if any(isinstance(atom, Quotient) for atom, _ in lin.terms):
        return {}
    digits = sorted(((abs(factor), factor, atom) for atom, factor in lin.terms if isinstance(atom, int)), reverse=True)
    tails = [sum(size * rooms.get(atom, 0) for size, _, atom in digits[place + 1 :]) for place in range(len(digits))]
    if len(digits) > 1 and any(
        factor < 0 or size <= remainder for (size, factor, _), remainder in zip(digits, tails, strict=True)
    ):
        return {}
    digit_of = {}
    for _, factor, atom in digits:
        digit = Fraction(floor(value / factor)) if len(digits) > 1 else value / factor
        if digit.denominator != 1 or not 0 <= digit <= rooms.get(atom, 0):
            return {}
        digit_of[atom] = int(digit)
        value -= factor * digit
    return {} if value else digit_of
