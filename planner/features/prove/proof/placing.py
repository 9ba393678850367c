"""The place of an output in a tensor of the model, and of a call whose inputs lie elsewhere.

What a match rests on is kept. If what an index reads lies ``d`` further and the model's variables move by numbers that
add up to ``d``, the equation holds again: exactly so of an affine index; a quotient moves by a whole number, and a
remainder stays, where what is divided moves by a multiple of the divisor. All else that was found of the call does not
know places; where it does (padding, constants, values that are places), nothing may move.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from planner.algebra.tiling import Reducer
from planner.features.prove.proof.claims import Box, Partial, Place, sorted_parts
from planner.features.prove.proof.index import Lin, Quotient

Spot: TypeAlias = tuple[Place, Partial | None]
"""Where an array begins, and what of it there is."""
Read: TypeAlias = tuple[int, int]
"""The number of a claim in its call, and a dim of it."""
Factors: TypeAlias = tuple[tuple[int, Fraction | int], ...]
"""By how much an index moves, of each variable of the model."""


class MismatchError(Exception):
    """The two are not seen to be equal; says where they part.

    Args:
        difference: in words.
        is_alike: they are one tree, and differ in places only.
    """

    def __init__(self, difference: str, *, is_alike: bool = True) -> None:
        super().__init__(difference)
        self.is_alike = is_alike


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the model's sum; one that the local sum does not have is over no box."""

    number: int
    reducer: Reducer | None
    variables: tuple[int, ...]
    """Of the model's, with their extents here and there."""
    sizes: tuple[int, ...]
    extents: tuple[int, ...]
    partial: Partial | None = None
    origin: int = -1
    """The claim that has the partial result."""
    is_there: bool = True


def partial_of(terms: Sequence[Term], offsets: Mapping[int, int]) -> Partial | None:
    """The part of the model's sum that the local one is; None: all of it.

    Raises:
        MismatchError: parts of reductions that are not alike.
    """
    parts: dict[Hashable, list[Box]] = {}
    extents: dict[Hashable, tuple[int, ...]] = {}
    reducers: set[Reducer] = set()
    for term in terms:
        # A term that the local sum lacks has an extent and no box, so that the result is no whole sum.
        if not term.is_there:
            reducers.add(Reducer.SUM)
            extents[term.number] = term.extents
            continue
        lo = tuple([offsets[variable] for variable in term.variables])
        hi = tuple([first + size for first, size in zip(lo, term.sizes, strict=True)])
        if term.sizes != term.extents:
            reducers.add(term.reducer or Reducer.SUM)
        if term.partial is None:
            parts[term.number] = [(lo, hi)]
            extents[term.number] = term.extents
            continue
        reducers.add(term.partial.reducer)
        held = dict(term.partial.parts)
        for key, inner in term.partial.extents:
            parts[term.number, key] = [((*lo, *low), (*hi, *high)) for low, high in held.get(key, ())]
            extents[term.number, key] = (*term.extents, *inner)
    if not reducers:
        return None
    if len(reducers) > 1 or (len(terms) > 1 and reducers != {Reducer.SUM}):
        raise MismatchError("parts of several kinds of reductions")
    partial = Partial(reducers.pop(), sorted_parts(parts), tuple(sorted(extents.items(), key=repr)))
    return None if partial.is_whole else partial


class Moves:
    """The distances of a call's claims from their places when it was followed.

    Args:
        before: where each claim began, by number.
        spots: where it begins now, with what of it there is; of those that are known so far.
    """

    def __init__(self, before: Sequence[Place], spots: Sequence[Spot]) -> None:
        self._before = before
        self.spots = list(spots)

    def of(self, read: Read | None) -> int:
        if read is None:
            return 0
        before, after = self._before[read[0]][read[1]], self.spots[read[0]][0][read[1]]
        return 0 if before is None or after is None else after - before


@dataclass(frozen=True, slots=True)
class Moved:
    """An output that is what it reads, moved as it is, or a sum of contributions to it."""

    lo: Place
    origins: tuple[int, ...]

    def again(self, moves: Moves) -> Spot | None:
        """The place of the same output once claims lie elsewhere; None where it is not seen."""
        shifts = [[moves.of((origin, dim)) for dim in range(len(self.lo))] for origin in self.origins]
        if any(shift != shifts[0] for shift in shifts):
            return None
        partial, *partials = [moves.spots[origin][1] for origin in self.origins]
        if partials:
            parts = [contribution for contribution in partials if contribution is not None]
            together = partial.with_others(parts) if partial is not None and len(parts) == len(partials) else None
            if not isinstance(together, Partial):
                return None
            partial = None if together.is_whole else together
        return _further(self.lo, shifts[0]), partial


