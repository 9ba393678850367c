"""Activations that are computed again for the backward pass, and not kept for it.

An activation that the backward pass reads is in memory from where it is made to where it is read. Computed again right
before that, from what is kept, it takes memory twice for a short time. A copy of its op does so, which is an op like
any other: it is planned, what it reads moves again, and its work counts.

What is copied is what the graph computes, op by op: a random operator is a function of an element's index by then
(``planner.graph.decompositions.randomness``), so that its copy draws the same numbers, and a graph inside of an op (If,
Loop, Scan) is copied with the op. A copy makes the same bits where it is cut as its original is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from planner.graph.core.model import Graph, Op, Role, Tensor
from planner.graph.step.copies import AGAIN
from planner.graph.step.passes import Passes, passes_of


@dataclass(frozen=True)
class Activations:
    """The activations of a training step: tensors of the forward pass that are no results."""

    graph: Graph
    """A training step; random operators are lowered."""

    @cached_property
    def all(self) -> dict[str, Op]:
        """The op that makes each activation of the forward pass, in the graph's order.

        Raises:
            UsageError: the graph has no backward pass (``planner.graph.step.passes``).
        """
        forward, roles = self._passes.forward, self.graph.roles
        return {
            name: op
            for op in self.graph.ops
            if op.name in forward
            for name in op.outputs
            if name and roles[name] is Role.ACTIVATION
        }

    @cached_property
    def held(self) -> tuple[str, ...]:
        """Activations that ops of the backward pass read, in the graph's order: held for it, or computed again."""
        consumers, backward = self.graph.consumers, self._passes.backward
        return tuple(name for name in self.all if any(op.name in backward for op in consumers[name]))

    @property
    def backward(self) -> frozenset[str]:
        """Names of the ops of the backward pass."""
        return self._passes.backward

    @cached_property
    def _passes(self) -> Passes:
        return passes_of(self.graph)

    def closed(self, tensors: Collection[str]) -> frozenset[str]:
        """Some activations, and those that nothing else is computed from: what lies on the way to them.

        An activation that the backward pass does not read is not held. Kept for a copy, it would take the room that the
        copy saves. So it is computed again itself, where all that reads it is computed again; what others read, too,
        such as the sum that goes on to the next block, is kept.

        Example: of ``s = q k``, ``t = s / 8``, ``p = Softmax(t)``, where the backward pass reads ``q``, ``k`` and
        ``p``, the set ``{p}`` becomes ``{s, t, p}``.

        Args:
            tensors: activations of the forward pass.
        """
        held, closure = frozenset(self.held), set(tensors)
        copied_ops = {self.all[name].name for name in tensors}
        for name, op in reversed(self.all.items()):
            readers = self.graph.consumers[name]
            if name not in held and readers and all(reader.name in copied_ops for reader in readers):
                closure.add(name)
                copied_ops.add(op.name)
        return frozenset(closure)

    def copied(self, tensors: Collection[str]) -> tuple[str, ...]:
        """The activations among these of which there are copies if they are computed again: what is read of them.

        Args:
            tensors: activations of the forward pass.

        Returns:
            Their names, in the graph's order.
        """
        held, copies, makers = frozenset(self.held), set[str](), set[str]()
        for name, op in reversed(self.all.items()):
            read = name in held or any(reader.name in makers for reader in self.graph.consumers[name])
            if name in tensors and read:
                copies.add(name)
                makers.add(op.name)
        return tuple(name for name in self.all if name in copies)

    def kept(self, copied: Collection[str]) -> tuple[str, ...]:
        """The activations that are kept where some are computed again: others that the backward pass or a copy reads.

        Args:
            copied: activations of which there are copies.

        Returns:
            Their names, in the graph's order.
        """
        read = set(self.held).union(*(self.all[name].inputs for name in copied)).difference(copied)
        return tuple(name for name in self.all if name in read)


def recomputable(graph: Graph) -> tuple[str, ...]:
    """The activations that may be computed again: made by the forward pass and read by the backward pass.

    Inputs, states, constants and outputs are none: they are there all the time.

    Args:
        graph: a training step.

    Returns:
        Their names, in the order in which they are made.

    Raises:
        UsageError: the graph has no backward pass (``planner.graph.step.passes``).
    """
    return Activations(graph).held


