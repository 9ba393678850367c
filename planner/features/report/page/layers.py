"""The cost of a step by layer: computing by pass, and communication; equal layers in one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from planner.cost.seconds.estimate import synchronised
from planner.cost.seconds.simulated import Schedule
from planner.cost.tables import CostTables
from planner.graph.compare.modules import modules
from planner.graph.core.model import Graph
from planner.graph.core.patterns import without_numbers
from planner.graph.step.purposes import passes_in
from planner.tdl.bind import BoundOp

PARTS: Final = ("forward", "backward", "update", "communication")
Amounts: TypeAlias = tuple[float, ...]
"""By part, in the order of ``PARTS``: seconds; in bytes of communication where the plan has no schedule."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Neighbouring layers of equal cost."""

    names: tuple[str, ...]
    each: Amounts
    """The mean of these layers."""

    @property
    def total(self) -> float:
        return len(self.names) * sum(self.each)


def passes_of_ops(graph: Graph, ops: Sequence[BoundOp]) -> dict[str, str]:
    """The part of a step that each op is in: forward (with running statistics), backward or update."""
    backward, update = passes_in(graph).backward, synchronised(graph, ops)
    return {
        op.name: "forward" if op.name not in backward else "backward" if update.isdisjoint(op.outputs) else "update"
        for op in graph.ops
    }


def layers(
    graph: Graph,
    ops: Sequence[BoundOp],
    tables: CostTables,
    tensor_bytes: Mapping[str, int],
    schedule: Schedule | None,
) -> tuple[Layers, ...]:
    """The layers of a graph in its order; their amounts add up to the estimate.

    Args:
        graph: of a plan.
        ops: of the graph.
        tables: by whose rates work is worth bytes; for plans without a schedule.
        tensor_bytes: the bytes that move of each tensor; likewise.
        schedule: of the plan.
    """
    module_of, pass_of = modules(graph), passes_of_ops(graph, ops)
    names = frozenset(filter(None, module_of.values()))
    by_layer: dict[str, list[float]] = {}

    def add(tensor: str, part: str, amount: float) -> None:
        layer = next((name for name in _around(module_of[tensor]) if name in names), "no layer")
        by_layer.setdefault(layer, [0.0] * len(PARTS))[PARTS.index(part)] += amount

    for bound in ops:
        seconds = None if schedule is None else float(schedule.parts.op_seconds[bound.op.name].max())
        outputs = next(filter(None, bound.op.outputs))
        add(outputs, pass_of[bound.op.name], tables.computing(bound) if seconds is None else seconds)
    moved: Iterator[tuple[str, float]] = (
        iter(tensor_bytes.items())
        if schedule is None
        else ((exchange.tensor, time.seconds) for exchange, time in schedule.parts.exchanges)
    )
    for tensor, amount in moved:
        add(tensor, "communication", amount)
    return tuple(_folded(by_layer))


def _around(module: str) -> Iterator[str]:
    """The modules around a module, the outermost first, and itself."""
    words = module.split(".")
    return (".".join(words[:count]) for count in range(1, len(words) + 1))


def _folded(by_layer: Mapping[str, Sequence[float]]) -> Iterator[Layers]:
    """Neighbours with one pattern of names, whose amounts agree in two digits."""
    kinds = ((without_numbers(name), tuple(f"{amount:.2g}" for amount in each)) for name, each in by_layer.items())
    rows = zip(kinds, by_layer.items(), strict=True)
    for _, group in groupby(rows, key=lambda row: row[0]):
        members = [member for _, member in group]
        means = tuple(sum(column) / len(members) for column in zip(*(each for _, each in members), strict=True))
        yield Layers(tuple(name for name, _ in members), means)
