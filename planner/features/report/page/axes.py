"""Names of dims and index variables for people: the batch, heads, the sequence, the vocabulary, or a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from planner.algebra.tiling import Partial, Replicate, Shard, Tiling
from planner.artifacts.plan import OpStrategy
from planner.errors import ModelError
from planner.graph.core.model import Graph, Role
from planner.search.model.dims import Place, find_directions
from planner.search.moves.megatron import head_places
from planner.search.moves.restrictions import batch
from planner.tdl.bind import BoundOp


class Axes:
    """The axes of a graph by name; a role of a dim is followed through the ops' index maps.

    Args:
        graph: of a plan.
        ops: of the graph.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp]) -> None:
        directions = find_directions(graph, ops)
        data = [name for name in graph.inputs if graph.roles[name] is Role.DATA]
        tables = [op.inputs[0] for op in graph.ops_of("Gather") if graph.roles[op.inputs[0]] is Role.STATE]
        starts: dict[str, list[Place]] = {
            "vocabulary": [("tensor", name, 0) for name in tables],
            "sequence": [("tensor", name, 1) for name in data if len(graph.tensors[name].shape) == 2],
            "channels": [("tensor", op.outputs[0], 1) for op in graph.ops_of("Conv")],
            "heads": list(head_places(graph, ops, directions)),
        }
        self._names = {place: axis for axis, places in starts.items() for place in directions.reachable(places)}
        with suppress(ModelError):  # no data, no batch
            self._names |= dict.fromkeys(batch(graph, directions), "batch")
        self._sums = {bound.op.name: bound.analysis.reduction_variables for bound in ops}

    def tiling(self, tensor: str, tiling: Tiling) -> str:
        """A tiling by axis: ``batch/4, ×2`` for ``S(0)/2 R/2 S(0)/2``; the order of the cuts is not in it."""
        return _text(tiling, lambda dim: self._names.get(("tensor", tensor, dim), f"dim {dim}"))

    def strategy(self, op: str, strategy: OpStrategy) -> str:
        """A strategy by axis: ``batch/4, sum over k/2`` for ``m/2 k/2 m/2``."""

        def axis(number: int) -> str:
            name = self._names.get(("op", op, number), strategy.variables[number])
            return f"sum over {name}" if strategy.variables[number] in self._sums[op] else name

        steps = strategy.steps
        in_steps = "" if steps is None else f" in {steps.count} steps along {axis(steps.variable)}"
        return _text(strategy.tiling, axis) + in_steps


def _text(tiling: Tiling, axis: Callable[[int], str]) -> str:
    ways_by_axis: dict[str, int] = {}
    for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
        name = axis(placement.dim) if isinstance(placement, Shard) else str(placement)
        ways_by_axis[name] = ways_by_axis.get(name, 1) * ways
    signs = {str(Replicate()): "×", str(Partial()): "Σ"}
    return ", ".join(f"{signs.get(name, name + '/')}{ways}" for name, ways in ways_by_axis.items())
