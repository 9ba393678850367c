"""Remains of a flat step after its pairs: inputs and outputs that may be states, and pairs that may be others'.

Nothing is lost in silence: an output that is no known result and an input of its shape and dtype are named together,
and so is a pair that rests on the form of its update where something of its shape and dtype is left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.graph.core.dependence import computed_from, leading_to, sources
from planner.graph.core.model import DType, Graph, Shape
from planner.graph.step.update_forms import Term, every_term


@dataclass(frozen=True, slots=True)
class Inferred:
    """A state that was inferred, and why."""

    current: str
    following: str
    evidence: tuple[str, ...]
    """What speaks for the pair: ``name``, ``shape``, ``dataflow``; ``rival``: others may be meant, and the user is
    warned."""
    why: str
    """The same in words."""


@dataclass(frozen=True, slots=True)
class FlatStep:
    """A flat step, and what is known of it before anything is paired."""

    graph: Graph
    terms: Mapping[str, Mapping[str, Term]]
    """By output, its candidates."""
    positions: Mapping[str, int]
    losses: frozenset[str]
    updated: frozenset[str]
    """The tensors that are computed from gradients."""
    gradients: frozenset[str]
    """The gradients themselves, and what comes back through products."""
    parameters: frozenset[str]
    """The inputs of products that have such gradients."""


class Remains:
    """The inputs and outputs of a step that are not paired yet.

    Args:
        step: the step.
        settled: the pairs so far, by output; looked at anew each time.
    """

    def __init__(self, step: FlatStep, settled: Mapping[str, Inferred]) -> None:
        self.step = step
        self.graph = step.graph
        self._settled = settled
        self._roots = {name: roots_of(step.graph, [name]) for name in step.terms}
        self._kin: dict[tuple[Shape, DType], list[str]] = {}
        for name in step.graph.inputs:
            self._kin.setdefault(step.graph.tensors[name].kind, []).append(name)

    def alike(self, output: str) -> tuple[str, ...]:
        """The inputs of an output's shape and dtype that no output has taken."""
        currents = {pair.current for pair in self._settled.values()}
        return tuple(name for name in self._kin.get(self.graph.tensors[output].kind, ()) if name not in currents)

    def peers(self, output: str) -> frozenset[str]:
        """The outputs beside one that may be next states, and what they are copies of."""
        names = [name for name, terms in self.step.terms.items() if (terms or name in self._settled) and name != output]
        return frozenset().union(*(self._roots[name] for name in names)) - self._roots[output]

    def updates(self) -> dict[str, tuple[str, ...]]:
        """The outputs that nothing pairs and that update a parameter, each with those that it may update.

        Such an output is computed from a gradient and reads a parameter of its shape and dtype otherwise, or is a copy
        of a next state in another dtype. A decayed gradient reads its weight with a small factor, and is none.
        """
        updates: dict[str, tuple[str, ...]] = {}
        for name in self._unpaired():
            alike = self.alike(name) if name in self.step.updated else ()
            terms = every_term(self.graph, name, self.step.positions) if alike else {}
            is_copy = not self._roots[name].isdisjoint(self._settled)
            read = self._sources(name) if alike else frozenset()
            inputs = tuple(
                current
                for current in alike
                if current in self.step.parameters
                if is_copy or (current in read and (current not in terms or not terms[current].is_little))
            )
            if inputs:
                updates[name] = inputs
        return updates

    def guesses(self) -> tuple[tuple[str, str], ...]:
        """Pairs in which each input and output occurs that may be a state, the likeliest first; () for no step."""
        if not (self._settled or self.updates()):
            return ()
        reads = {
            (current, name): current in self._sources(name)
            for name in self._unpaired()
            for current in self.alike(name)
            if not self._is_result(name, current)
        }
        pairs: list[tuple[str, str]] = []
        for unmet in (2, 1):
            for pair in sorted(reads, key=lambda pair: reads[pair], reverse=True):
                if len({*pair}.difference(*pairs)) >= unmet:
                    pairs.append(pair)
        return tuple(pairs)

    def doubtful(self) -> list[str]:
        """Next states by their form alone, where an input or output of their shape and dtype is left over.

        An input that is left over is no rival of one that is kept for the most part, unless it is read as well.
        """
        unpaired = [self.graph.tensors[name].kind for _, name in self.guesses()]
        return [
            name
            for name, pair in self._settled.items()
            if "name" not in pair.evidence
            if self.graph.tensors[name].kind in unpaired
            or not self._sources(name).isdisjoint(self.alike(name))
            or (self.alike(name) and not self.step.terms[name][pair.current].is_strong)
        ]

    def _unpaired(self) -> list[str]:
        return [name for name in self.step.terms if name not in self._settled]

    def _sources(self, name: str) -> frozenset[str]:
        """The inputs that an output is computed from, but through gradients and other next states."""
        return leading_to(self.graph, [name], self.peers(name) | self.step.gradients).intersection(self.graph.inputs)

    def _is_result(self, name: str, current: str) -> bool:
        """Whether an output is one number on which no more than its weights tell, and an input has no part in it."""
        if name not in self.step.losses - self.step.updated:
            return False
        weights = leading_to(self.graph, self.step.gradients).union(pair.current for pair in self._settled.values())
        if leading_to(self.graph, [name]).isdisjoint(weights):
            return False
        following, behind = (computed_from(self.graph, names) for names in (roots_of(self.graph, [name]), [current]))
        return not any(
            not following.isdisjoint(op.inputs) and not behind.isdisjoint(op.inputs) for op in self.graph.ops
        ) and current not in self._sources(name)


def roots_of(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Some tensors, and those of which they are copies, perhaps in another dtype."""
    return frozenset(root for name in names for root in sources(graph, name))
