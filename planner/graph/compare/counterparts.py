"""Ops and tensors of one graph and their equals in another: two versions of a model, seen through names,
sizes and edits.

Three ways, the first that applies:

- *names*: every op of the one has its name, type and wires in the other, too;
- *places*: the graphs have one structure (``planner.graph.compare.structure``), so that each op has its place in both;
- *surroundings*: they have parts in common. Ops with a name, a type and a neighbouring tensor in common are
  counterparts; so are ops whose neighbourhood occurs once in each graph. From these it goes along the wires: what
  makes, or alone reads, a tensor and its counterpart is a counterpart if it is of the same type.

In the second and third way names tell apart what nothing else does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from planner.graph.compare.structure import structure_of
from planner.graph.core.model import Graph, Op

_NEIGHBOURHOODS: Final = ((True, 4), (True, 2), (True, 1), (False, 3), (False, 1))
"""Whether sizes count, and how many wires away an op is looked at: what says most comes first."""


@dataclass(frozen=True, slots=True)
class Counterparts:
    """The ops and tensors that two graphs share."""

    by: Literal["names", "places", "surroundings"]
    """How it was found."""
    ops: Mapping[str, str]
    """By name in the first graph the name in the second; no name of either stands there twice."""
    tensors: Mapping[str, str]
    """In the same way; constants are among them."""

    @property
    def is_of_one_structure(self) -> bool:
        """Whether the graphs differ in names and sizes at most."""
        return self.by != "surroundings"


def counterparts(first: Graph, second: Graph) -> Counterparts:
    """The counterparts of two graphs, in the order of the first; the same for the same graphs."""
    if _have_equal_names(first, second):
        return Counterparts("names", {op.name: op.name for op in first.ops}, {name: name for name in first.tensors})
    places = structure_of(first), structure_of(second)
    if places[0].digest == places[1].digest:
        search = _Search(first, second, (places[0].keys, places[1].keys))
        search.take_unique((places[0].keys, places[1].keys))
        search.follow()
        search.take_in_order((places[0].keys, places[1].keys))
        return search.counterparts("places")
    search = _Search(first, second, None)
    search.take_named()
    for has_sizes, radius in _NEIGHBOURHOODS:
        search.take_unique(_neighbourhoods(first, second, has_sizes=has_sizes, radius=radius))
    search.follow()
    return search.counterparts("surroundings")


def in_common(first: Graph, second: Graph, pairs: Counterparts) -> int:
    """The number of ops with a counterpart that reads and makes the counterparts of their tensors."""
    second_ops = {op.name: op for op in second.ops}
    count = 0
    for op in first.ops:
        if op.name in pairs.ops:
            peer = second_ops[pairs.ops[op.name]]
            names, peer_names = (*op.inputs, *op.outputs), (*peer.inputs, *peer.outputs)
            count += tuple(name and pairs.tensors.get(name) for name in names) == peer_names
    return count


def _have_equal_names(first: Graph, second: Graph) -> bool:
    def wires(graph: Graph) -> dict[str, tuple[object, ...]]:
        return {op.name: (*_type(op), op.inputs, op.outputs) for op in graph.ops}

    def ends(graph: Graph) -> tuple[object, ...]:
        return sorted(graph.inputs), sorted(graph.outputs)

    return (
        wires(first) == wires(second) and ends(first) == ends(second) and first.tensors.keys() == second.tensors.keys()
    )


def _type(op: Op) -> tuple[str, str]:
    return op.domain, op.op_type


class _Search:
    """The counterparts that are known, and those from which it has not yet gone on."""

    def __init__(self, first: Graph, second: Graph, places: tuple[Mapping[str, str], Mapping[str, str]] | None) -> None:
        """Knows nothing.

        Args:
            first: a graph.
            second: another.
            places: of the ops of each, where only ops of one place may be counterparts.
        """
        self._graphs = first, second
        self._named = tuple({op.name: op for op in graph.ops} for graph in self._graphs)
        self._places = places
        self._ops: dict[str, str] = {}
        self._tensors: dict[str, str] = {}
        self._peer_ops: set[str] = set()
        self._peer_tensors: set[str] = set()
        self._waiting: deque[tuple[Op, Op]] = deque()

    def counterparts(self, by: Literal["places", "surroundings"]) -> Counterparts:
        """The counterparts so far; at last, tensors of equal names where nothing says that they are others."""
        first, second = self._graphs
        for name in first.tensors:
            maker = first.producer.get(name), second.producer.get(name)
            if name in second.tensors and not any(
                op is not None and self._is_known(op, at) for at, op in enumerate(maker)
            ):
                self._take_tensor(name, name)
        return Counterparts(
            by,
            {op.name: self._ops[op.name] for op in first.ops if op.name in self._ops},
            {name: self._tensors[name] for name in first.tensors if name in self._tensors},
        )

    def take_named(self) -> None:
        """Takes ops with their name, their type, and the name of a tensor at the same position in common."""
        for op in self._graphs[0].ops:
            peer = self._named[1].get(op.name)
            if peer is not None and any(
                name and name == twin
                for names, peer_names in ((op.inputs, peer.inputs), (op.outputs, peer.outputs))
                for name, twin in zip(names, peer_names, strict=False)
            ):
                self._take(op, peer)

    def take_unique(self, kinds: tuple[Mapping[str, object], Mapping[str, object]]) -> None:
        """Takes ops that alone are of their kind among those that are left."""
        unique = tuple(self._alone(kinds[at], at) for at in (0, 1))
        for kind, op in unique[0].items():
            if kind in unique[1]:
                self._take(op, unique[1][kind])

    def take_in_order(self, kinds: tuple[Mapping[str, str], Mapping[str, str]]) -> None:
        """Takes the ops that are left, kind by kind: those of equal names first, then the first of each."""
        ops_by_place: dict[str, list[Op]] = {}
        for op in self._graphs[1].ops:
            ops_by_place.setdefault(kinds[1][op.name], []).append(op)
        for op in sorted(self._graphs[0].ops, key=lambda op: kinds[0][op.name]):
            if self._is_known(op, 0):
                continue
            peers = [peer for peer in ops_by_place.get(kinds[0][op.name], ()) if not self._is_known(peer, 1)]
            if peers:
                self._take(op, next((peer for peer in peers if peer.name == op.name), peers[0]))
                self.follow()

    def follow(self) -> None:
        """Goes along the wires of all that was taken."""
        while self._waiting:
            op, peer = self._waiting.popleft()
            for names, peer_names in ((op.inputs, peer.inputs), (op.outputs, peer.outputs)):
                for name, twin in zip(names, peer_names, strict=False):
                    if name and twin and self._take_tensor(name, twin):
                        self._take_ends(name, twin)

    def _alone(self, kinds: Mapping[str, object], at: int) -> dict[object, Op]:
        ops = [op for op in self._graphs[at].ops if not self._is_known(op, at)]
        often = Counter(kinds[op.name] for op in ops)
        return {kinds[op.name]: op for op in ops if often[kinds[op.name]] == 1}

    def _is_known(self, op: Op, at: int) -> bool:
        return op.name in (self._peer_ops if at else self._ops)

    def _take(self, op: Op, peer: Op) -> None:
        """Takes two ops as counterparts, unless one has another or they are of different types or places."""
        if self._is_known(op, 0) or self._is_known(peer, 1) or _type(op) != _type(peer):
            return
        if self._places is not None and self._places[0][op.name] != self._places[1][peer.name]:
            return
        self._ops[op.name] = peer.name
        self._peer_ops.add(peer.name)
        self._waiting.append((op, peer))

    def _take_tensor(self, name: str, twin: str) -> bool:
        """Takes two tensors as counterparts, unless one has another, or another rank or dtype."""
        tensor, peer = self._graphs[0].tensors[name], self._graphs[1].tensors[twin]
        if name in self._tensors or twin in self._peer_tensors:
            return False
        if tensor.dtype is not peer.dtype or len(tensor.shape) != len(peer.shape):
            return False
        self._tensors[name] = twin
        self._peer_tensors.add(twin)
        return True

    def _take_ends(self, name: str, twin: str) -> None:
        """Takes the makers of two tensors, and the readers that are told apart by how they read."""
        makers = self._graphs[0].producer.get(name), self._graphs[1].producer.get(twin)
        if makers[0] is not None and makers[1] is not None:
            self._take(makers[0], makers[1])
        readers = self._readers(0, name), self._readers(1, twin)
        for how, op in readers[0].items():
            if how in readers[1]:
                self._take(op, readers[1][how])

    def _readers(self, at: int, name: str) -> dict[object, Op]:
        """By type and the positions at which it reads a tensor, the only such op that is left."""
        ways: dict[object, list[Op]] = {}
        for op in self._graphs[at].consumers[name]:
            if not self._is_known(op, at):
                slots = op.slots(name)
                place = None if self._places is None else self._places[at][op.name]
                ways.setdefault((_type(op), slots, place), []).append(op)
        return {how: ops[0] for how, ops in ways.items() if len(ops) == 1}


def _neighbourhoods(
    first: Graph, second: Graph, *, has_sizes: bool, radius: int
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Of the ops of both graphs, a number that is equal where all is alike that so many wires away or less is."""
    numbers: dict[object, int] = {}

    def number(parts: object) -> int:
        return numbers.setdefault(parts, len(numbers))

    def signature(graph: Graph, op: Op) -> object:
        return (_type(op), *(tuple(_forms(graph, names, has_sizes)) for names in (op.inputs, op.outputs)))

    labels = tuple({op.name: number(signature(graph, op)) for op in graph.ops} for graph in (first, second))
    for _ in range(radius):
        labels = tuple(
            {op.name: number(_around(graph, op, kinds)) for op in graph.ops}
            for graph, kinds in zip((first, second), labels, strict=True)
        )
    return labels[0], labels[1]


def _forms(graph: Graph, names: Sequence[str], has_sizes: bool) -> Iterator[object]:
    for name in names:
        if not name:
            yield None
        else:
            tensor = graph.tensors[name]
            yield graph.roles[name], tensor.dtype, tensor.shape if has_sizes else len(tensor.shape)


def _around(graph: Graph, op: Op, kinds: Mapping[str, int]) -> object:
    """What kinds of ops make what an op reads, and read what it makes."""
    makers = tuple(kinds[graph.producer[name].name] if name in graph.producer else None for name in op.inputs)
    readers = tuple(tuple(sorted(_reading(graph, name, kinds))) for name in op.outputs if name)
    return kinds[op.name], makers, readers


def _reading(graph: Graph, name: str, kinds: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    for op in graph.consumers[name]:
        for slot, read in enumerate(op.inputs):
            if read == name:
                yield kinds[op.name], slot
