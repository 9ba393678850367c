"""Copies of one step: parts of a graph that are repeated with the same weights, as an unrolled recurrent network is.

The copies of an op or tensor share a search variable (Tofu, section 5.1, coalesces time steps
in the same way). Left apart, all steps and their gradients would be open at the same time, and
no order of elimination could be found.

Only what the weights prove to be repeated is tied: two ops that read the same state in the same place, and what follows
from there, tensor by tensor and op by op. Layers have weights of their own and so are never tied to one another, nor is
an activation to its gradient. The first and the last step, which begin and end otherwise, may stay apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from planner.graph.deliveries import is_delivery
from planner.graph.model import Graph, Role
from planner.tdl.bind import BoundOp

_FEWEST = 3
"""Ops that must read a state in the same place: with fewer copies there is nothing to gain."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Which tensors and ops are copies of one another."""

    tensors: Mapping[str, str]
    """By tensor the first of its copies; without those that have none."""
    ops: Mapping[str, str]
    """By op the first of its copies; without those that have none."""


def find_copies(graph: Graph, ops: Sequence[BoundOp]) -> Copies:
    """Finds the repeated parts of a graph.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
    """
    seeds = _seeds(graph, ops)
    if not seeds:
        return Copies({}, {})
    closure = _Closure(graph, ops)
    for numbers in seeds:
        for other in numbers[1:]:
            closure.tie_ops(numbers[0], other)
    closure.run()
    return Copies(closure.tied_tensors(), closure.tied_ops())


def is_unrolled(graph: Graph, ops: Sequence[BoundOp]) -> bool:
    """True if ops that are alike read the same state in the same place, as the steps of one layer do.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
    """
    return bool(_seeds(graph, ops))


def _seeds(graph: Graph, ops: Sequence[BoundOp]) -> list[list[int]]:
    """The ops, by number, that read the same state in the same place: what the weights prove to be copies."""
    state = {pair.current for pair in graph.state}
    readers: dict[tuple[str, int, Hashable], list[int]] = {}
    for number, bound in enumerate(ops):
        if state.isdisjoint(bound.op.inputs):
            continue
        if is_delivery(bound.op):  # all steps read a state as it is delivered
            state.update(bound.op.outputs)
        for slot, name in enumerate(bound.op.inputs):
            if name in state:
                readers.setdefault((name, slot, _kind(bound)), []).append(number)
    return [numbers for numbers in readers.values() if len(numbers) >= _FEWEST]


def _kind(bound: BoundOp) -> Hashable:
    return (bound.op.op_type, bound.op.domain, bound.op.attributes, bound.content)


