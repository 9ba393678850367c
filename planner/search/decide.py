"""The decision for a graph: cuts, search, and what the result costs.

A product that sums over ``k`` and its ReLU, where rules split both operands along ``k``. The product makes partial
sums; 128 bytes move to reduce them into rows, and 16 are the excess of both ops:

    >>> import onnx.parser
    >>> from planner import opdefs
    >>> from planner.graph.reading.from_onnx import graph_from_proto
    >>> from planner.search.request import SearchRequest
    >>> from planner.search.user_rules.rules import Rules
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... half (float[8,6] x, float[6,4] w) => (float[8,4] y) { h = MatMul(x, w)  y = Relu(h) }''')
    >>> graph = graph_from_proto(model, operators=opdefs.standard())
    >>> rules = Rules(pins={"x": "S(1)", "w": "S(0)", "y": "S(0)"})
    >>> plan = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(2, rules=rules))
    >>> {name: str(tiling) for name, tiling in plan.tilings.items()}
    {'x': 'S(1)/2', 'w': 'S(0)/2', 'h': 'S(0)/2', 'y': 'S(0)/2'}
    >>> {name: str(strategy) for name, strategy in plan.strategies.items()}
    {'MatMul.h': 'k/2', 'Relu.y': 'i0/2'}
    >>> plan.tensor_bytes, plan.excess_bytes
    ({'x': 0, 'w': 0, 'h': 128, 'y': 0}, 16)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from types import MappingProxyType

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Partitioning
from planner.collection import without_collection
from planner.cost.by_op import recomputing
from planner.cost.priced import PricedTables
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError, ModelError, UsageError
from planner.graph.core.model import Graph
from planner.progress import Progress, with_best, without_costs
from planner.search.decision import Decision
from planner.search.effort import MANY_OPS, WHOLE_OPS
from planner.search.literature.methods import METHODS
from planner.search.model.cuts import prime_factors
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.model.unsplit import unsplit
from planner.search.moves.at_once import has_other_parts, or_at_once
from planner.search.moves.grow import Grow
from planner.search.moves.move import Ground, PlanToBeat, made
from planner.search.moves.starts import Starts
from planner.search.repeats.shortened import Whole, in_order, shortened
from planner.search.request import SearchRequest
from planner.search.schedule import FIRST, schedule_of
from planner.search.user_rules.pins import ruled
from planner.search.user_rules.rules import Rules
from planner.spent import part
from planner.stop import Stop
from planner.tdl.bind import BoundOp

STRATEGIES: Mapping[str, str] = MappingProxyType(
    {
        "tofu": "the best of several plans, improved over all cuts together (this program's own)",
        **{name: method.summary for name, method in METHODS.items()},
    }
)
"""The summary of each strategy, by name: our search first, then those of the literature."""


@without_collection()
@part("search")
def decide(
    graph: Graph,
    ops: tuple[BoundOp, ...],
    ask: SearchRequest,
) -> Decision:
    """Finds a plan.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions, in the same order.
        ask: what for.

    Raises:
        UsageError: a rule that cannot be kept, or fewer than one worker.
        ModelError: no tensor has elements.
        InfeasibleError: more workers than the largest tensor has elements.
        StoppedError: the search is to end, has no plan yet, and need not have one.
    """
    workers, strategy = ask.workers, ask.strategy
    if workers < 1:
        raise UsageError(f"{workers} workers: a plan needs at least 1")
    assert not ask.cuts or prod(ask.cuts) == workers, "the machine has a device for each worker"
    if graph.tensors and not any(tensor.elements for tensor in graph.tensors.values()):
        shapes = tuple(f"{tensor.name!r}: {list(tensor.shape)}" for tensor in graph.tensors.values())
        raise ModelError("no tensor of the model has elements: there is nothing to be divided", facts=shapes)
    largest = max((tensor.elements for tensor in graph.tensors.values()), default=0)
    if workers > largest:
        raise InfeasibleError(
            f"{workers:,} workers are more than the {largest:,} elements of the largest tensor",
            hint=f"at most {largest:,} workers can have something to do",
        )
    started = time.perf_counter()
    progress = ask.progress if ask.incumbent is None else with_best(ask.progress, ask.incumbent.cost)
    progress("tables of the graph")
    method = None if strategy == "tofu" else METHODS[strategy]
    cuts = ask.cuts or prime_factors(workers)
    schedule = schedule_of(ask.effort)
    # Equal blocks are planned alike where no rules tell them apart; prices of memory do so with a few of them.
    are_alike = not ask.rules and not ask.held
    if method is None:
        most_whole = WHOLE_OPS if isinstance(ask.tables, PricedTables) else MANY_OPS
        is_brief = not schedule.rest and are_alike and len(ops) > most_whole
    else:
        is_brief = method.forms is not None and are_alike and len(ops) > WHOLE_OPS

    def searched(graph: Graph, ops: tuple[BoundOp, ...], progress: Progress) -> tuple[Problem, tuple[int, ...], Found]:
        sums = method is None or method.with_partial_sums
        nests = method is None or method.with_nests
        spread = ask.partitioned_inputs or ask.room_bytes is not None
        make = partial(Problem, graph, ops, workers, spread, sums, nests, tables=ask.tables)
        problem = ask.once("problem", (graph, ops, ask.tables), make, (sums, nests, spread))
        problem.begin()
        beaten = None
        if ask.incumbent is not None and len(ops) > MANY_OPS:
            least = ask.incumbent.cost - recomputing(graph, ops, ask.tables)
            beaten = PlanToBeat(least - 1, _plan_restriction(ask.incumbent))
        narrow = partial(_narrowed, problem, ask.rules, ask.held)
        # A method of the literature is one part of the work: where it is needed, nothing ends it.
        stop = Stop() if method is not None and ask.is_needed else ask.stop
        ground = Ground(problem, cuts, narrow, beaten, progress, stop, ask.is_needed, ask.room_bytes)
        if method is None:
            begun = ask.begun if ask.begun is not None and ask.begun.cuts == cuts else None
            if begun is None and beaten is not None and ask.incumbent is not None and ask.incumbent.decided_apart:
                begun = ask.incumbent  # an entangled graph's plan from nothing takes long, and becomes no better
            if begun is not None:
                problem.decided_apart = begun.decided_apart
            # One cut is solved exactly from nothing: a plan to go on from would only take that away.
            first = FIRST
            if begun is not None and len(cuts) > 1:
                is_stable = begun is ask.begun and begun.decided_apart > 0  # to see that it is takes long there
                first = (Grow(_starting(_plan_restriction(begun)), improves=not is_stable),)
            solution = made((*first, *schedule.rest), ground, len(first))
            is_plain = type(ask.tables) is CostTables and not (ask.held or graph.lanes or ask.tables.shares)
            if schedule.rest and is_plain and len(ops) <= MANY_OPS and has_other_parts(problem, cuts):
                return problem, *or_at_once(ground, solution)
            return problem, cuts, solution
        return problem, *method.search(ground)

    short = None
    if is_brief:
        short = ask.once("short", (graph, ops), partial(shortened, graph, ops, ask.tables.of_place))
    answer, full_plan = None, None
    if short is not None:
        answer = searched(short.graph, short.ops, without_costs(ask.progress))
        full_plan = short.expanded(*_by_name(answer[0], answer[2]))
    if answer is None or full_plan is None:
        # Neither the order of the file nor names decide between plans of equal cost.
        answer = searched(*ask.once("in order", (graph, ops), partial(in_order, graph, ops)), progress)
        full_plan = Whole(*_by_name(answer[0], answer[2]), {})
    decision = _decision(graph, ops, strategy, full_plan, *answer)
    ask.stop.plan_is_there()
    seconds = time.perf_counter() - started
    return replace(decision, search_seconds=seconds, table_entries=ask.tables.entries)


def _by_name(problem: Problem, solution: Found) -> tuple[dict[str, Tiling], dict[str, Tiling]]:
    """The tilings of tensors and the strategies of ops."""
    tilings = {name: solution.tilings[number] for name, number in problem.variable_of_tensor.items()}
    return tilings, {name: solution.tilings[number] for name, number in problem.variable_of_op.items()}


def _narrowed(
    problem: Problem,
    rules: Rules,
    held: Mapping[str, Tiling],
    inner: Restriction,
    cuts: tuple[int, ...],
) -> Restriction:
    """Keeps tensors to the rules and held ops to their strategies."""
    restrict = ruled(problem, rules, cuts, inner)

    def keep(variable: SearchVariable, candidates: Candidates) -> Candidates:
        strategy = None if variable.op is None else held.get(variable.op.op.name)
        if strategy is None:
            return restrict(variable, candidates)
        depth = len(candidates[0].ways)
        return (strategy.outermost(depth),)

    return keep if held else restrict


def _starting(keep: Restriction) -> Starts:
    """A list of one start."""
    return lambda ground: [keep]


def _plan_restriction(plan: Partitioning) -> Restriction:
    """Leaves tensors and ops that a plan knows as they are there."""

    def keep(variable: SearchVariable, candidates: Candidates) -> Candidates:
        if variable.op is None:
            tiling = plan.tilings.get(variable.tensors[0])
        else:
            strategy = plan.strategies.get(variable.op.op.name)
            is_same = strategy is not None and strategy.variables == tuple(var.name for var in variable.op.variables)
            tiling = strategy.tiling if strategy is not None and is_same else None
        return candidates if tiling is None else (tiling.outermost(len(candidates[0].ways)),)

    return keep


def _decision(
    graph: Graph,
    ops: tuple[BoundOp, ...],
    strategy: str,
    full_plan: Whole,
    problem: Problem,
    cuts: tuple[int, ...],
    solution: Found,
) -> Decision:
    """The decision for a graph.

    Args:
        graph: that is planned.
        ops: of the graph.
        strategy: how it was found.
        full_plan: tilings and strategies of the whole graph.
        problem: that was solved, of the graph or of a short one.
        cuts: the ways of each cut.
        solution: of the problem.
    """
    stuck, stands = unsplit(problem, solution.tilings), full_plan.stands
    names = {op.op.name for op in ops if problem.variable_of_op[stands.get(op.op.name, op.op.name)] in stuck}
    plan = Decision.of(
        *(graph, ops, full_plan.tilings, full_plan.strategies, problem.tables),
        cuts=cuts,
        strategy=strategy,
        unsplit=names,
    )
    again = recomputing(graph, ops, problem.tables)
    assert stands or plan.cost - again == solution.cost, "the plan's cost is the sum over its tensors and ops"
    # Cost and bound of a short graph, one of whose blocks stands for many, are not those of the whole graph.
    plan = plan.with_bound(None if stands or solution.lower is None else solution.lower + again)
    return replace(
        plan,
        decided_apart=0 if plan.certified_gap == 0 else problem.decided_apart,
        largest_table=solution.largest_table,
        eliminated_entries=problem.eliminated_entries,
    )
