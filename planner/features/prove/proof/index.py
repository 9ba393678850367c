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
    """``inner // divisor``, or with ``rest`` ``inner % divisor``."""

    inner: Lin
    divisor: int
    rest: bool


Atom: TypeAlias = "int | Quotient"


@dataclass(frozen=True)
class Lin:
    """A sum of atoms times rational factors, and a constant."""

    terms: tuple[tuple[Atom, Fraction], ...]
    constant: Fraction

    @cached_property
    def factors(self) -> dict[Atom, Fraction]:
        return dict(self.terms)

    @cached_property
    def variables(self) -> frozenset[int]:
        found: set[int] = set()
        for atom, _ in self.terms:
            found |= atom.inner.variables if isinstance(atom, Quotient) else {atom}
        return frozenset(found)


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


def _made(factors: Mapping[Atom, Fraction], constant: Fraction) -> Lin:
    kept = {atom: factor for atom, factor in factors.items() if factor}
    for atom in list(kept):  # d * (e // d) + e % d is e
        if isinstance(atom, Quotient) and atom.rest and atom in kept:
            whole = _above(atom)
            if kept.get(whole) == kept[atom] * atom.divisor:
                factor = kept.pop(atom)
                del kept[whole]
                return plus(_made(kept, constant), times(atom.inner, factor))
    return Lin(tuple(sorted(kept.items(), key=lambda term: repr(term[0]))), constant)


def _above(rest: Quotient) -> Quotient:
    """The quotient that goes with a remainder, as the normal form has it."""
    terms = rest.inner.terms
    if len(terms) == 1 and terms[0][1] == 1 and not rest.inner.constant:
        under = terms[0][0]
        if isinstance(under, Quotient) and not under.rest:
            return Quotient(under.inner, under.divisor * rest.divisor, rest=False)
    return Quotient(rest.inner, rest.divisor, rest=False)


def plus(one: Lin, two: Lin) -> Lin:
    if not two.terms:
        return Lin(one.terms, one.constant + two.constant) if two.constant else one
    factors = dict(one.terms)
    for atom, factor in two.terms:
        factors[atom] = factors.get(atom, Fraction(0)) + factor
    return _made(factors, one.constant + two.constant)


def times(one: Lin, factor: Fraction) -> Lin:
    if factor == 1:
        return one
    return Lin(tuple((atom, f * factor) for atom, f in one.terms) if factor else (), one.constant * factor)


def divided(one: Lin, divisor: int, space: Space, *, rest: bool) -> Lin:
    """``one // divisor``, or with ``rest`` ``one % divisor``; what runs in one row only is taken apart."""
    if divisor == 1:
        return number(0) if rest else one
    rows: dict[Atom, Fraction] = {}
    beside: dict[Atom, Fraction] = {}
    for atom, factor in one.terms:
        (rows if factor.denominator == 1 and factor.numerator % divisor == 0 else beside)[atom] = factor
    whole = floor(one.constant / divisor)
    inner = _made(beside, one.constant - whole * divisor)
    outer = _made({atom: factor / divisor for atom, factor in rows.items()}, Fraction(whole))
    low, high = reach(inner, space)
    if low >= 0 and high < divisor:
        return inner if rest else outer
    if floor(low / divisor) == floor(high / divisor):
        row = floor(low / divisor)
        return plus(inner, number(-row * divisor)) if rest else plus(outer, number(row))
    if not rest and len(inner.terms) == 1 and not inner.constant and inner.terms[0][1] == 1:
        atom = inner.terms[0][0]
        if isinstance(atom, Quotient) and not atom.rest:
            return plus(
                outer, Lin(((Quotient(atom.inner, atom.divisor * divisor, rest=False), Fraction(1)),), Fraction(0))
            )
    mine = Lin(((Quotient(inner, divisor, rest), Fraction(1)),), Fraction(0))
    return mine if rest else plus(outer, mine)


def reach(one: Lin, space: Space) -> tuple[Fraction, Fraction]:
    """Bounds of an expression, both included; exact for an affine one."""
    low = high = one.constant
    for atom, factor in one.terms:
        if isinstance(atom, Quotient):
            ends = (Fraction(0), Fraction(atom.divisor - 1))
            if not atom.rest:
                inner = reach(atom.inner, space)
                ends = (Fraction(floor(inner[0] / atom.divisor)), Fraction(floor(inner[1] / atom.divisor)))
        else:
            ends = (Fraction(0), Fraction(space.extents[atom] - 1))
        low += min(factor * ends[0], factor * ends[1])
        high += max(factor * ends[0], factor * ends[1])
    return low, high


def replaced(one: Lin, by: Mapping[int, Lin], space: Space) -> Lin:
    """An expression with others in place of variables."""
    if not one.variables & by.keys():
        return one
    found = number(one.constant)
    for atom, factor in one.terms:
        if isinstance(atom, Quotient):
            inner = divided(replaced(atom.inner, by, space), atom.divisor, space, rest=atom.rest)
        else:
            inner = by.get(atom) or Lin(((atom, Fraction(1)),), Fraction(0))
        found = plus(found, times(inner, factor))
    return found


