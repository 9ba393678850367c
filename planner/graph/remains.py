"""What the pairs of a flat step leave over: inputs and outputs that may be states, and pairs that may be others'.

Nothing is lost in silence: an output that is no known result and an input of its shape and dtype are named together,
and so is a pair that rests on the form of its update where something of its shape and dtype is left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.graph.dependence import computed_from, leading_to
from planner.graph.leftover import kept_inputs, roots_of
from planner.graph.model import DType, Graph, Shape
from planner.graph.update_forms import Term, every_term


@dataclass(frozen=True, slots=True)
class Inferred:
    """A state that was inferred, and why."""

    current: str
    following: str
    evidence: tuple[str, ...]
    """What speaks for the pair: ``name``, ``shape``, ``dataflow``; ``position`` (it alone breaks a tie); ``rest``
    (nothing else of its shape and dtype is left); ``rival`` (others may be meant). The last three are said to the
    user."""
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


class Remains:
    """What is left of a step's inputs and outputs while they are paired.

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

    def guesses(self, is_step: bool = False) -> tuple[tuple[str, str], ...]:
        """Pairs in which each input and output occurs that may be a state, the likeliest first."""
        likely: dict[tuple[str, str], tuple[bool, ...]] = {}
        for name in (name for name in self.step.terms if name not in self._settled):
            currents = [current for current in self.alike(name) if not self._is_result(name, current)]
            terms = every_term(self.graph, name, self.step.positions) if currents else {}
            strong = {current for current, term in terms.items() if term.is_strong}
            groups = (strong, kept_inputs(self.graph, name), self._sources(name)) if currents else ()
            likely |= {(current, name): tuple(current in group for group in groups) for current in currents}
        # Of a graph whose outputs are gradients each has the shape of its parameter, and none reads it as a state.
        if not (is_step or self._settled or (self.step.gradients and any(any(marks[:2]) for marks in likely.values()))):
            return ()
        pairs: list[tuple[str, str]] = []
        for unmet in (2, 1):
            for pair in sorted(likely, key=lambda pair: likely[pair], reverse=True):
                if len({*pair}.difference(*pairs)) >= unmet:
                    pairs.append(pair)
        return tuple(pairs)

    def doubtful(self) -> list[str]:
        """Next states by their form that may be others', for something of their shape and dtype is left over."""
        spares = {name for pair in self.guesses() for name in pair}
        loose = set(spares)
        for pair in self._settled.values():
            if "rest" in pair.evidence:
                loose.update((pair.current, pair.following))
                spares.update(() if pair.current in self._sources(pair.following) else (pair.following,))
        return [
            name
            for name, pair in self._settled.items()
            if {"name", "position", "rest"}.isdisjoint(pair.evidence) and self._may_be_another(pair, loose, spares)
        ]

    def _may_be_another(self, pair: Inferred, loose: set[str], spares: set[str]) -> bool:
        graph, positions, output = self.graph, self.step.positions, pair.following
        kin = {name for name in loose if graph.tensors[name].kind == graph.tensors[output].kind}
        inputs = {*self.alike(output), *kin.intersection(graph.inputs)}
        outputs = kin.difference(inputs)
        if not inputs:
            return False
        direct = every_term(graph, output, positions, self.peers(output))
        term = direct.get(pair.current)
        is_kept = term is not None and term.is_strong and not (term.is_private and (outputs & spares or term.is_whole))
        is_pure = leading_to(graph, [output]).intersection(graph.inputs) == {pair.current}
        rivals = {name for name in inputs & self._sources(output) if name not in direct or not direct[name].is_negative}
        claims = [every_term(graph, name, positions).get(pair.current) for name in outputs]
        return (
            not (is_kept or is_pure)
            or pair.current in roots_of(graph, [output])
            or bool(outputs and rivals)
            or any(claim is not None and (claim.is_strong or claim.is_weak) for claim in claims)
        )

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
