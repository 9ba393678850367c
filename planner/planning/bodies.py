"""Composite ops in the search: cut through their bodies where that costs less, one kernel everywhere else.

The graph is planned twice: as it is, and with every composite (Softmax, LayerNormalization, ...) replaced by its body,
whose reductions can be cut along the dims that the composite normalises over. In the second plan every composite whose
body costs no less than the op itself would, its neighbours' tilings kept, becomes one op again. The plan that costs
less is the plan, the first where they are equal or, on a large graph, hardly differ: so bodies never make a plan
dearer, and a plan that needs none is the plan that would have been made without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.algebra.tiling import Replicate, Shard, Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.by_op import op_bytes, op_cost
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph, qualified
from planner.graph.decompositions import Body, Expanded, expand, has_body
from planner.graph.decompositions.expand import fused, without_copies
from planner.graph.decompositions.registry import Purpose, decomposition
from planner.search.bound.certify import BOUND
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import MANY_OPS
from planner.search.literature.methods import METHODS
from planner.search.request import SearchRequest
from planner.search.schedule import schedule_of
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.interval import Interval

_THROUGH_BODIES = "a plan through the bodies of composite ops"


def decide_with_bodies(
    graph: Graph, descriptions: Descriptions, ask: SearchRequest, *, through_bodies: bool = True
) -> Decision:
    """Finds a plan, composite ops cut through their bodies where that is cheaper.

    An op whose type has a body and no description is always planned through its body.

    Args:
        graph: the training graph.
        descriptions: of its operators.
        ask: what for. A rule's pattern matches tensors of this graph, and none inside of a body. Bodies are searched by
            ``tofu``, and by the strategies that say so; others of the literature take the ops as they are.
        through_bodies: False: composite ops are taken as they are.

    Raises:
        UnsupportedError: operators without a description and without a body.
        UsageError, InfeasibleError, StoppedError: see ``decide``.
    """
    if ask.rules.names is None:
        ask = replace(ask, rules=replace(ask.rules, names=frozenset(graph.tensors)))
    tables, schedule = ask.tables, schedule_of(ask.effort)
    undescribed = only_through_bodies(graph, descriptions)
    least = ask.once("least", (graph,), lambda: expand(graph, undescribed))
    ops = ask.once("ops", (least.graph,), lambda: descriptions.bind_all(least.graph))
    bound_ops = {bound.op.name: bound for bound in ops}
    if ask.strategy != "tofu":
        operators = METHODS[ask.strategy].through_bodies
        named = {op.name for op in graph.ops if qualified(op.domain, op.op_type) in operators}
        if not named:
            return _put_back(least, {}, decide(least.graph, ops, ask), tables, descriptions)
        apart = expand(graph, undescribed | named)
        inner = descriptions.bind_all(apart.graph, ops)
        by_method = decide(apart.graph, inner, replace(ask, prepared=None))
        return _put_back(apart, bound_ops, by_method, tables, descriptions)
    quickly = replace(ask, effort="quick")
    first = decide(least.graph, ops, quickly)
    plain = best = _put_back(least, {}, first, tables, descriptions)
    chosen, begun, searches = least, first, [first]
    expanded = expand(graph, workers=ask.workers)
    is_cut = through_bodies and ask.workers > 1 and len(expanded.bodies) > len(least.bodies) and first.cost > 0
    is_large = len(ops) > MANY_OPS
    least_saved = schedule.least_saved_by_bodies if is_large else 0.0
    if is_large and type(tables) is CostTables:  # not tables of something else than bytes
        names = {body.op.name for body in expanded.bodies} - undescribed
        saved = sum(_most_saved(bound_ops[name], graph, ask) for name in names)
        is_cut = is_cut and saved > least_saved * first.cost
    if is_cut and not ask.stop.leaves_out(_THROUGH_BODIES):
        ask.progress("planning again: through the bodies of composite ops", cost=plain.cost)
        inner = descriptions.bind_all(expanded.graph, ops)
        with ask.stop.may_leave_out(_THROUGH_BODIES):
            second = decide(expanded.graph, inner, replace(quickly, incumbent=first, is_needed=False))
            searches.append(second)
            cut = _put_back(expanded, bound_ops, second, tables, descriptions)
            if cut.cost < plain.cost:
                best = cut
            if cut.cost < plain.cost * (1 - least_saved):
                chosen, begun = expanded, second
    if schedule.rest and begun.certified_gap != 0:
        with ask.stop.may_leave_out(BOUND):
            last = decide(chosen.graph, begun.ops, replace(ask, begun=begun, is_needed=False))
            searches.append(last)
            plan = _put_back(chosen, bound_ops if chosen is expanded else {}, last, tables, descriptions)
            # A plan of a large network that is bounded may be a little dearer than one that is not.
            if plan.cost <= best.cost * (1 + (least_saved if chosen is least else 0.0)):
                best = plan
    return replace(
        best,
        search_seconds=sum(search.search_seconds for search in searches),
        table_entries=tables.entries,
        largest_table=max(search.largest_table for search in searches),
    )


def _most_saved(op: BoundOp, graph: Graph, ask: SearchRequest) -> int:
    """By how much the best plan through a composite op's body can cost less than the best one with the op as it is.

    The op can be executed whole by every worker, whatever its neighbours' tilings are: what it reads is joined, and
    brought to all; and what it makes can be joined and brought elsewhere. In bytes.
    """
    names = [name for name in (*op.op.inputs, *op.op.outputs) if name]
    size = sum(graph.tensors[name].size_bytes for name in names)
    return 2 * (ask.workers - 1) * size + ask.tables.most_charged(op, ask.workers)


def _put_back(
    expanded: Expanded,
    bound_ops: Mapping[str, BoundOp],
    plan: Decision,
    tables: CostTables,
    descriptions: Descriptions,
) -> Decision:
    """Makes composites one op again where their bodies save nothing, and leaves out copies that move nothing."""
    if not expanded.bodies:
        return plan
    graph = expanded.graph
    by_name = {bound.op.name: bound for bound in plan.ops}
    strategies = dict(plan.strategies)
    unsplit = set(plan.unsplit)
    names = []
    for body in expanded.bodies:
        inner = [by_name[op.name] for op in body.ops]
        cost = sum(op_cost(graph, bound, strategies, plan.tilings, tables) for bound in inner)
        original = bound_ops.get(body.op.name)
        kernel = None if original is None else _best_whole(body, original, inner, plan, tables)
        # At equal cost the composite stays one kernel: a body has to save something.
        if kernel is not None and kernel[0] <= cost:
            names.append(body.op.name)
            strategies[body.op.name] = kernel[1]
            is_repeated = any(isinstance(placement, Replicate) for placement in kernel[1].tiling.placements)
            if is_repeated and any(op.name in unsplit for op in body.ops):
                unsplit.add(body.op.name)
    fused_form = fused(expanded, names)
    planned = {op.name for op in fused_form.graph.ops} - {
        copy.name
        for body in fused_form.bodies
        for copy in body.copies
        if plan.tilings[copy.inputs[0]] == plan.tilings[copy.outputs[0]]
        and not any(amount for _, amount in op_bytes(graph, by_name[copy.name], strategies, plan.tilings, tables))
    }
    final = without_copies(fused_form, planned)
    form = {"graph": final, "ops": descriptions.bind_all(final)}
    return plan.with_tilings(plan.tilings, strategies, tables, unsplit=unsplit, **form).with_bound(plan.lower)


def only_through_bodies(graph: Graph, descriptions: Descriptions) -> frozenset[str]:
    """The ops that are planned through their bodies and never as they are: they have no description, or a kernel that
    is no better than its parts.
    """
    return frozenset(
        op.name
        for op in graph.ops
        if (expansion := decomposition(Purpose.PARTS, op)) is not None
        and ((op.domain, op.op_type) not in descriptions or expansion.is_better)
        and has_body(graph, op)
    )


def _best_whole(
    body: Body, original: BoundOp, inner: list[BoundOp], plan: Decision, tables: CostTables
) -> tuple[int, OpStrategy] | None:
    """The cheapest way to run the composite as one op between its neighbours' tilings: its cost and strategy."""
    names = tuple(variable.name for variable in original.variables)
    best = None
    for tiling in _candidates(body, original, inner, plan):
        strategy = OpStrategy(tiling, names)
        cost = op_cost(plan.graph, original, {original.op.name: strategy}, plan.tilings, tables)
        if (best is None or cost < best[0]) and not original.veto(original.ranges(tiling)):
            best = (cost, strategy)
    return best


