"""Node and edge elimination (ICML'18, section 5.2): the least sum over a graph of layers and the edges between them.

A layer with one edge in and one out is replaced by an edge between its neighbours (equation 2), and two edges between
the same layers by their sum (equation 3), until nothing of the kind is left; the strategies of the layers that remain
are enumerated (Algorithm 1, line 14), and the eliminations undone. Networks of the paper leave 2 layers. Neither
equation looks at which way an edge points, so here a layer with two edges goes, whichever way they point, and so does
one with a single edge, which equation 2 covers with one term less.

Time is O(E C^3 + C^K) for E edges, C configurations of a layer and K layers that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import InfeasibleError
from planner.search.effort import LAYER_STRATEGIES

Costs: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Best:
    """The best strategy."""

    configurations: tuple[int, ...]
    """The configurations of each layer."""
    total: int
    core_layers: int
    """Layers that neither elimination could remove: K in the paper's Table 2."""


def least(layers: Sequence[Costs], edges: Mapping[tuple[int, int], Costs]) -> Best:
    """Finds the configuration of every layer with the least sum of costs.

    Args:
        layers: for each one what it costs by configuration.
        edges: by two different layers what is between them, [configurations of the first, of the second].

    Raises:
        InfeasibleError: the layers that are left have too many strategies to be enumerated.
    """
    graph = _Graph(list(layers))
    for (first, second), costs in edges.items():
        graph.add_edge(first, second, costs)
    graph.eliminate()
    chosen, total = graph.enumerated()
    core_layers = len(chosen)
    graph.undo(chosen)
    return Best(tuple(chosen[layer] for layer in range(len(layers))), total, core_layers)


@dataclass(slots=True)
class _Graph:
    """The rest of the graph, and the eliminations so far."""

    costs: list[Costs]
    edges: list[dict[int, Costs]] = field(init=False)
    """The costs of each layer and neighbour, [configurations of the layer, of the neighbour]; each edge from both its
    ends.
    """
    gone: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = field(default_factory=list)
    """Layers in the order in which they went, their neighbours then, and their best by those' configurations."""
    constant: int = 0

    def __post_init__(self) -> None:
        self.edges = [{} for _ in self.costs]

    def add_edge(self, first: int, second: int, costs: Costs) -> None:
        """Adds an edge; an edge that is there already is eliminated with it (equation 3)."""
        assert first != second, "an edge joins two layers"
        existing = self.edges[first].get(second)
        self.edges[first][second] = costs if existing is None else existing + costs
        self.edges[second][first] = self.edges[first][second].T

    def eliminate(self) -> None:
        """Eliminates nodes until all that are left have three neighbours or more."""
        ready = [layer for layer, near in enumerate(self.edges) if len(near) <= 2]
        done: set[int] = set()
        while ready:
            layer = ready.pop()
            if layer in done:
                continue
            done.add(layer)
            near = tuple(sorted(self.edges[layer]))
            self._eliminate_node(layer, near)
            ready.extend(neighbour for neighbour in near if len(self.edges[neighbour]) <= 2)

    def _eliminate_node(self, layer: int, near: tuple[int, ...]) -> None:
        layer_costs, edges = self.costs[layer], self.edges[layer]
        for neighbour in near:
            del self.edges[neighbour][layer]
        if not near:
            self.gone.append((layer, near, np.array(layer_costs.argmin())))
            self.constant += int(layer_costs.min())
        elif len(near) == 1:
            costs = layer_costs[:, None] + edges[near[0]]
            self.gone.append((layer, near, costs.argmin(axis=0)))
            self.costs[near[0]] = self.costs[near[0]] + costs.min(axis=0)
        else:
            first, second = edges[near[0]] + layer_costs[:, None], edges[near[1]]
            shape = first.shape[1], second.shape[1]
            best, where = np.full(shape, np.iinfo(np.int64).max), np.zeros(shape, dtype=np.intp)
            for value in range(len(layer_costs)):
                costs = first[value][:, None] + second[value][None]
                better = costs < best
                best[better], where[better] = costs[better], value
            self.gone.append((layer, near, where))
            self.add_edge(near[0], near[1], best)

    def enumerated(self) -> tuple[dict[int, int], int]:
        """The best configurations of the layers that are left, by enumeration; and what all layers cost then."""
        gone = {layer for layer, _, _ in self.gone}
        core = [layer for layer in range(len(self.costs)) if layer not in gone]
        if not core:
            return {}, self.constant
        strategies = sum(log10(len(self.costs[layer])) for layer in core)
        if strategies > log10(LAYER_STRATEGIES):
            raise InfeasibleError(
                f"node and edge elimination leaves {len(core)} layers with 10^{strategies:.0f} strategies to enumerate",
                hint="ICML'18's search is for networks that are nearly a chain, as convolutional ones are",
            )
        axis = {layer: number for number, layer in enumerate(core)}
        total = np.zeros([len(self.costs[layer]) for layer in core], dtype=np.int64)
        for layer in core:
            total += _along(self.costs[layer], (axis[layer],), len(core))
            for neighbour, costs in self.edges[layer].items():
                if neighbour > layer:
                    total += _along(costs, (axis[layer], axis[neighbour]), len(core))
        best = np.unravel_index(int(total.argmin()), total.shape)
        return {layer: int(value) for layer, value in zip(core, best, strict=True)}, self.constant + int(total.min())

    def undo(self, chosen: dict[int, int]) -> None:
        """Gives the eliminated layers their best configurations, in reverse (Algorithm 1, lines 15 to 23)."""
        for layer, near, best in reversed(self.gone):
            chosen[layer] = int(best[tuple(chosen[neighbour] for neighbour in near)])


def _along(costs: Costs, axes: tuple[int, ...], rank: int) -> Costs:
    """A table with the axes of the enumeration; ascending ones."""
    shape = [1] * rank
    for axis, size in zip(axes, costs.shape, strict=True):
        shape[axis] = size
    return costs.reshape(shape)
