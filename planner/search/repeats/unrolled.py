"""Copies of one step: parts of a graph that are repeated with the same weights, as an unrolled recurrent network is.

The copies of an op or tensor share a search variable (Tofu, section 5.1, coalesces time steps in the same way). Left
apart, all steps and their gradients would be open at the same time, and no order of elimination could be found.

Only what the weights prove to be repeated is tied: ops that read the same state in the same place, and what follows
from there, tensor by tensor and op by op. Steps share all their weights, and each hands on to the next. Ops that read
weights of their own are never tied. Where one of two such ops needs what the other has made, they are no steps but
layers, which share some other weight, such as that of their norms, and nothing is tied; nor are parts of a network that
have the same weights and lie one beside the other, but for the micro-batches of a step. An activation is never tied to
its gradient. The first and the last step, which begin and end otherwise, may stay apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from planner.graph.compare.repeats import numbered
from planner.graph.core.model import Graph, Role
from planner.graph.core.notes import MICRO_BATCHES, without_micro_batch
from planner.graph.step.deliveries import is_delivery
from planner.search.effort import FEWEST_COPIES
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Copies:
    """The tensors and ops that are copies of one another."""

    tensors: Mapping[str, str]
    """The first copy of each tensor; without those that have none."""
    ops: Mapping[str, str]
    """The first copy of each op; without those that have none."""


def find_copies(graph: Graph, ops: Sequence[BoundOp]) -> Copies:
    """Finds the repeated parts of a graph.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
    """
    weights = _weights(graph, ops)
    batches, seeds = _batches(graph, ops), _seeds(graph, ops, weights)
    if not (batches or seeds):
        return Copies({}, {})
    closure = _Closure(graph, ops, weights)
    for place, numbers in enumerate([*batches, *seeds]):
        if not closure.are_tied(numbers):
            larger = closure.with_tied(numbers)
            tied = [seed for seed in seeds if larger.are_tied(seed) and not closure.are_tied(seed)]
            if not larger.is_contradicted and (place < len(batches) or any(map(larger.are_handed_on, tied))):
                closure = larger
    return Copies(closure.tied_tensors(), closure.tied_ops())


def is_unrolled(graph: Graph, ops: Sequence[BoundOp]) -> bool:
    """True if ops that are alike read the same weight in the same place, as the steps of one layer do.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
    """
    return bool(_seeds(graph, ops, _weights(graph, ops)))


def _weights(graph: Graph, ops: Sequence[BoundOp]) -> dict[str, str]:
    """The weight that each tensor is, named by the first tensor equal to it: a state, a constant matrix of floats, what
    is made of these alone (a transposed one, one gate's part), or one of these as it is delivered. A scalar is none.
    """
    tensors, constants = graph.tensors, graph.constants
    weights = {pair.current: pair.current for pair in graph.state if tensors[pair.current].shape}
    weights.update({name: name for name in constants if len(tensors[name].shape) > 1 and tensors[name].dtype.is_float})
    first: dict[object, str] = {}
    for op in ops:
        read = [name for name in op.op.inputs if name and (name in weights or name not in constants)]
        if read and weights.keys() >= set(read):
            key = (_kind(op), *[weights.get(name) for name in op.op.inputs])
            for position, name in enumerate(op.op.outputs):
                if name and tensors[name].shape:
                    weights[name] = weights[read[0]] if is_delivery(op.op) else first.setdefault((key, position), name)
    return weights


def _seeds(graph: Graph, ops: Sequence[BoundOp], weights: Mapping[str, str]) -> list[list[int]]:
    """The ops, by number, that read the same weight in the same place: what the weights prove to be copies."""
    delivered: set[str] = set()
    readers: dict[tuple[str, int, Hashable], list[int]] = {}
    for number, op in enumerate(ops):
        if is_delivery(op.op):  # all steps read a weight as it is delivered
            delivered.update(op.op.outputs)
        for slot, name in enumerate(op.op.inputs):
            if name in weights and name not in graph.constants:
                weight = name if name in delivered else weights[name]
                readers.setdefault((weight, slot, _kind(op)), []).append(number)
    return [numbers for numbers in readers.values() if len(numbers) >= FEWEST_COPIES]


def _batches(graph: Graph, ops: Sequence[BoundOp]) -> list[list[int]]:
    """The ops, by number, that are the same of several micro-batches."""
    batches: dict[tuple[str, Hashable], list[int]] = {}
    for number, op in enumerate(ops if MICRO_BATCHES in graph.notes else ()):
        batches.setdefault((without_micro_batch(op.op.name), _kind(op)), []).append(number)
    return [numbers for numbers in batches.values() if len(numbers) > 1]


def _kind(op: BoundOp) -> Hashable:
    return (op.op.op_type, op.op.domain, op.op.attributes, op.content)


class _Closure:
    """The closure of copies: ops and tensors that must be copies because others are.

    Attributes:
        is_contradicted: layers would have been tied that have weights of their own.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp], weights: Mapping[str, str]) -> None:
        self._graph = graph
        self._ops = ops
        self._roles = graph.roles
        self.is_contradicted = False
        self._kinds = numbered(map(_kind, ops))
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
        self._inputs = [[self._number[name] for name in op.op.inputs] for op in ops]
        self._outputs = [[self._number[name] for name in op.op.outputs] for op in ops]
        self._weight = {self._number[name]: weight for name, weight in weights.items()}
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

    def with_tied(self, numbers: Sequence[int]) -> _Closure:
        """This closure with these ops tied, too, and all that follows; not to the end where it is contradicted."""
        closure = copy(self)
        closure._op_root, closure._tensor_root = [*self._op_root], [*self._tensor_root]
        closure._op_members = [[*members] for members in self._op_members]
        closure._tensor_members = [[*members] for members in self._tensor_members]
        closure._todo = {}
        for number in numbers[1:]:
            closure._tie_ops(numbers[0], number)
        closure._run()
        return closure

    def are_tied(self, numbers: Sequence[int]) -> bool:
        """True if these ops are copies of one another."""
        return len({self._op_root[number] for number in numbers}) == 1

    def _have_own_weights(self, op: int, peer: int) -> bool:
        """True if two ops read weights, in the same place, that are not the same."""
        constants = self._graph.constants
        for tensor, peer_tensor in zip(self._inputs[op], self._inputs[peer], strict=False):
            first, second = self._weight.get(tensor), self._weight.get(peer_tensor)
            if first is None or second is None or first == second:
                continue
            values = constants.get(first), constants.get(second)
            if values[0] is None or values[1] is None or not np.array_equal(values[0], values[1]):
                return True
        return False

    def are_handed_on(self, numbers: Sequence[int]) -> bool:
        """True if one of these ops needs what another one has made."""
        first, waiting, seen = min(numbers), list(numbers), set[int]()
        while waiting:
            for tensor in self._inputs[waiting.pop()]:
                maker, _ = self._producer.get(tensor, (-1, 0))
                if maker in numbers:
                    return True
                if maker > first and maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
        return False

    def _tie_ops(self, op: int, peer: int) -> None:
        """Ties two ops, and their inputs and outputs position by position."""
        first, second = self._op_root[op], self._op_root[peer]
        if first == second or self._kinds[op] != self._kinds[peer]:
            return
        if self._have_own_weights(op, peer):
            self.is_contradicted |= self.are_handed_on((op, peer))
            return
        if first > second:
            first, second = second, first
        for member in self._op_members[second]:
            self._op_root[member] = first
        self._op_members[first] += self._op_members[second]
        roots, count = self._tensor_root, len(self._names)
        for ports, peer_ports in ((self._inputs[op], self._inputs[peer]), (self._outputs[op], self._outputs[peer])):
            for tensor, peer_tensor in zip(ports, peer_ports, strict=False):
                if roots[tensor] != roots[peer_tensor] and tensor < count and peer_tensor < count:
                    self._tie_tensors(tensor, peer_tensor)

    def _tie_tensors(self, tensor: int, peer: int) -> None:
        first, second = self._tensor_root[tensor], self._tensor_root[peer]
        if first == second or not self._may_be_copies(self._names[tensor], self._names[peer]):
            return
        if first > second:
            first, second = second, first
        for member in self._tensor_members[second]:
            self._tensor_root[member] = first
        self._tensor_members[first] += self._tensor_members[second]
        self._todo[first] = None

    def _may_be_copies(self, name: str, peer: str) -> bool:
        tensor, peer_tensor = self._graph.tensors[name], self._graph.tensors[peer]
        role = self._roles[name]
        return role is self._roles[peer] and role in (Role.DATA, Role.ACTIVATION) and tensor.kind == peer_tensor.kind

    def _run(self) -> None:
        """Goes on until nothing more follows."""
        while self._todo and not self.is_contradicted:
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
                peer = first.setdefault((self._kinds[number], position), number)
                if roots[peer] != roots[number]:
                    self._tie_ops(peer, number)

    def _tie_readers(self, members: Sequence[int]) -> None:
        """Ties readers that are the only one of their kind at each member, and readers whose other inputs are tied."""
        alone: dict[tuple[int, int], int] = {}
        several: set[tuple[int, int]] = set()
        by_signature: dict[tuple[int, ...], int] = {}
        kinds, roots, tensor_roots = self._kinds, self._op_root, self._tensor_root
        readers = [[(number, (kinds[number], slot)) for number, slot in self._readers[member]] for member in members]
        for group in readers:
            keys = [how for _, how in group]
            if len(set(keys)) < len(keys):
                several.update(how for how, times in Counter(keys).items() if times > 1)
        for group in readers:
            for number, how in group:
                if how not in several:
                    peer = alone.setdefault(how, number)
                    if roots[peer] != roots[number]:
                        self._tie_ops(peer, number)
                # Ops of one kind whose inputs are, position by position, the same or copies.
                signature = (kinds[number], *[tensor_roots[tensor] for tensor in self._inputs[number]])
                peer = by_signature.setdefault(signature, number)
                if roots[peer] != roots[number]:
                    self._tie_ops(peer, number)

    def tied_tensors(self) -> dict[str, str]:
        """The first copy of each tensor that has others."""
        return {
            name: self._names[root]
            for name, root in zip(self._names, self._tensor_root, strict=False)
            if len(self._tensor_members[root]) > 1
        }

    def tied_ops(self) -> dict[str, str]:
        """The first copy of each op that has others."""
        return {
            op.op.name: self._ops[root].op.name
            for op, root in zip(self._ops, self._op_root, strict=True)
            if len(self._op_members[root]) > 1
        }
