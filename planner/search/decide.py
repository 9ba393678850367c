"""From a graph to a plan: cuts, search, and what the result costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.cost.compute import replicated_share
from planner.errors import InfeasibleError, UsageError
from planner.graph.model import Graph
from planner.plan import OpStrategy, Plan
from planner.search.baselines import data_parallel
from planner.search.factors import prime_factors
from planner.search.improve import improve
from planner.search.pins import pinned
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.tdl.bind import BoundOp

STRATEGIES = ("tofu", "data")
"""Names of the strategies: our search, and those of the literature."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan and how it was found."""

    plan: Plan
    search_seconds: float
    table_entries: int
    largest_table: int


def decide(
    graph: Graph,
    ops: tuple[BoundOp, ...],
    workers: int,
    *,
    strategy: str = "tofu",
    pins: Mapping[str, str] | None = None,
    partitioned_inputs: bool = False,
    model_digest: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> Decision:
    """Finds a plan.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions, in the same order.
        workers: how many; at least 1.
        strategy: one of ``STRATEGIES``.
        pins: by tensor, a tiling's text form.
        partitioned_inputs: leave replication out of the data inputs' tilings.
        model_digest: identifies the model in the plan.
        progress: told what is being done.

    Raises:
        UsageError: a pin that cannot be kept, or fewer than one worker.
        InfeasibleError: more workers than the largest tensor has elements.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers: a plan needs at least 1")
    largest = max((tensor.elements for tensor in graph.tensors.values()), default=0)
    if workers > largest:
        raise InfeasibleError(
            f"{workers} workers are more than the {largest} elements of the largest tensor",
            hint=f"at most {largest} workers can have something to do",
        )
    cuts = prime_factors(workers)
    started = time.perf_counter()
    progress("tables of the graph")
    problem = Problem(graph, ops, workers, partitioned_inputs)
    restriction = data_parallel(problem) if strategy == "data" else no_restriction
    restriction = pinned(problem, pins or {}, cuts, restriction)
    found = search_recursively(problem, cuts, restriction, progress)
    found = improve(problem, cuts, restriction, found, progress)
    seconds = time.perf_counter() - started
    plan = _plan(problem, found, cuts, strategy, model_digest)
    return Decision(plan, seconds, problem.tables.entries, found.largest_table)


def _plan(problem: Problem, found: Found, cuts: tuple[int, ...], strategy: str, model_digest: str) -> Plan:
    graph = problem.graph
    tilings = {
        name: found.composites[problem.variable_of_tensor[name]]
        for name in graph.tensors
        if name in problem.variable_of_tensor
    }
    strategies = {
        bound.op.name: OpStrategy(
            found.composites[problem.variable_of_op[bound.op.name]],
            tuple(variable.name for variable in bound.variables),
        )
        for bound in problem.ops
    }
    by_tensor = dict.fromkeys(tilings, 0)
    for name, amount in problem.bytes_by_tensor(found.composites):
        by_tensor[name] += amount
    assert sum(by_tensor.values()) == found.moved_bytes, "the plan's bytes are the sum over its tensors"
    stuck = set(found.unsplit)
    works = [(problem.works[bound.op.name], bound, strategies[bound.op.name].tiling) for bound in problem.ops]
    return Plan(
        model=graph.name,
        model_digest=model_digest,
        cuts=cuts,
        tilings=tilings,
        strategies=strategies,
        tensor_bytes=by_tensor,
        moved_bytes=found.moved_bytes,
        soybean_bytes=0,
        peak_bytes=(),
        replicated_flop_share=replicated_share(works),
        certified_gap=0.0 if len(cuts) <= 1 and strategy == "tofu" else None,
        strategy=strategy,
        unsplit=tuple(bound.op.name for bound in problem.ops if problem.variable_of_op[bound.op.name] in stuck),
    )
