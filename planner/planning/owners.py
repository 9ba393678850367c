"""Equal ops beside each other in the search: some of them whole for each worker where that costs less.

The graph is planned as it is. Where what equal ops beside each other (``planner.graph.rewriting.lanes``) cost there is
more than what comes and goes when workers have some of them each, a second plan may give them owners: each op of a
lane, its operands and results, wholly on the worker that has the lane. The plan that costs less is the plan, the first
where they are equal.

Four experts in a loop, y_i = x_i W_i, on two workers. Without owners each product is cut. With them a worker has some
lanes whole, ``O(0)/2`` or ``O(1)/2``::

    without owners                               with owners
                y_0   y_1   y_2   y_3                        y_0   y_1   y_2   y_3
    worker 0    half  half  half  half           worker 0    all   all    -     -
    worker 1    half  half  half  half           worker 1     -     -    all   all

    moves: parts of each x_i, W_i or y_i         moves: each x_i to its owner, each y_i from it; W_i stays

With g groups of owners 1/g of the tokens are where they are needed, so that of the bytes of all x_i and y_i the share
(g - 1)/g moves, and of each operand that all lanes read g - 1 copies (``_coming_and_going``). Owners are looked for
where that is less than the lanes' moved bytes and excess by more than a hundredth of the plan's cost
(``_worth_owners``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul

from planner.algebra.lane import Lane, has_owners
from planner.artifacts.plan import Plan
from planner.cost.by_op import op_cost
from planner.cost.tables import CostTables
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph, Op, Role
from planner.graph.rewriting.canonical import Canonical
from planner.graph.rewriting.lanes import Lanes, lanes_of, marked
from planner.planning.bodies import decide_with_bodies
from planner.progress import in_part
from planner.reasons import Cause
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules, matching
from planner.stop import StoppedError
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions

_OWNERS = "a plan with owners of equal ops beside each other"
_LEAST_SHARE = 0.01
"""Of a plan's cost that owners may save, for a plan with them to be looked for."""


def decide_with_owners(graph: Graph, descriptions: Descriptions, ask: SearchRequest) -> Decision:
    """Finds a plan, with owners of equal ops beside each other where that is cheaper.

    Args:
        graph: the training graph, in its canonical form.
        descriptions: of its operators.
        ask: see ``decide_with_bodies``. Lanes of which a rule names a tensor have no owners, and the literature's
            strategies know none of this kind.

    Raises:
        TofuError, StoppedError: see ``decide_with_bodies``.
    """
    plan = decide_with_bodies(graph, descriptions, ask)
    if ask.strategy != "tofu" or ask.workers == 1:
        return plan
    chosen = _worth_owners(graph, plan, ask)
    if not chosen or ask.stop.leaves_out(_OWNERS):
        return plan
    owned = marked(graph, chosen)
    progress = in_part(ask.progress, "planning again: with owners of equal ops beside each other")
    again = replace(ask, progress=progress, is_needed=False)
    try:
        first = decide_with_bodies(owned, descriptions, replace(again, effort="quick"))
        if first.cost >= plan.cost:
            return plan
        best = first
        if ask.effort != "quick":
            best = decide_with_bodies(owned, descriptions, again)
    except StoppedError:
        ask.stop.leaves_out(_OWNERS)
        return plan
    alike = even(best, ask.tables)
    return plan if alike is None or alike.cost >= plan.cost else alike


def owned_in(decided: Decision) -> dict[str, int]:
    """The number of lanes, by name, of lanes of which workers have some whole in a plan.

    Args:
        decided: the plan, with owners or without.
    """
    return {
        lane.of: lane.count
        for name, lane in decided.graph.lanes.items()
        if name in decided.strategies and has_owners(decided.strategies[name].tiling)
    }