def equal(one: Lin, two: Lin, space: Space) -> bool:
    """Whether two expressions are equal wherever their variables run: False also where that is not found out."""
    if one == two:
        return True
    used = sorted(one.variables | two.variables)
    single = {variable: number(0) for variable in used if space.extents[variable] == 1}
    if single:
        one, two = replaced(one, single, space), replaced(two, single, space)
        used = [variable for variable in used if variable not in single]
        if one == two:
            return True
    atoms = [atom for atom, _ in (*one.terms, *two.terms) if isinstance(atom, Quotient)]
    if not atoms or any(map(_is_broken, atoms)) or prod(space.extents[variable] for variable in used) > MOST_PLACES:
        return False
    grid = np.indices([space.extents[variable] for variable in used], dtype=np.int64)
    places = dict(zip(used, grid, strict=True))
    scale = _denominator(one) * _denominator(two)
    return bool(np.all(_at(one, places, scale) == _at(two, places, scale)))


def _is_broken(one: Quotient) -> bool:
    """Whether fractions stand inside of a quotient."""
    return _denominator(one.inner) != 1 or any(
        isinstance(atom, Quotient) and _is_broken(atom) for atom, _ in one.inner.terms
    )


def values_at(one: Lin, places: Mapping[int, np.ndarray]) -> np.ndarray:
    """What a whole expression is at places.

    Args:
        one: of whole numbers everywhere.
        places: by variable.
    """
    scale = _denominator(one)
    return _at(one, places, scale) // scale


def _denominator(one: Lin) -> int:
    found = one.constant.denominator
    for _, factor in one.terms:
        found *= factor.denominator
    return found


def _at(one: Lin, places: Mapping[int, np.ndarray], scale: int) -> np.ndarray:
    """Times ``scale``, at every place."""
    found = np.asarray(int(one.constant * scale))
    for atom, factor in one.terms:
        if isinstance(atom, Quotient):
            inner = _at(atom.inner, places, 1)
            value = inner % atom.divisor if atom.rest else inner // atom.divisor
        else:
            value = places[atom]
        found = found + value * int(factor * scale)
    return found


def solve(
    equations: Sequence[tuple[Lin, Fraction]], rooms: Mapping[int, int], known: Mapping[int, int], space: Space
) -> dict[int, int]:
    """Offsets that may satisfy equations ``lin(offsets) == value``: a proposal, which is still to be checked.

    Args:
        equations: in the unknowns.
        rooms: by unknown, the largest value that it may have; it is at least 0.
        known: unknowns that are known.
        space: of the unknowns.
    """
    found = dict(known)
    found.update({unknown: 0 for unknown, room in rooms.items() if room == 0 and unknown not in found})
    open_ones = list(equations)
    moving = True
    while moving:
        moving = False
        by = {unknown: number(value) for unknown, value in found.items()}
        rests: list[tuple[Lin, Fraction]] = []
        for lin, value in open_ones:
            lin = replaced(lin, by, space)
            rests.append((Lin(lin.terms, Fraction(0)), value - lin.constant))
        rests = [(lin, value) for lin, value in rests if lin.terms]
        joined = [one for one in _joined(rests) if one not in rests]
        moving = bool(joined)
        rests += joined
        for lin, value in rests:
            new = _single(lin, value, rooms)
            if new:
                found.update(new)
                moving = True
                break
        open_ones = rests
    return found


def _joined(rests: Sequence[tuple[Lin, Fraction]]) -> list[tuple[Lin, Fraction]]:
    """What follows from a quotient and its remainder: the number itself."""
    known = {lin.terms[0][0]: value / lin.terms[0][1] for lin, value in rests if len(lin.terms) == 1}
    found = []
    for atom, value in known.items():
        if isinstance(atom, Quotient) and atom.rest:
            above = known.get(_above(atom))
            if above is not None:
                inner = atom.inner
                new = (Lin(inner.terms, Fraction(0)), above * atom.divisor + value - inner.constant)
                if len(new[0].terms) > 1 or new[0].terms[0][0] not in known:
                    found.append(new)
    return found


def _single(lin: Lin, value: Fraction, rooms: Mapping[int, int]) -> dict[int, int]:
    """The unknowns of one equation, if they can be told: one alone, or the digits of a number."""
    if any(isinstance(atom, Quotient) for atom, _ in lin.terms):
        return {}
    digits = sorted(((abs(factor), factor, atom) for atom, factor in lin.terms if isinstance(atom, int)), reverse=True)
    left = [sum(size * rooms.get(atom, 0) for size, _, atom in digits[place + 1 :]) for place in range(len(digits))]
    if len(digits) > 1 and any(
        factor < 0 or size <= rest for (size, factor, _), rest in zip(digits, left, strict=True)
    ):
        return {}
    found = {}
    for _, factor, atom in digits:
        digit = Fraction(floor(value / factor)) if len(digits) > 1 else value / factor
        if digit.denominator != 1 or not 0 <= digit <= rooms.get(atom, 0):
            return {}
        found[atom] = int(digit)
        value -= factor * digit
    return {} if value else found
