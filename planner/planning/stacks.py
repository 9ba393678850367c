"""Equal ops beside each other in the search: as ops of a stack where that costs less, as they are everywhere else.

The graph is planned as it is. Where what equal ops beside each other cost there is a share of the plan worth looking
at, a second plan has stacks in their place (``planner.graph.rewriting.stacking``): a stack can be divided so that each
of equal things has one owner. The plan that costs less is the plan, the first where they are equal.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cost.by_op import op_charge
from planner.graph.model import Graph
from planner.graph.rewriting.lanes import Lanes, lanes_of
from planner.graph.rewriting.products import PRODUCTS
from planner.graph.rewriting.stacking import stacked
from planner.planning.bodies import decide_with_bodies
from planner.progress import in_part
from planner.search.decided import Decided
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import matching
from planner.stop import StoppedError
from planner.tdl.descriptions import Descriptions

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
    chosen = [lanes.name for lanes in lanes_of(graph) if _may_gain(lanes, found, ask) and not _is_ruled(lanes, ask)]
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


def _may_gain(lanes: Lanes, plan: Decided, ask: SearchRequest) -> bool:
    """Whether what the lanes cost in a plan is worth a second one."""
    members = {op.name for ops in lanes.ops for op in ops}
    tensors = {name for ops in lanes.ops for op in ops for name in (*op.inputs, *op.outputs)}
    moved = sum(plan.tensor_bytes.get(name, 0) for name in tensors)
    charged = sum(
        op_charge(bound, plan.strategies[bound.op.name].tiling, ask.tables)
        for bound in plan.ops
        if bound.op.name in members
    )
    return moved + charged > _LEAST_SHARE * plan.cost


def _is_ruled(lanes: Lanes, ask: SearchRequest) -> bool:
    """Whether a rule is for a tensor that the lanes make."""
    made = [name for ops in lanes.ops for op in ops for name in op.outputs]
    patterns = (*ask.rules.pins, *(pattern for pattern, _ in ask.rules.forbidden))
    return any(matching(pattern, made, ask.rules.names) for pattern in patterns)