def _worth_owners(graph: Graph, plan: Decision, ask: SearchRequest) -> list[Lanes]:
    """Lanes that cost more than what comes and goes when workers have some of them each."""
    tables = CostTables(ask.tables.rates)  # in bytes, whatever the search counts in
    candidates = []
    for lanes in lanes_of(graph):
        _, saved = _cost_and_saved(lanes, graph, plan, tables, is_free=not ask.partitioned_inputs)
        if saved > 0 and not _is_ruled(lanes, ask.rules):
            candidates.append((lanes, saved))
    if not candidates:
        return []
    least = _LEAST_SHARE * plan.with_costs(tables).cost
    return [lanes for lanes, saved in candidates if saved > least]


def planned_apart(form: Canonical, decided: Decision, plan: Plan) -> tuple[Cause, ...]:
    """Equal ops beside each other that cost something and have no owners; the dearest first.

    Args:
        form: of the model, with lanes if they were looked for.
        decided: the plan of it.
        plan: the same, with what it was asked for.

    Returns:
        By lanes the first op of each; what the ops cost; and why they have no owners.
    """
    graph, tables = form.graph, CostTables(plan.rates)
    rules = Rules(plan.asked.pins, plan.asked.forbidden, names=frozenset(graph.tensors))
    causes = []
    for lanes in lanes_of(graph) if form.lanes is None else form.lanes:
        if lanes.name in plan.owned:
            continue
        cost, saved = _cost_and_saved(lanes, graph, decided, tables, is_free=not plan.asked.partitioned_inputs)
        if cost:
            why = _why_apart(plan, saved / decided.cost, is_ruled=_is_ruled(lanes, rules))
            causes.append(Cause("op", tuple(op.name for op in lanes.ops[0]), cost, cost / decided.cost, why))
    return tuple(sorted(causes, key=lambda cause: (-cause.cost_bytes, cause.names)))


def _why_apart(plan: Plan, saved: float, *, is_ruled: bool) -> str:
    if plan.strategy != "tofu":
        return f"the strategy {plan.strategy} gives none an owner"
    if plan.recomputed is not None and plan.recomputed.tensors:
        return "where activations are computed again, none have owners"
    if is_ruled:
        return "a rule is for a tensor of theirs, and with owners all would be divided alike"
    if saved <= _LEAST_SHARE:
        return "what would come to owners of them, and go from them, is about as much or more"
    if plan.stopped_by is not None:
        return "the search ended early, and a plan with owners was not looked for to the end"
    if plan.asked.limit_bytes or plan.asked.for_time:  # the cheapest plan in bytes is not always taken
        return "a plan with owners of them was looked for, and is no better where memory or time counts"
    return "a plan with owners of them was looked for, and costs no less"


def _cost_and_saved(
    lanes: Lanes, graph: Graph, plan: Decision, tables: CostTables, *, is_free: bool
) -> tuple[int, float]:
    """What moves because of lanes' ops in a plan, and their excess; and how much less comes to owners and goes."""
    members = {op.name for ops in lanes.ops for op in ops}
    lane_ops = (bound for bound in plan.ops if bound.op.name in members)
    cost = sum(op_cost(plan.graph, bound, plan.strategies, plan.tilings, tables) for bound in lane_ops)
    return cost, cost - min(_coming_and_going(lanes, graph, plan.cuts, is_free=is_free), default=cost)


def _is_ruled(lanes: Lanes, rules: Rules) -> bool:
    """Whether a rule is for a tensor of one of the lanes: then they need not be alike."""
    names = {name for beside in lanes.operands for name in beside}
    names.update(name for ops in lanes.ops for op in ops for name in op.outputs)
    patterns = (*rules.pins, *(pattern for pattern, _ in rules.forbidden))
    return any(matching(pattern, names, rules.names) for pattern in patterns)


