"""Memory of a worker for one op of a plan, at once and in steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy, Steps
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph, is_used
from planner.partition.build import unplaced
from planner.planning.limit.in_steps import steps_of
from planner.results import OpMemory
from planner.search.decision import Decision
from planner.tdl.bind import BoundOp


def op_memory(
    graph: Graph, op: BoundOp, strategy: OpStrategy, tilings: Mapping[str, Tiling], tables: CostTables
) -> OpMemory:
    """Counts it by the programs of the op alone, wherever buffers lie.

    Args:
        graph: that the op is of.
        op: one that sums products.
        strategy: the plan's.
        tilings: the plan's, by tensor.
        tables: to count with.
    """
    tried = steps_of(graph, op, strategy.tiling, tilings) if strategy.steps is None else (strategy.steps,)
    alone = _alone(graph, op, tilings, strategy, tables)

    def peak_bytes(steps: Steps | None) -> int:
        plan = replace(alone, strategies={op.op.name: replace(strategy, steps=steps)})
        return max(unplaced(plan.graph, plan.ops, plan, lean=True).least_peaks)

    in_steps = [(peak_bytes(steps), steps.count, steps) for steps in dict.fromkeys(tried)]
    least = min(in_steps, key=lambda option: option[:2], default=None)
    return OpMemory(
        op.op.name,
        peak_bytes(None),
        None if least is None else least[0],
        "" if least is None else op.variables[least[2].variable].name,
        0 if least is None else least[1],
        strategy.steps is not None,
    )


def _alone(
    graph: Graph, op: BoundOp, tilings: Mapping[str, Tiling], strategy: OpStrategy, tables: CostTables
) -> Decision:
    """The part of a plan that is of one op."""
    names = [name for name in dict.fromkeys((*op.op.inputs, *op.op.outputs)) if name]
    constants = {name: graph.constants[name] for name in names if name in graph.constants}
    inputs = tuple(name for name in dict.fromkeys(op.op.inputs) if name and name not in constants)
    tensors = {name: graph.tensors[name] for name in names}
    outputs = tuple(name for name in op.op.outputs if name and is_used(graph, name))
    part = Graph(graph.name, tensors, (op.op,), inputs, outputs, constants, opset=graph.opset, domains=graph.domains)
    strategies = {op.op.name: strategy.tiling}
    return Decision.of(part, (op,), tilings, strategies, tables, cuts=strategy.tiling.ways)