class _Closure:
    """Ties what must be copies because something else is."""

    def __init__(self, graph: Graph, ops: Sequence[BoundOp]) -> None:
        self._graph = graph
        self._ops = ops
        self._roles = graph.roles
        numbers: dict[Hashable, int] = {}
        self._kinds = [numbers.setdefault(_kind(bound), len(numbers)) for bound in ops]
        self._op_root = list(range(len(ops)))
        self._op_members = [[number] for number in range(len(ops))]
        names = [name for name in graph.tensors if name not in graph.constants]
        self._names = names
        # Constants have numbers as well, and are copies of nothing.
        self._number = {name: number for number, name in enumerate((*names, *graph.constants, ""))}
        self._tensor_root = list(range(len(self._number)))
        self._tensor_members = [[number] for number in range(len(names))]
        self._producer: dict[int, tuple[int, int]] = {}
        self._readers: list[list[tuple[int, int]]] = [[] for _ in names]
        self._inputs = [[self._number[name] for name in bound.op.inputs] for bound in ops]
        self._outputs = [[self._number[name] for name in bound.op.outputs] for bound in ops]
        for number, (inputs, outputs) in enumerate(zip(self._inputs, self._outputs, strict=True)):
            for position, tensor in enumerate(outputs):
                if tensor < len(names):
                    self._producer[tensor] = (number, position)
            for slot, tensor in enumerate(inputs):
                if tensor < len(names):
                    self._readers[tensor].append((number, slot))
        self._todo: dict[int, None] = {}
        """Roots of tensors that have been tied since they were last looked at, the longest waiting first: by then most
        of their copies have been found."""

    def tie_ops(self, one: int, other: int) -> None:
        """Ties two ops, and their inputs and outputs position by position."""
        first, second = self._op_root[one], self._op_root[other]
        if first == second or self._kinds[one] != self._kinds[other]:
            return
        if first > second:
            first, second = second, first
        for member in self._op_members[second]:
            self._op_root[member] = first
        self._op_members[first] += self._op_members[second]
        roots, count = self._tensor_root, len(self._names)
        for here, there in ((self._inputs[one], self._inputs[other]), (self._outputs[one], self._outputs[other])):
            for left, right in zip(here, there, strict=False):
                if roots[left] != roots[right] and left < count and right < count:
                    self._tie_tensors(left, right)

    def _tie_tensors(self, one: int, other: int) -> None:
        first, second = self._tensor_root[one], self._tensor_root[other]
        if first == second or not self._may_be_copies(self._names[one], self._names[other]):
            return
        if first > second:
            first, second = second, first
        for member in self._tensor_members[second]:
            self._tensor_root[member] = first
        self._tensor_members[first] += self._tensor_members[second]
        self._todo[first] = None

    def _may_be_copies(self, one: str, other: str) -> bool:
        left, right = self._graph.tensors[one], self._graph.tensors[other]
        role = self._roles[one]
        return (
            role is self._roles[other]
            and role in (Role.DATA, Role.ACTIVATION)
            and (left.shape, left.dtype) == (right.shape, right.dtype)
        )

    def run(self) -> None:
        """Goes on until nothing more follows."""
        while self._todo:
            root = next(iter(self._todo))
            del self._todo[root]
            if self._tensor_root[root] != root:
                continue
            members = self._tensor_members[root]
            self._tie_producers(members)
            self._tie_readers(members)

    def _tie_producers(self, members: Sequence[int]) -> None:
        first: dict[tuple[int, int], int] = {}
        roots = self._op_root
        for member in members:
            if member in self._producer:
                number, position = self._producer[member]
                other = first.setdefault((self._kinds[number], position), number)
                if roots[other] != roots[number]:
                    self.tie_ops(other, number)

    def _tie_readers(self, members: Sequence[int]) -> None:
        """Ties readers that are the only one of their kind at each member, and readers whose other inputs are tied."""
        alone: dict[tuple[int, int], int] = {}
        several: set[tuple[int, int]] = set()
        same: dict[tuple[int, ...], int] = {}
        kinds, roots, tensor_roots = self._kinds, self._op_root, self._tensor_root
        readers = [[(number, (kinds[number], slot)) for number, slot in self._readers[member]] for member in members]
        for here in readers:
            hows = [how for _, how in here]
            if len(set(hows)) < len(hows):
                several.update(how for how, times in Counter(hows).items() if times > 1)
        for here in readers:
            for number, how in here:
                if how not in several:
                    other = alone.setdefault(how, number)
                    if roots[other] != roots[number]:
                        self.tie_ops(other, number)
                # Ops of one kind whose inputs are, position by position, the same or copies.
                signature = (kinds[number], *[tensor_roots[tensor] for tensor in self._inputs[number]])
                other = same.setdefault(signature, number)
                if roots[other] != roots[number]:
                    self.tie_ops(other, number)

    def tied_tensors(self) -> dict[str, str]:
        """By tensor its first copy, where it has others."""
        return {
            name: self._names[root]
            for name, root in zip(self._names, self._tensor_root, strict=False)
            if len(self._tensor_members[root]) > 1
        }

    def tied_ops(self) -> dict[str, str]:
        """By op its first copy, where it has others."""
        return {
            bound.op.name: self._ops[root].op.name
            for bound, root in zip(self._ops, self._op_root, strict=True)
            if len(self._op_members[root]) > 1
        }
