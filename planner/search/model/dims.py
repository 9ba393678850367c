"""Dims of tensors and index variables of ops that go together, and their blocks.

A tensor's dim and an op's variable are *the same direction* where the op indexes the dim by the variable alone.
They are *aligned* where the variable is the major part of the dim's index (``x[D*h + d]``: cutting h cuts the dim
in blocks of D) or the dim is the quotient of the variable (``x[i // D, i % D]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from planner.graph.core.model import Graph
from planner.search.exact.rows import Ints
from planner.tdl.bind import BoundOp
from planner.tdl.flow import Layout
from planner.walk import walk

Place: TypeAlias = tuple[str, str, int]
"""("tensor", name, dim) or ("op", name, number of the variable)."""


class Directions:
    """The directions of a graph, told apart by number."""

    def __init__(self, places: _Places, number: Ints, blocks: Mapping[int, tuple[int, ...]], aligned: Ints) -> None:
        """Collects what ``find_directions`` has found.

        Args:
            places: all dims and variables.
            number: the direction of each place; -1 for one that goes with no other.
            blocks: proposed for each direction, ascending, without 1.
            aligned: pairs of places that are aligned without being the same direction, shape [2, pairs].
        """
        self._places = places
        self._number = number
        self._aligned = aligned
        self._of_name = self._blocks_by_name(blocks)

    def _blocks_by_name(
        self, blocks: Mapping[int, tuple[int, ...]]
    ) -> dict[tuple[str, str], tuple[tuple[int, ...], ...]]:
        """The blocks of each dim or variable, by kind and name; without those that have none."""
        cut = np.flatnonzero(np.isin(self._number, list(blocks)))
        by_name = {}
        for kind, names in self._places.start.items():
            starts, order = np.array(list(names.values()), dtype=np.int64), list(names)
            places = cut[(cut >= starts[0]) & (cut < self._places.end[kind])] if order else cut[:0]
            for number in np.unique(np.searchsorted(starts, places, side="right") - 1).tolist():
                name = order[number]
                start, count = names[name], self._places.count[kind][name]
                directions = self._number[start : start + count].tolist()
                by_name[kind, name] = tuple(blocks.get(direction, ()) for direction in directions)
        return by_name

    def blocks_of(self, kind: str, name: str) -> tuple[tuple[int, ...], ...]:
        """Blocks worth trying when a tensor ("tensor") or an op ("op") is cut, by dim or variable; () for none."""
        return self._of_name.get((kind, name), ())

    @cached_property
    def group(self) -> Mapping[Place, int]:
        """The number of each place's direction."""
        numbers = self._number.tolist()
        return {place: numbers[at] for place, at in self._places.items() if numbers[at] >= 0}

    def reachable(self, start: Iterable[Place]) -> frozenset[Place]:
        """All places that go with the given ones, through equal and aligned directions."""
        linked: dict[int, set[int]] = {}
        for first, second in self._number[self._aligned].T.tolist():
            if first >= 0 and second >= 0:
                linked.setdefault(first, set()).add(second)
                linked.setdefault(second, set()).add(first)
        starts = (self.group[place] for place in start if place in self.group)
        reached = set(walk(starts, lambda number: linked.get(number, ())))
        return frozenset(place for place, number in self.group.items() if number in reached)


class _Places:
    """Numbers for all dims of tensors and all variables of ops."""

    def __init__(self, graph: Graph, ops: Sequence[BoundOp]) -> None:
        self.count = {
            "tensor": {name: len(tensor.shape) for name, tensor in graph.tensors.items()},
            "op": {bound.op.name: len(bound.variables) for bound in ops},
        }
        self.start: dict[str, dict[str, int]] = {}
        self.end: dict[str, int] = {}
        self.total = 0
        for kind, counts in self.count.items():
            ends = list(accumulate(counts.values(), initial=self.total))
            self.start[kind] = dict(zip(counts, ends, strict=False))
            self.total = self.end[kind] = ends[-1]

    def items(self) -> Iterator[tuple[Place, int]]:
        """Every place and its number."""
        for kind, counts in self.count.items():
            for name, count in counts.items():
                start = self.start[kind][name]
                for position in range(count):
                    yield (kind, name, position), start + position


def find_directions(graph: Graph, ops: Sequence[BoundOp]) -> Directions:
    """Joins the dims and variables of a graph into directions and gathers their block proposals."""
    places = _Places(graph, ops)
    start, starts = places.start["tensor"], np.array(list(places.start["op"].values()), dtype=np.int64)
    joined: list[Ints] = []
    aligned: list[Ints] = []
    proposals: list[tuple[Ints, int]] = []
    alike: dict[int, list[int]] = {}
    for number, bound in enumerate(ops):
        alike.setdefault(id(bound.analysis), []).append(number)
    # Ops of one analysis have one layout: it is made once, and moved to the numbers of each.
    for members in alike.values():
        analysis = ops[members[0]].analysis
        layout = Layout.of(analysis)
        bases, nodes = starts[members], [ops[number].op for number in members]
        output_starts = {
            position: np.array([start[node.outputs[position]] for node in nodes])
            for position, dims in enumerate(analysis.outputs)
            if dims is not None
        }
        input_starts = {slot: np.array([start[node.inputs[slot]] for node in nodes]) for slot in analysis.read_slots}
        joined += [
            np.array((output_starts[position] + dim, bases + number)) for position, dim, number in layout.output_dims
        ]
        joined += [np.array((input_starts[slot] + dim, bases + number)) for slot, dim, number in layout.read]
        aligned += [np.array((input_starts[slot] + dim, bases + number)) for slot, dim, number in layout.aligned]
        aligned += [
            np.array((output_starts[position] + dim, bases + number)) for position, dim, number, _ in layout.stepped
        ]
        proposals += [(output_starts[position] + dim, step) for position, dim, _, step in layout.stepped]
        for number, variable in enumerate(analysis.variables):
            proposals += [(bases + number, block) for block in variable.blocks if block > 1]
        for read in analysis.reads:
            for dim, proposed in enumerate(read.blocks):
                proposals += [(input_starts[read.slot] + dim, block) for block in proposed if block > 1]
    for first, second in graph_ties(graph):
        along = np.arange(len(graph.tensors[first].shape))
        joined.append(np.array((start[first] + along, start[second] + along)))
    pairs = np.concatenate([np.zeros((2, 0), dtype=np.int64), *joined], axis=1)
    direction = _components(places.total, pairs)
    alone = np.ones(places.total, dtype=bool)
    alone[pairs] = False
    direction[alone] = -1
    blocks: dict[int, set[int]] = {}
    for asking, block in proposals:
        for number in set(direction[asking][~alone[asking]].tolist()):
            blocks.setdefault(number, set()).add(block)
    sorted_blocks = {number: tuple(sorted(sizes)) for number, sizes in blocks.items()}
    pairs = np.concatenate([np.zeros((2, 0), dtype=np.int64), *aligned], axis=1)
    return Directions(places, direction, sorted_blocks, pairs)


def _components(count: int, pairs: Ints) -> Ints:
    """A number for each of ``count`` things, equal for those that pairs join, shape [2, pairs]: the least of them."""
    label = np.arange(count)
    while True:
        ends = label[pairs]
        pairs = pairs[:, ends[0] != ends[1]]
        if not pairs.size:
            return label
        ends = label[pairs]
        np.minimum.at(label, ends.max(axis=0), ends.min(axis=0))
        while (label[label] != label).any():
            label = label[label]


def graph_ties(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Pairs of tensors that must have one tiling: a state and its next value."""
    return tuple((pair.current, pair.following) for pair in graph.state)
