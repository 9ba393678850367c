"""Structure that two graphs share if only names, sizes and the order of their ops differ.

Every op gets a *colour*: a number made of its type, of how it is wired to everything before and after it, and of the
dtypes, ranks and roles of the tensors on the way. It is the colour refinement of the Weisfeiler-Leman test; since edges
have directions and positions, a pass each way tells nearly all ops apart. Ops of one colour stand in the same place of
the graph, like two equal branches. No name, no size, no value and no order of the file is looked at.

Colours are sums of products modulo 2**64, stirred after each step: the same on every machine.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from planner.graph.core.model import Attribute, Graph, Op

_DIRECTIONS = frozenset(
    ("axes", "axis", "batch_axis", "batch_dims", "keepdims", "perm", "seq_axis", "time_axis", "transA", "transB")
)
"""Attributes whose numbers say along which dims an op works. Other numbers are sizes or values; texts always count."""
_ROUNDS = 2
"""In the second round a graph's inputs are told apart by who reads them."""
_MASK = (1 << 64) - 1
_STIR = 0xD6E8FEB86659FD93
_STEP = 0x9E3779B97F4A7C15
"""Odd, so that multiplying by them loses nothing."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A graph without its names and sizes."""

    digest: str
    """sha256 of all colours: equal for graphs that differ in names, sizes and order of ops only."""
    keys: Mapping[str, str]
    """By op: the length of the longest path to it, its type and its colour, as in ``00012.MatMul.3fa9c1d20b7e``. Sorted
    by these texts, an op comes after all that it reads from."""


def structure_of(graph: Graph) -> Structure:
    """The structure of a graph."""
    colouring = _Colouring(graph)
    ends = sorted(colouring.tensors[name] for name in (*graph.inputs, *graph.outputs))
    digest = hashlib.sha256(repr((sorted(colouring.ops), ends)).encode()).hexdigest()
    keys = {
        op.name: f"{level:05d}.{op.op_type}.{colour >> 16:012x}"
        for op, level, colour in zip(graph.ops, colouring.levels(), colouring.ops, strict=True)
    }
    return Structure(digest, keys)


def in_order_of_places(graph: Graph) -> Graph:
    """The graph with ops and tensors in an order that does not depend on the file's, nor on names.

    Ops at the same place are told apart by their sizes. If those are equal, too, they stay as they are.
    """
    colouring = _Colouring(graph, ends_early=True)
    often = Counter(colouring.ops)

    def sizes(names: tuple[str, ...]) -> list[tuple[int, ...]]:
        return [graph.tensors[name].shape for name in names if name]

    places = [
        (level, colour, (sizes(op.inputs), sizes(op.outputs)) if often[colour] > 1 else None)
        for op, level, colour in zip(graph.ops, colouring.levels(), colouring.ops, strict=True)
    ]
    ops = tuple(graph.ops[number] for number in sorted(range(len(places)), key=places.__getitem__))
    results = [name for op in ops for name in op.outputs if name]
    first = [name for name in graph.tensors if name not in graph.producer]
    first.sort(key=lambda name: (colouring.tensors[name], graph.tensors[name].shape))
    return replace(graph, ops=ops, tensors={name: graph.tensors[name] for name in (*first, *results)})


def _stirred(value: int) -> int:
    """A number below 2**64 in which every bit of ``value`` counts."""
    value &= _MASK
    value = (value ^ value >> 32) * _STIR & _MASK
    return value ^ value >> 29


def _number_of(parts: object) -> int:
    """A number for texts and the like."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")


def _form(op: Op) -> tuple[object, ...]:
    """What an op is, without its sizes."""
    stated = tuple((name, value) for name, value in op.attributes if name in _DIRECTIONS or _is_text(value))
    return (op.domain, op.op_type, stated, tuple(bool(name) for name in op.outputs))


def _is_text(value: Attribute) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], str))


class _Colouring:
    """The colours of a graph.

    Attributes:
        ops: of each op, in the order of the graph.
        tensors: by name.
    """

    def __init__(self, graph: Graph, *, ends_early: bool = False) -> None:
        """Finds them.

        Args:
            graph: whose.
            ends_early: do no more once all ops are apart.
        """
        self._graph = graph
        numbers: dict[object, int] = {}

        def number(parts: object) -> int:
            if parts not in numbers:
                numbers[parts] = _number_of(parts)
            return numbers[parts]

        roles = graph.roles
        self.tensors = {
            name: number((roles[name].value, tensor.dtype.value, len(tensor.shape)))
            for name, tensor in graph.tensors.items()
        }
        self._forms = [number(_form(op)) for op in graph.ops]
        self.ops: list[int] = []
        for _ in range(_ROUNDS):
            self.ops = self._from_the_outputs(self._from_the_inputs())
            self.tensors = self._told_apart()
            if ends_early and len(set(self.ops)) == len(self.ops):
                break

    def levels(self) -> list[int]:
        """The number of ops on the longest path to each op."""
        level_of: dict[str, int] = {}
        levels: list[int] = []
        for op in self._graph.ops:
            level = max((level_of.get(name, 0) for name in op.inputs), default=0)
            levels.append(level)
            level_of.update(dict.fromkeys(op.outputs, level + 1))
            level_of.pop("", None)
        return levels

    def _from_the_inputs(self) -> list[int]:
        """Of each op, all that leads to it."""
        tensors = dict(self.tensors)
        tensors[""] = 0
        colours = []
        for op, form in zip(self._graph.ops, self._forms, strict=True):
            colour, step = form, _STEP
            for name in op.inputs:
                colour += tensors[name] * step
                step += 2 * _STEP
            colour = _stirred(colour)
            colours.append(colour)
            for position, name in enumerate(op.outputs):
                if name:
                    tensors[name] = _stirred(tensors[name] + (colour + position) * _STEP)
        return colours

    def _from_the_outputs(self, before: Iterable[int]) -> list[int]:
        """Of each op, all that leads to it and all that it leads to."""
        uses = dict.fromkeys(self.tensors, 0)
        colours = []
        for op, colour in zip(reversed(self._graph.ops), reversed(list(before)), strict=True):
            step = _STEP
            for name in op.outputs:
                if name:
                    colour += _stirred(self.tensors[name] + uses[name] * _STEP) * step
                step += 2 * _STEP
            colour = _stirred(colour)
            colours.append(colour)
            step = _STEP
            for name in op.inputs:
                if name:
                    uses[name] += colour * step
                step += 2 * _STEP
        return colours[::-1]

    def _told_apart(self) -> dict[str, int]:
        """Colours of tensors that know who makes and reads them, and what replaces them after the step."""
        near = dict(self.tensors)
        for op, colour in zip(self._graph.ops, self.ops, strict=True):
            for name in op.outputs:
                if name:
                    near[name] += colour * _STEP
            step = 3 * _STEP
            for name in op.inputs:
                if name:
                    near[name] += colour * step
                step += 2 * _STEP
        near = {name: _stirred(colour) for name, colour in near.items()}
        colours = dict(near)
        for pair in self._graph.state:
            colours[pair.current] = _stirred(near[pair.current] + near[pair.following] * _STEP)
            colours[pair.following] = _stirred(near[pair.following] + near[pair.current] * _STEP)
        return colours