def _coming_and_going(lanes: Lanes, graph: Graph, cuts: tuple[int, ...], *, is_free: bool) -> Iterator[float]:
    """Bytes that come to groups with some lanes each and go from them, for each possible number of groups."""
    core = _core(lanes, graph)
    members = {op.name for ops in core for op in ops}
    results = {name for ops in core for op in ops for name in op.outputs if name}
    of_first = {name for ops in core for name in ops[0].inputs}
    of_last = {name for ops in core for name in ops[-1].inputs}
    resident = {Role.STATE, Role.CONSTANT} | ({Role.DATA} if is_free else set())

    def comes(names: set[str]) -> int:
        return sum(_bytes_of(graph, name) for name in names - results if name and graph.roles[name] not in resident)

    goes = [name for name in results if any(reader.name not in members for reader in graph.consumers[name])]
    lane_bytes = lanes.count * comes(of_first - of_last) + sum(_bytes_of(graph, name) for name in goes)
    shared = comes(of_first & of_last)
    for groups in accumulate(cuts, mul):
        if groups <= lanes.count:
            yield lane_bytes * (groups - 1) / groups + shared * (groups - 1)


def _core(lanes: Lanes, graph: Graph) -> list[tuple[Op, ...]]:
    """The ops of lanes at their states, and those between; all ops where lanes have no states."""
    states = {name for pair in graph.state for name in (pair.current, pair.following)}
    first = [ops[0] for ops in lanes.ops]
    at_states = {op.name for op in first if not states.isdisjoint((*op.inputs, *op.outputs))}
    if not at_states:
        return list(lanes.ops)
    behind: set[str] = set()
    """Tensors that are computed from what such ops make."""
    after: set[str] = set()
    for op in first:
        if op.name in at_states or not behind.isdisjoint(op.inputs):
            after.add(op.name)
            behind.update(op.outputs)
    before = {op.name for op in live_ops(first, [name for op in first if op.name in at_states for name in op.outputs])}
    return [ops for ops in lanes.ops if ops[0].name in before & after]


def _bytes_of(graph: Graph, name: str) -> int:
    tensor = graph.tensors[name]
    return tensor.elements * tensor.dtype.item_bytes


def even(plan: Decision, tables: CostTables) -> Decision | None:
    """The plan if each lane has owners wherever others have, as its charges say; else with all as one of them.

    Lanes that cost equally much one way or another may be divided in different ways. None where they stay so.

    Args:
        plan: with owners or without.
        tables: to count with.
    """
    if is_even(plan):
        return plan
    places: dict[str, dict[int, BoundOp]] = defaultdict(dict)
    for bound in plan.ops:
        if bound.lane is not None:
            places[bound.lane.like][bound.lane.number] = bound
    count = max(len(place) for place in places.values())
    levelled = [_levelled(plan, list(places.values()), number, tables) for number in dict.fromkeys((0, count // 2))]
    best = min((option for option in levelled if is_even(option)), key=lambda option: option.cost, default=None)
    return None if best is None else best.with_bound(plan.lower)


def _levelled(plan: Decision, places: Sequence[Mapping[int, BoundOp]], number: int, tables: CostTables) -> Decision:
    """The plan with all lanes divided as this one is, where there is such a lane."""
    tilings, strategies = dict(plan.tilings), dict(plan.strategies)
    for place in places:
        if number not in place:
            continue
        model = place[number].op
        for bound in place.values():
            lane, op, strategy = bound.lane, bound.op, plan.strategies[model.name]
            assert lane is not None, "it is in a place of lanes"
            strategies[op.name] = replace(strategy, tiling=lane.owned(strategy.tiling) or strategy.tiling)
            for name, model_name in zip((*op.inputs, *op.outputs), (*model.inputs, *model.outputs), strict=True):
                if name != model_name and name in tilings:
                    tilings[name] = lane.owned(plan.tilings[model_name]) or plan.tilings[model_name]
    return plan.with_tilings(tilings, strategies, tables)


def is_even(plan: Decision) -> bool:
    """Whether each lane of a plan has owners wherever others have."""
    times: dict[tuple[object, ...], Counter[Lane]] = defaultdict(Counter)
    for bound in plan.ops:
        lane, tiling = bound.lane, plan.strategies[bound.op.name].tiling
        if lane is not None and has_owners(tiling):
            times[bound.op.op_type, bound.content, Lane(0, lane.count).owned(tiling)][lane] += 1
    return all(len(tally) == lane.count and len(set(tally.values())) == 1 for tally in times.values() for lane in tally)
