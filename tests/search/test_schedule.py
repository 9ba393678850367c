"""The lists of moves: each earns its place, and a search without it is noticed here."""

from dataclasses import replace
from fractions import Fraction
from math import prod

import pytest

from planner import opdefs
from planner.algebra.tiling import UNCUT
from planner.cost.priced import PricedTables
from planner.cost.residence import Residence
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.search import decide as deciding
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import NORMAL_BOUND, EffortName
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.moves import grow
from planner.search.moves.bounding import LowerBound
from planner.search.moves.grow import Grow
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.move import Ground, Known, PlanToBeat, made
from planner.search.moves.restrictions import data_parallel
from planner.search.moves.starts import freely, likely, of_transformers, others
from planner.search.request import SearchRequest
from planner.search.schedule import SCHEDULES


def planned(graph: Graph, workers: int, effort: EffortName) -> Decision:
    return decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, effort=effort))


def ground_of(graph: Graph, cuts: tuple[int, ...], near: PlanToBeat | None = None) -> Ground:
    problem = Problem(graph, opdefs.standard().bind_all(graph), prod(cuts), with_partial_sums=True)
    return Ground(problem, cuts, lambda inner, cuts: inner, near)


def without(monkeypatch: pytest.MonkeyPatch, effort: EffortName, move: object) -> None:
    """Takes a move out of an effort's list."""
    schedule = SCHEDULES[effort]
    left = tuple(one for one in schedule.rest if one != move)
    assert len(left) == len(schedule.rest) - 1
    monkeypatch.setattr(deciding, "schedule_of", {**SCHEDULES, effort: replace(schedule, rest=left)}.__getitem__)


def test_a_quick_plan_of_a_transformer_grows_out_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recursive one leads less far than Megatron-LM's."""
    graph, workers = zoo.build("gpt-2x1024"), 8
    found = planned(graph, workers, "quick")
    monkeypatch.setattr(deciding, "FIRST", (Grow(freely),))
    assert found.cost < 0.97 * planned(graph, workers, "quick").cost


def test_fusion_takes_back_what_recursion_decided_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, workers = zoo.build("mlp-5x300"), 8
    found = planned(graph, workers, "quick")
    monkeypatch.setattr(grow, "improve", lambda problem, cuts, restrict, plan, progress, stop: plan)
    assert found.cost < 0.9 * planned(graph, workers, "quick").cost


