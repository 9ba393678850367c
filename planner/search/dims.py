"""Which dims of tensors and index variables of ops go together, and in what blocks.

A tensor's dim and an op's variable are *the same direction* where the op indexes the dim by the variable alone.
They are *aligned* where the variable is the major part of the dim's index (``x[D*h + d]``: cutting h cuts the dim
in blocks of D) or the dim is the quotient of the variable (``x[i // D, i % D]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from planner.graph.model import Graph
from planner.tdl.analyse import Analysis
from planner.tdl.bind import BoundOp
from planner.tdl.interval import Floor, Interval, Symbol

Place: TypeAlias = tuple[str, str, int]
"""("tensor", name, dim) or ("op", name, number of the variable)."""


@dataclass(frozen=True, slots=True)
class Directions:
    """The directions of a graph."""

    group: Mapping[Place, int]
    """The number of each place's direction."""
    blocks: Mapping[int, tuple[int, ...]]
    """Blocks proposed for each direction, ascending, without 1."""
    aligned: tuple[tuple[Place, Place], ...]
    """Pairs of places that are aligned without being the same direction."""

    def blocks_of(self, place: Place) -> tuple[int, ...]:
        """Blocks worth trying when this dim or variable is cut."""
        number = self.group.get(place)
        return () if number is None else self.blocks.get(number, ())


def find_directions(graph: Graph, ops: Iterable[BoundOp]) -> Directions:
    """Joins the dims and variables of a graph into directions and gathers their block proposals."""
    parent: dict[Place, Place] = {}

    def root(place: Place) -> Place:
        parent.setdefault(place, place)
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    def join(one: Place, other: Place) -> None:
        first, second = sorted((root(one), root(other)))
        parent[second] = first

    proposals: list[tuple[Place, int]] = []
    aligned: list[tuple[Place, Place]] = []
    known: dict[int, tuple[_Index, ...]] = {}
    for bound in ops:
        name = bound.op.name
        for position, dims in enumerate(bound.analysis.outputs):
            for dim, number in enumerate(dims or ()):
                join(("tensor", bound.op.outputs[position], dim), ("op", name, number))
        for number, variable in enumerate(bound.variables):
            proposals.extend((("op", name, number), block) for block in variable.blocks)
        indices = known.get(id(bound.analysis))
        if indices is None:
            indices = known[id(bound.analysis)] = tuple(_indices(bound.analysis))
        for index in indices:
            place: Place = ("tensor", bound.op.inputs[index.slot], index.dim)
            proposals.extend((place, block) for block in index.blocks)
            if index.major is None:
                continue
            there: Place = ("op", name, index.major)
            if index.is_alone:
                join(place, there)
            else:
                aligned.append((place, there))
    for first, second in graph_ties(graph):
        for dim in range(len(graph.tensors[first].shape)):
            join(("tensor", first, dim), ("tensor", second, dim))
    roots = {place: root(place) for place in list(parent)}
    numbering = {place: number for number, place in enumerate(sorted(set(roots.values())))}
    group = {place: numbering[top] for place, top in roots.items()}
    blocks: dict[int, set[int]] = {}
    for place, block in proposals:
        if block > 1 and place in group:
            blocks.setdefault(group[place], set()).add(block)
    return Directions(group, {number: tuple(sorted(found)) for number, found in blocks.items()}, tuple(aligned))


@dataclass(frozen=True, slots=True)
class _Index:
    """How an op reads one dim of one input."""

    slot: int
    dim: int
    major: int | None
    """The variable with the largest step, by number; None: there is none."""
    is_alone: bool
    """True if the index is that variable and nothing else."""
    blocks: tuple[int, ...]


def _indices(analysis: Analysis) -> Iterator[_Index]:
    """What ops with this analysis have in common."""
    numbers = {variable.name: number for number, variable in enumerate(analysis.variables)}
    for read in analysis.reads:
        for dim, interval in enumerate(read.dims):
            if interval is not None:
                major = _major_variable(interval)
                is_alone = major is not None and interval == Interval.variable(major)
                yield _Index(read.slot, dim, None if major is None else numbers[major], is_alone, read.blocks[dim])


def graph_ties(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Pairs of tensors that must have one tiling: a state and its next value."""
    return tuple((pair.current, pair.following) for pair in graph.state)


def _major_variable(interval: Interval) -> str | None:
    """The variable with the largest positive coefficient, alone or under a floor-division."""
    best: tuple[Fraction, str] | None = None
    for term, factor in interval.first.terms:
        name = None
        if isinstance(term, Symbol):
            name = term.variable
        elif isinstance(term, Floor) and len(term.of.terms) == 1 and isinstance(term.of.terms[0][0], Symbol):
            name = term.of.terms[0][0].variable
        if name is not None and factor > 0 and (best is None or factor > best[0]):
            best = (factor, name)
    return None if best is None else best[1]


def reachable(directions: Directions, start: Iterable[Place]) -> frozenset[Place]:
    """All places that go with the given ones, through equal and aligned directions."""
    members: dict[int, list[Place]] = {}
    for place, number in directions.group.items():
        members.setdefault(number, []).append(place)
    linked: dict[int, set[int]] = {}
    for one, other in directions.aligned:
        if one in directions.group and other in directions.group:
            first, second = directions.group[one], directions.group[other]
            linked.setdefault(first, set()).add(second)
            linked.setdefault(second, set()).add(first)
    found: set[int] = set()
    stack = [directions.group[place] for place in start if place in directions.group]
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack.extend(linked.get(number, ()))
    return frozenset(place for number in found for place in members[number])
