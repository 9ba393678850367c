"""Plans within a limit on memory: what is found, what it costs, and what is said where nothing fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from planner import opdefs
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.graph.step.purposes import Purpose
from planner.partition.build import Unplaced
from planner.partition.occupancy import occupancy, tightest
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit import trial
from planner.planning.limit.fit import within
from planner.planning.limit.trial import Trial
from planner.planning.thresholds import Work
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

WORKERS = 4
MODEL = "cnn-2x64-12"


@cache
def planned() -> tuple[SearchRequest, Trial]:
    ask = SearchRequest(WORKERS)
    return ask, Trial(decide_with_bodies(build(MODEL, batch=16), opdefs.standard(), ask))


def peak(candidate: Trial) -> int:
    return max(candidate.partitioned.program.peak_bytes)


def moved(candidate: Trial) -> int:
    return candidate.decided.moved_bytes


def fitted(limit: int) -> Trial:
    ask, first = planned()
    return within(first, ask, [limit] * WORKERS, least_cost(ask.tables))


def test_a_plan_that_fits_is_left_as_it_is() -> None:
    _, first = planned()
    assert fitted(peak(first)) is first


def test_what_is_lacking_is_told_by_the_program() -> None:
    for lean in (False, True):
        first = Trial(planned()[1].decided, is_lean=lean)
        peak_bytes = peak(first)
        for limit in (peak_bytes // 2, peak_bytes - 1, peak_bytes, 2 * peak_bytes):
            lacking = first.lacking([limit] * WORKERS)
            # With less room than any layout needs, it is what any layout lacks.
            assert (lacking > 0) == (peak_bytes > limit)
            assert lacking <= peak_bytes - limit or 0 >= lacking >= peak_bytes - limit


def test_less_memory_costs_more_bytes_and_the_program_keeps_to_the_limit() -> None:
    _, first = planned()
    costs = [moved(first)]
    for share in (0.97, 0.94):
        limit = int(peak(first) * share)
        plan = fitted(limit)
        assert peak(plan) <= limit
        # Exactly what the program moves: the price on memory is not in it.
        assert moved(plan) == plan.partitioned.program.predicted_bytes
        costs.append(moved(plan))
    assert plan.decided.certified_gap is None
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


def test_the_same_limit_gives_the_same_plan() -> None:
    _, first = planned()
    limit = int(peak(first) * 0.95)
    first_plan, second_plan = fitted(limit), fitted(limit)
    assert first_plan.decided == second_plan.decided


def test_where_nothing_fits_the_error_says_what_takes_the_room_and_what_would_do() -> None:
    with pytest.raises(InfeasibleError, match=r"no plan was found that fits: worker \d needs .* and has 1.0 KiB") as no:
        fitted(1024)
    assert "activation" in no.value.facts[0]
    assert len(no.value.facts) == 7
    assert re.match(r"every plan takes .* at least on some worker, at ", no.value.facts[1])
    needed = int(no.value.hint.partition("--memory ")[2].partition("B)")[0])
    assert peak(fitted(needed)) <= needed, "what it says would do does"
    assert no.value.hint.endswith("no number of workers would")


def test_more_workers_are_suggested_where_they_might_do() -> None:
    _, first = planned()
    with pytest.raises(InfeasibleError, match="no plan was found that fits") as no:
        fitted(peak(first) // 3)
    assert re.search(r"so might about \d+ workers$", no.value.hint)


def test_occupancy_adds_up() -> None:
    _, first = planned()
    program, graph = first.partitioned.program, first.decided.graph
    held = occupancy(program, graph, 1)
    assert held.total_bytes == program.peak_bytes[1]
    buffers, amounts = held.at(held.fullest), held.amounts(held.fullest)
    gaps = amounts.get(Purpose.GAPS, 0)
    listed = sum(buffer.size_bytes for buffer in buffers) + program.workers[1].workspace_bytes
    assert sum(amounts.values()) - gaps == listed <= held.total_bytes
    assert listed >= 0.9 * held.total_bytes, "little of an arena is gaps"


def test_who_needs_more_has_the_larger_device() -> None:
    assert tightest((5, 9, 7), (9, 8, 10)) == (1, 10)
    assert tightest((5, 9, 7), (10, 4, 8)) == (0, 4)


@pytest.mark.slow
def test_of_a_large_graph_residence_says_what_fits_and_the_program_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, first = planned()
    limit = int(peak(first) * 0.95)
    by_programs = fitted(limit)
    decisions: list[Decision] = []
    unplaced = trial.unplaced

    def counted(graph: Graph, ops: tuple[BoundOp, ...], decided: Decision, *others: Any, **named: Any) -> Unplaced:
        decisions.append(decided)
        return unplaced(graph, ops, decided, *others, **named)

    monkeypatch.setattr(trial, "unplaced", counted)
    monkeypatch.setattr(Work.TRIALS, "most_ops", 1)
    # The same plan, but not the same trial: its program is not made yet.
    plan = within(Trial(first.decided), planned()[0], [limit] * WORKERS, least_cost(CostTables()))
    assert peak(plan) <= limit
    assert moved(plan) <= 1.02 * moved(by_programs)
    assert len(decisions) <= 5, "programs are made of what is kept, and where it takes a little too much"


@pytest.mark.slow
def test_a_program_that_takes_more_than_residence_tightens_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, first = planned()
    limit = int(peak(Trial(first.decided, is_lean=True)) * 1.01)
    monkeypatch.setattr(Work.TRIALS, "most_ops", 1)
    by_program = Trial.lacking_by_program
    lackings: list[int] = []

    def lacking(candidate: Trial, limits: Sequence[int]) -> int:
        """As if every program took 3% more than it does."""
        lackings.append(by_program(candidate, [int(limit_bytes / 1.03) for limit_bytes in limits]))
        return lackings[-1]

    monkeypatch.setattr(Trial, "lacking_by_program", lacking)
    plan = within(Trial(first.decided), ask, [limit] * WORKERS, least_cost(ask.tables))
    assert peak(plan) <= limit / 1.03
    assert max(lackings) > 0, "the plan that was found first did not fit"
