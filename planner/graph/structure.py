"""What two graphs have in common when only names, sizes and the order of their ops differ.

Every op gets a *colour*: a hash of its type, of how it is wired to everything before and after it, and of the dtypes,
ranks and roles of the tensors on the way. It is the colour refinement of the Weisfeiler-Leman test; since edges have
directions and positions, a pass each way tells nearly all ops apart. Ops of one colour stand in the same place of the
graph, like two equal branches. No name, no size, no value and no order of the file is looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.graph.model import Attribute, Graph, Op

_DIRECTIONS = frozenset(
    ("axes", "axis", "batch_axis", "batch_dims", "keepdims", "perm", "seq_axis", "time_axis", "transA", "transB")
)
"""Attributes whose numbers say along which dims an op works. Other numbers are sizes or values; texts always count."""
_ROUNDS = 2
"""In the second round a graph's inputs are told apart by who reads them."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A graph without its names and sizes."""

    digest: str
    """sha256 of all colours: equal for graphs that differ in names, sizes and order of ops only."""
    keys: Mapping[str, str]
    """By op: the length of the longest path to it, its type and its colour, as in ``00012.MatMul.3fa9c1d20b7e``. Sorted
    by these texts, an op comes after all that it reads from."""
    colours: Mapping[str, str]
    """By tensor: equal for tensors in the same place of the graph."""


def structure_of(graph: Graph) -> Structure:
    """The structure of a graph."""
    seeds = {
        name: _hash(graph.roles[name].value, tensor.dtype.value, len(tensor.shape))
        for name, tensor in graph.tensors.items()
    }
    after: dict[str, str] = {}
    colours: dict[str, str] = {}
    for _ in range(_ROUNDS):
        before = _from_the_inputs(graph, seeds)
        after = _from_the_outputs(graph, seeds, before)
        colours = {op.name: _hash(before[op.name], after[op.name]) for op in graph.ops}
        seeds = _told_apart(graph, seeds, colours)
    levels = _levels(graph)
    whole = _hash(*sorted(colours.values()), *sorted(seeds[name] for name in (*graph.inputs, *graph.outputs)))
    keys = {op.name: f"{levels[op.name]:05d}.{op.op_type}.{colours[op.name][:12]}" for op in graph.ops}
    return Structure(whole, keys, seeds)


def in_order_of_places(graph: Graph) -> Graph:
    """The graph with ops and tensors in an order that does not depend on the file's, nor on names.

    Ops at the same place are told apart by their sizes. If those are equal, too, they stay as they are.
    """
    structure = structure_of(graph)

    def sizes(names: tuple[str, ...]) -> list[tuple[int, ...]]:
        return [graph.tensors[name].shape for name in names if name]

    ops = sorted(graph.ops, key=lambda op: (structure.keys[op.name], sizes(op.inputs), sizes(op.outputs)))
    made = [name for op in ops for name in op.outputs if name]
    first = [name for name in graph.tensors if name not in graph.producer]
    first.sort(key=lambda name: (structure.colours[name], graph.tensors[name].shape))
    return replace(graph, ops=tuple(ops), tensors={name: graph.tensors[name] for name in (*first, *made)})


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _form(op: Op) -> tuple[object, ...]:
    """What an op is, without its sizes."""
    stated = tuple((name, value) for name, value in op.attributes if name in _DIRECTIONS or _is_text(value))
    return (op.domain, op.op_type, stated, tuple(bool(name) for name in op.outputs))


def _is_text(value: Attribute) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], str))


def _from_the_inputs(graph: Graph, seeds: Mapping[str, str]) -> dict[str, str]:
    """By op, a hash of all that leads to it."""
    found: dict[str, str] = {}
    tensors = dict(seeds)
    for op in graph.ops:
        found[op.name] = _hash(_form(op), *(tensors[name] if name else "" for name in op.inputs))
        for position, name in enumerate(op.outputs):
            if name:
                tensors[name] = _hash(seeds[name], found[op.name], position)
    return found


def _from_the_outputs(graph: Graph, seeds: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """By op, a hash of all that it leads to."""
    found: dict[str, str] = {}
    for op in reversed(graph.ops):
        uses = []
        for name in op.outputs:
            readers = graph.consumers[name] if name else ()
            slots = [(found[reader.name], slot) for reader in readers for slot in _slots(reader, name)]
            uses.append((seeds[name] if name else "", sorted(slots)))
        found[op.name] = _hash(_form(op), before[op.name], uses)
    return found


def _slots(op: Op, tensor: str) -> list[int]:
    return [slot for slot, name in enumerate(op.inputs) if name == tensor]


def _told_apart(graph: Graph, seeds: Mapping[str, str], colours: Mapping[str, str]) -> dict[str, str]:
    """Seeds that know who reads a tensor, and what replaces it after the step."""
    following = {pair.current: pair.following for pair in graph.state}
    current = {pair.following: pair.current for pair in graph.state}

    def around(name: str) -> object:
        maker = graph.producer.get(name)
        uses = [(colours[op.name], slot) for op in graph.consumers[name] for slot in _slots(op, name)]
        return (colours[maker.name] if maker else "", sorted(uses))

    near = {name: _hash(seed, around(name)) for name, seed in seeds.items()}
    tied = {name: following.get(name) or current.get(name) or "" for name in seeds}
    return {name: _hash(seed, near[tied[name]] if tied[name] else "") for name, seed in near.items()}


def _levels(graph: Graph) -> dict[str, int]:
    """By op, the number of ops on the longest path to it."""
    levels: dict[str, int] = {}
    for op in graph.ops:
        makers = (graph.producer[name] for name in op.inputs if name in graph.producer)
        levels[op.name] = 1 + max((levels[maker.name] for maker in makers), default=-1)
    return levels