def recomputed(graph: Graph, tensors: Collection[str]) -> Graph:
    """The graph in which the backward pass reads some activations from copies, which are computed again.

    The set is taken as it is. A copy is made by a copy of the op that makes the tensor; that reads copies of its
    operands that are in the set, and all other operands as they are, which so are kept (``Activations.closed`` says
    what is between). One copy of a tensor serves all ops of the backward pass that read it. The copies stand right
    before the first op that reads them. What neither an op of the backward pass nor a copy reads has no copy.

    A copy is named after its tensor, and the op that makes it after its op: ``h.0.relu.again``; with a number where the
    graph has such names. ``originals`` tells of which tensor each is a copy.

    Example: for ``{p}``, of ``p = Softmax(t)`` and ``dt = SoftmaxGrad(p, dp)``: ``p = Softmax(t)`` …
    ``p.again = Softmax(t)``, ``dt = SoftmaxGrad(p.again, dp)``.

    Args:
        graph: is left as it is; that itself is returned if nothing is to be computed again.
        tensors: activations of the forward pass.

    Raises:
        UsageError: the graph has no backward pass (``planner.graph.step.passes``).
    """
    if not tensors:
        return graph
    return _Rewriting(Activations(graph), frozenset(tensors)).run()


def originals(graph: Graph, rewritten: Graph) -> dict[str, str]:
    """The original of each tensor and op of a rewritten graph (``recomputed``) that is a copy.

    Args:
        graph: as it was.
        rewritten: that graph with copies.
    """
    suffix = _suffix(graph)
    old_names = {*graph.tensors, *(op.name for op in graph.ops)}
    names = (*rewritten.tensors, *(op.name for op in rewritten.ops))
    return {name: name.removesuffix(suffix) for name in names if name not in old_names}


def computed_before(copies: Mapping[str, str], name: str) -> str | None:
    """The op that has computed what an op computes again; None of an op that is no copy.

    Of a copy that is planned through its body, ops are copies of the ops of its original's body.

    Args:
        copies: of the graph (``Graph.copies``).
        name: of the op.
    """
    if not copies:
        return None
    ends = (*(at for at, character in enumerate(name) if character == "/"), len(name))
    owner = next((name[:end] for end in ends if name[:end] in copies), None)
    return None if owner is None else copies[owner] + name.removeprefix(owner)


class _Rewriting:
    """The ops of a graph in order, with copies before those that read them."""

    def __init__(self, activations: Activations, tensors: frozenset[str]) -> None:
        unknown = tensors - activations.all.keys()
        assert not unknown, f"no activations of the forward pass: {sorted(unknown)}"
        self._graph, self._tensors, self._activations = activations.graph, tensors, activations
        self._suffix = _suffix(activations.graph)
        self._copied: set[str] = set()
        """Names of ops of which there is a copy."""
        self._duplicates: dict[str, Tensor] = {}

    def run(self) -> Graph:
        backward = self._activations.backward
        ops: list[Op] = []
        for op in self._graph.ops:
            if op.name in backward and not self._tensors.isdisjoint(op.inputs):
                ops.extend(self._copies(op))
                op = self._reading(op)
            ops.append(op)
        copies = {name + self._suffix: name for name in sorted(self._copied)}
        return replace(self._graph, ops=tuple(ops), tensors={**self._graph.tensors, **self._duplicates}, copies=copies)

    def _copies(self, reader: Op) -> Iterator[Op]:
        """The copies that an op needs and that are not there yet, each before those that read it."""
        waiting = [(reader, iter(reader.inputs))]
        while waiting:
            op, operands = waiting[-1]
            makers = (self._activations.all[name] for name in operands if name in self._tensors)
            maker = next((source for source in makers if source.name not in self._copied), None)
            if maker is not None:
                self._copied.add(maker.name)
                waiting.append((maker, iter(maker.inputs)))
                continue
            waiting.pop()
            if op is not reader:
                yield self._copy(op)

    def _copy(self, op: Op) -> Op:
        outputs = tuple(name and name + self._suffix for name in op.outputs)
        for name, copy in zip(op.outputs, outputs, strict=True):
            if name:
                self._duplicates[copy] = replace(self._graph.tensors[name], name=copy)
        return replace(self._reading(op), name=op.name + self._suffix, outputs=outputs)

    def _reading(self, op: Op) -> Op:
        """An op that reads copies where there are."""
        return replace(op, inputs=tuple(name + self._suffix if name in self._tensors else name for name in op.inputs))


def _suffix(graph: Graph) -> str:
    """What the names of copies end with, and no name of the graph does."""
    names = (*graph.tensors, *(op.name for op in graph.ops))
    suffix, number = AGAIN, 2
    while any(name.endswith(suffix) for name in names):
        suffix, number = f"{AGAIN}{number}", number + 1
    return suffix