@pytest.mark.slow
def test_a_bound_leads_to_a_better_plan_and_proves_it_best(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, workers = zoo.build("gpt-2x128-4h-lm"), 8
    found = planned(graph, workers, "normal")
    assert found.certified_gap == 0.0
    assert found.cost < planned(graph, workers, "quick").cost
    without(monkeypatch, "normal", LowerBound(NORMAL_BOUND))
    assert planned(graph, workers, "normal").certified_gap is None


@pytest.mark.slow
def test_where_a_gap_is_left_a_plan_grows_out_of_every_other_start() -> None:
    graph, lines = zoo.build("lenet-5"), list[str]()
    ops = opdefs.standard().bind_all(graph)
    for workers, starts in ((16, 2 + 10), (8, 2)):
        lines.clear()
        ask = SearchRequest(workers, progress=lambda doing, **_: lines.append(doing))
        gap = decide(graph, ops, ask).certified_gap
        assert gap == (0.0 if starts == 2 else None)
        # All cuts as one are decided beside them: cut 1 of 1.
        assert sum("deciding cut 1 of " in line and "cut 1 of 1" not in line for line in lines) == starts


@pytest.mark.slow
def test_other_starts_lead_further(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, workers = zoo.build("resnet-50"), 16
    found = planned(graph, workers, "normal")
    without(monkeypatch, "normal", Grow(others))
    assert found.cost < 0.995 * planned(graph, workers, "normal").cost


def test_moves_end_where_the_best_plan_is_proven_best() -> None:
    asked: list[str] = []

    def best(ground: Ground, known: Known) -> Known:
        asked.append("best")
        return Known((Found((), 5, 1),), 5)

    def further(ground: Ground, known: Known) -> Known:
        asked.append("further")
        return known

    ground = ground_of(mlp(2, 24, 36), (2, 2))
    assert made((best, further), ground) == Found((), 5, 1, 5)
    assert made((lambda ground, known: Known((Found((), 6, 1),), 5), further), ground).lower == 5
    assert asked == ["best", "further"]


def test_a_start_that_rules_leave_no_plan_is_left_out_but_the_first_is_not() -> None:
    def without_a_plan(ground: Ground) -> list[Restriction]:
        def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
            raise InfeasibleError("no plan keeps to this")

        return [restrict]

    ground = ground_of(mlp(2, 24, 36), (2, 2))
    first = Grow(freely)(ground, Known())
    assert Grow(without_a_plan)(ground, first) == first
    with pytest.raises(InfeasibleError, match="no plan keeps to this"):
        Grow(without_a_plan)(ground, Known())


def test_a_bound_is_left_out_where_the_plan_is_too_dear_to_stand() -> None:
    graph, cuts = mlp(3, 24, 36), (2, 2)
    known = Grow(freely)(ground_of(graph, cuts), Known())
    near = PlanToBeat(known.best.cost - 1, lambda variable, candidates: candidates)
    assert LowerBound(NORMAL_BOUND)(ground_of(graph, cuts, near), known) == known
    enough = replace(near, most_cost=known.best.cost)
    bounded = LowerBound(NORMAL_BOUND)(ground_of(graph, cuts, enough), known)
    assert bounded.lower == bounded.best.cost < known.best.cost


def test_a_plan_that_is_to_be_beaten_is_the_only_other_start() -> None:
    graph, cuts = zoo.build("gpt-2x64-2h"), (2, 2, 2)
    near = PlanToBeat(1, lambda variable, candidates: candidates)
    assert likely(ground_of(graph, cuts, near)) == [near.keep]
    assert others(ground_of(graph, cuts, near)) == []
    assert len(others(ground_of(graph, cuts))) == 8
    assert others(ground_of(graph, (2,))) == of_transformers(ground_of(graph, (2,))) == []


def test_a_transformer_s_start_is_by_data_across_and_in_parts_of_layers_within() -> None:
    ground = ground_of(zoo.build("gpt-2x64-2h"), (2, 2, 2))
    problem = ground.problem
    (start,) = of_transformers(ground)
    own = [data_parallel(problem), tensor_parallel(problem), tensor_parallel(problem)]
    differ = 0
    for variable in problem.variables:
        prefix = UNCUT
        for restrict, ways in zip(own, ground.cuts, strict=True):
            offered = problem.proposals(variable, prefix, ways)
            assert start(variable, offered) == restrict(variable, offered)
            differ += restrict(variable, offered) != data_parallel(problem)(variable, offered)
            prefix = start(variable, offered)[0]
    assert differ > 0


def test_there_is_no_such_start_without_attention() -> None:
    """But a hybrid one of a small graph."""
    small, deep = (ground_of(zoo.build(name, batch=16), (2, 2)) for name in ("lenet-5", "resnet-50"))
    assert of_transformers(small) == of_transformers(deep) == likely(deep) == []
    assert len(likely(small)) == 1


def test_equal_blocks_of_a_deep_network_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little effort, under no rules."""
    seen: list[int] = []
    problem_of = deciding.Problem

    def noted(graph: Graph, *args: object, **named: object) -> Problem:
        seen.append(len(graph.ops))
        return problem_of(graph, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(deciding, "Problem", noted)
    graph = zoo.build("gpt-12x64-2h")
    planned(graph, 4, "quick")
    assert seen[0] < 0.8 * len(graph.ops)
    planned(graph, 4, "normal")
    assert seen[-1] == len(graph.ops)
    ops = opdefs.standard().bind_all(graph)
    priced = PricedTables(CostTables(), Residence(graph, ops), {len(ops) // 2: Fraction(1)})
    decide(graph, ops, SearchRequest(4, effort="quick", tables=priced))
    assert seen[-1] == len(graph.ops), "memory has a price in the middle, which equal blocks elsewhere have not"


def test_a_plan_to_go_on_from_proves_nothing() -> None:
    """One cut is solved exactly, and not only near the plan that the search goes on from."""
    graph = zoo.build("mlp-4x8192")
    ops = opdefs.standard().bind_all(graph)
    by_data = decide(graph, ops, SearchRequest(2, strategy="data"))
    found = decide(graph, ops, SearchRequest(2, begun=by_data))
    assert found.certified_gap == 0.0
    assert found.cost == planned(graph, 2, "quick").cost < by_data.cost