def _candidates(body: Body, original: BoundOp, inner: list[BoundOp], plan: Decision) -> tuple[Tiling, ...]:
    """Strategies of the composite that divide it as some tensor in or around its body is divided.

    A tensor's dim and an index variable are matched by the description: an input that is indexed by the variable
    alone, or an output's dim. The composite repeats work only where all of its body does.
    """
    repeated = [
        all(isinstance(plan.strategies[bound.op.name].tiling.placements[cut], Replicate) for bound in inner)
        for cut in range(len(plan.cuts))
    ]
    around = tuple(dict.fromkeys(name for name in (*body.op.inputs, *body.op.outputs) if name in plan.tilings))
    tilings: dict[Tiling, None] = {}
    for name, dims in _directions(original):
        shape = plan.graph.tensors[name].shape
        for tensor in dict.fromkeys((*around, *body.tensors)):
            if tensor not in plan.tilings or plan.graph.tensors[tensor].shape != shape:
                continue
            placements = tuple(
                placement._replace(dim=variable)
                if isinstance(placement, Shard) and (variable := dims[placement.dim]) is not None
                else Replicate()
                for placement in plan.tilings[tensor].placements
            )
            possible = all(
                not original.variables[placement.dim].obstacle if isinstance(placement, Shard) else repeated[cut]
                for cut, placement in enumerate(placements)
            )
            if possible:
                tilings[Tiling(placements, plan.cuts).settled] = None
    return tuple(tilings)


def _directions(op: BoundOp) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """By output and input of an op the index variable that each dim goes with."""
    for position, (name, numbers) in enumerate(zip(op.op.outputs, op.analysis.outputs, strict=True)):
        if name and numbers is not None and not op.analysis.steps_of(position):
            yield name, numbers
    alone = {Interval.variable(variable.name): number for number, variable in enumerate(op.variables)}
    for read in op.analysis.reads:
        yield op.op.inputs[read.slot], tuple(None if dim is None else alone.get(dim) for dim in read.dims)
