"""Equal ops beside each other in the search: as ops of a stack where that costs less, as they are everywhere else.

The graph is planned as it is. Where what equal ops beside each other cost there is a share of the plan worth looking
at, a second plan has stacks in their place (``planner.graph.rewriting.stacking``): a stack can be divided so that each
of equal things has one owner. The plan that costs less is the plan, the first where they are equal.
"""

from __future__ import annotations

from dataclasses import replace

from planner.artifacts.plan import Plan
from planner.cost.by_op import op_charge
from planner.cost.tables import CostTables
from planner.graph.model import Graph
from planner.graph.rewriting.lanes import Lanes, lanes_of
from planner.graph.rewriting.products import PRODUCTS
from planner.graph.rewriting.stacking import stacked
from planner.planning.bodies import decide_with_bodies
from planner.progress import in_part
from planner.reasons import Cause
from planner.search.decided import Decided
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules, matching
from planner.stop import StoppedError
from planner.tdl.descriptions import Descriptions
from planner.units import format_ratio

_STACKS = "a plan with equal ops as ops of a stack"
_LEAST_SHARE = 0.01
"""Of a plan's cost that equal ops must have, for a plan with stacks to be looked for."""


def decide_with_stacks(
    graph: Graph, descriptions: Descriptions, ask: SearchRequest, *, through_bodies: bool = True
) -> Decided:
    """Finds a plan, equal ops beside each other as ops of a stack where that is cheaper.

    Args:
        graph: the training graph, in its canonical form.
        descriptions: of its operators.
        ask: see ``decide_with_bodies``. Ops of which a rule names a tensor stay as they are, and so do all in the
            literature's strategies.
        through_bodies: see ``decide_with_bodies``.

    Raises:
        TofuError, StoppedError: see ``decide_with_bodies``.
    """
    found = decide_with_bodies(graph, descriptions, ask, through_bodies=through_bodies)
    if ask.strategy != "tofu" or ask.workers == 1:
        return found
    chosen = [
        lanes.name
        for lanes in lanes_of(graph)
        if _cost(lanes, found, ask.tables) > _LEAST_SHARE * found.cost and not _is_ruled(lanes, ask.rules)
    ]
    if not chosen or ask.stop.leaves_out(_STACKS):
        return found
    other = stacked(graph, chosen).graph
    told = in_part(ask.progress, "planning again: equal ops as ops of a stack")
    # Rules are for tensors of the graph, and their patterns for no stack.
    rules = replace(ask.rules, names=frozenset(graph.tensors))
    again = replace(ask, rules=rules, progress=told, is_needed=False)
    try:
        first = decide_with_bodies(other, descriptions, replace(again, effort="quick"), through_bodies=through_bodies)
        if first.cost >= found.cost:
            return found
        best = decide_with_bodies(other, descriptions, again, through_bodies=through_bodies)
    except StoppedError:
        ask.stop.leaves_out(_STACKS)
        return found
    return min(found, best, key=lambda plan: plan.cost)


def stacks_in(planned: Graph, graph: Graph) -> dict[str, int]:
    """By name of lanes of a graph that are stacks in the graph that is planned how many there are.

    Args:
        planned: with stacks, or without.
        graph: as it was.
    """
    there = {op.name for op in planned.ops}
    # Products, of which all lanes have some, have no bodies: one that is there no more is in a stack.
    if all(op.name in there for op in graph.ops if op.op_type in PRODUCTS):
        return {}
    return {lanes.name: lanes.count for lanes in lanes_of(graph) if lanes.ops[0][0].name not in there}


def planned_apart(graph: Graph, decided: Decided, plan: Plan) -> tuple[Cause, ...]:
    """Equal ops beside each other that could be ops of a stack, cost something, and are none; the dearest first.

    Args:
        graph: in its canonical form, without stacks.
        decided: the plan of it.
        plan: the same, with what it was asked for.

    Returns:
        By lanes the first op of each; what the ops and their tensors cost; and why they are in no stack.
    """
    tables = CostTables(plan.rates)
    rules = Rules(plan.asked.pins, plan.asked.forbidden, names=frozenset(graph.tensors))
    found = []
    for lanes in lanes_of(graph):
        cost = 0 if lanes.name in plan.stacked else _cost(lanes, decided, tables)
        if cost:
            names, share = tuple(op.name for op in lanes.ops[0]), cost / decided.cost
            found.append(Cause("op", names, cost, share, _why_apart(plan, share, is_ruled=_is_ruled(lanes, rules))))
    return tuple(sorted(found, key=lambda cause: (-cause.cost_bytes, cause.names)))


def _why_apart(plan: Plan, share: float, *, is_ruled: bool) -> str:
    if plan.strategy != "tofu":
        return f"the strategy {plan.strategy} makes no stacks"
    if plan.recomputed is not None and plan.recomputed.tensors:
        return "where activations are computed again, no stacks are made"
    if is_ruled:
        return "a rule is for a tensor of theirs, of which a stack would have none"
    if share <= _LEAST_SHARE:
        return f"a plan with stacks is looked for where they cost more than {format_ratio(_LEAST_SHARE)} of the plan"
    if plan.stopped_by is not None:
        return "the search ended early, and a plan with a stack was not looked for to the end"
    if plan.asked.limit_bytes or plan.asked.for_time:  # the cheapest plan in bytes is not always taken
        return "a plan with a stack of them was looked for, and is no better where memory or time counts"
    return "a plan with a stack of them was looked for, and costs no less"


def _cost(lanes: Lanes, plan: Decided, tables: CostTables) -> int:
    """Bytes that lanes' tensors move in a plan, and their ops' excess."""
    members = {op.name for ops in lanes.ops for op in ops}
    tensors = {name for ops in lanes.ops for op in ops for name in (*op.inputs, *op.outputs)}
    moved = sum(plan.tensor_bytes.get(name, 0) for name in tensors)
    return moved + sum(
        op_charge(bound, plan.strategies[bound.op.name].tiling, tables)
        for bound in plan.ops
        if bound.op.name in members
    )


def _is_ruled(lanes: Lanes, rules: Rules) -> bool:
    """Whether a rule is for a tensor that the lanes make."""
    made = [name for ops in lanes.ops for op in ops for name in op.outputs]
    patterns = (*rules.pins, *(pattern for pattern, _ in rules.forbidden))
    return any(matching(pattern, made, rules.names) for pattern in patterns)