@dataclass(frozen=True, slots=True)
class Placed:
    """An output that is a part of what an op of the model makes, and what that rests on."""

    lo: Place
    partial: Partial | None
    terms: tuple[Term, ...]
    outputs: tuple[int, ...]
    """The model's variables, by dim."""
    offsets: Mapping[int, int]
    rooms: Mapping[int, int]
    solved: tuple[tuple[int, Fraction | int, Read | None, Factors], ...]
    """Which variable follows from which equation, in this order, and its factor; with the others of the equation."""
    checked: tuple[tuple[Read | None, Factors], ...]
    multiples: tuple[tuple[Factors, int], ...]
    """What moves by a multiple of a divisor only."""
    fixed: tuple[Read, ...]
    """What may not move."""

    def again(self, moves: Moves) -> Spot | None:
        """The place of the same output once claims lie elsewhere; None where it is not seen."""
        if any(map(moves.of, self.fixed)):
            return None
        by: dict[int, int] = {}
        for variable, factor, read, factors in self.solved:
            move, remainder = divmod(moves.of(read) - _sum(factors, by), factor)
            if remainder or not 0 <= self.offsets[variable] + move <= self.rooms[variable]:
                return None
            by[variable] = int(move)
        if any(_sum(factors, by) != moves.of(read) for read, factors in self.checked):
            return None
        if any(_sum(factors, by) % divisor for factors, divisor in self.multiples):
            return None
        offsets = {variable: first + by.get(variable, 0) for variable, first in self.offsets.items()}
        terms = [
            term if term.partial is None else replace(term, partial=moves.spots[term.origin][1]) for term in self.terms
        ]
        if any(term.origin >= 0 and term.partial is None for term in terms):
            return None
        return _further(self.lo, [by.get(variable, 0) for variable in self.outputs]), partial_of(terms, offsets)


def placed(
    terms: Sequence[Term],
    outputs: Sequence[int],
    offsets: Mapping[int, int],
    rooms: Mapping[int, int],
    equations: Iterable[tuple[Read | None, Lin]],
    suggested: Iterable[tuple[Read, int]],
    fixed: Iterable[Read],
    still: Iterable[int],
) -> Placed:
    """The findings at one place, and their premises.

    Args:
        terms: of the model's sum.
        outputs: the model's variables, by dim.
        offsets: where each begins.
        rooms: the largest offset of each.
        equations: what is read, and the model's index of it.
        suggested: variables that may lie as a claim does.
        fixed: what may not move.
        still: variables that may not move.

    Raises:
        MismatchError: parts of reductions that are not alike.
    """
    multiples: dict[tuple[Factors, int], None] = {}
    equations_left = list(dict.fromkeys((read, _movement(lin, multiples)) for read, lin in equations))
    equations_left = [(read, tuple(entry for entry in factors if rooms[entry[0]])) for read, factors in equations_left]
    bound = {variable for variable, room in rooms.items() if not room} | set(still)
    solved: list[tuple[int, Fraction | int, Read | None, Factors]] = []
    checked: list[tuple[Read | None, Factors]] = []
    while equations_left:
        # One that leaves several variables open decides the one with the largest factor, and the others stay.
        unknowns = [[entry for entry in factors if entry[0] not in bound] for _, factors in equations_left]
        number = min(range(len(equations_left)), key=lambda place: len(unknowns[place]))
        unknown, (read, factors) = unknowns[number], equations_left.pop(number)
        if not unknown:
            checked.append((read, factors))
            continue
        variable, factor = min(unknown, key=lambda entry: (-abs(entry[1]), entry[0]))
        bound.update(open_variable for open_variable, _ in unknown)
        solved.append((variable, factor, read, tuple(entry for entry in factors if entry[0] != variable)))
    solved += [(variable, 1, read, ()) for read, variable in suggested if variable in offsets and variable not in bound]
    lo = tuple(offsets.get(variable) for variable in outputs)
    return Placed(
        lo,
        partial_of(terms, offsets),
        tuple(terms),
        tuple(outputs),
        offsets,
        rooms,
        tuple(solved),
        tuple(checked),
        tuple(multiples),
        tuple(dict.fromkeys(fixed)),
    )


def _movement(lin: Lin, multiples: dict[tuple[Factors, int], None]) -> Factors:
    """How far an index moves with its variables, if what is divided moves by multiples of its divisor."""
    factors: dict[int, Fraction] = {}
    for atom, factor in lin.terms:
        if isinstance(atom, Quotient):
            inner = _movement(atom.inner, multiples)
            multiples[inner, atom.divisor] = None
            moves = () if atom.is_remainder else inner
            factor /= atom.divisor
        else:
            moves = ((atom, 1),)
        for variable, times in moves:
            factors[variable] = factors.get(variable, Fraction(0)) + factor * times
    return tuple((variable, int(by) if by.denominator == 1 else by) for variable, by in sorted(factors.items()) if by)


def _sum(factors: Factors, by: Mapping[int, int]) -> Fraction | int:
    return sum([factor * by.get(variable, 0) for variable, factor in factors])


def _further(lo: Place, by: Sequence[int]) -> Place:
    return tuple([None if first is None else first + move for first, move in zip(lo, by, strict=True)])
