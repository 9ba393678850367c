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
from planner.graph.model import Graph
from planner.graph.purposes import Purpose
from planner.partition.build import Unplaced
from planner.partition.occupancy import occupancy, tightest
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit import trial
from planner.planning.limit.fit import within
from planner.planning.limit.trial import Trial, trial_of
from planner.search.decided import Decided
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

WORKERS = 4
MODEL = "cnn-2x64-12"


@cache
def planned() -> tuple[SearchRequest, Trial]:
    ask = SearchRequest(WORKERS)
    return ask, trial_of(decide_with_bodies(build(MODEL, batch=16), opdefs.standard(), ask))


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
        first = trial_of(planned()[1].decided, lean=lean)
        most = peak(first)
        for limit in (most // 2, most - 1, most, 2 * most):
            lacking = first.lacking([limit] * WORKERS)
            # With less room than any layout needs, it is what any layout lacks.
            assert (lacking > 0) == (most > limit)
            assert lacking <= most - limit or 0 >= lacking >= most - limit


def test_less_memory_costs_more_bytes_and_the_program_keeps_to_the_limit() -> None:
    _, first = planned()
    costs = [moved(first)]
    for share in (0.97, 0.94):
        limit = int(peak(first) * share)
        found = fitted(limit)
        assert peak(found) <= limit
        # Exactly what the program moves: the price on memory is not in it.
        assert moved(found) == found.partitioned.program.predicted_bytes
        costs.append(moved(found))
    assert found.decided.certified_gap is None
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


def test_the_same_limit_gives_the_same_plan() -> None:
    _, first = planned()
    limit = int(peak(first) * 0.95)
    one, other = fitted(limit), fitted(limit)
    assert one.decided == other.decided


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
    found = occupancy(program, graph, 1)
    assert found.total_bytes == program.peak_bytes[1]
    there, amounts = found.at(found.fullest), found.amounts(found.fullest)
    gaps = amounts.get(Purpose.GAPS, 0)
    listed = sum(one.size_bytes for one in there) + program.workers[1].workspace_bytes
    assert sum(amounts.values()) - gaps == listed <= found.total_bytes
    assert listed >= 0.9 * found.total_bytes, "little of an arena is gaps"


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
    made: list[Decided] = []
    unplaced = trial.unplaced

    def counted(graph: Graph, ops: tuple[BoundOp, ...], decided: Decided, *others: Any, **named: Any) -> Unplaced:
        made.append(decided)
        return unplaced(graph, ops, decided, *others, **named)

    monkeypatch.setattr(trial, "unplaced", counted)
    monkeypatch.setattr(trial, "WHOLE_OPS", 1)
    # The same plan, but not the same trial: its program is not made yet.
    found = within(trial_of(first.decided), planned()[0], [limit] * WORKERS, least_cost(CostTables()))
    assert peak(found) <= limit
    assert moved(found) <= 1.02 * moved(by_programs)
    assert len(made) <= 5, "programs are made of what is kept, and where it takes a little too much"


@pytest.mark.slow
def test_a_program_that_takes_more_than_residence_tightens_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, first = planned()
    limit = int(peak(trial_of(first.decided, lean=True)) * 1.01)
    monkeypatch.setattr(trial, "WHOLE_OPS", 1)
    by_program = Trial.lacking_by_program
    asked: list[int] = []

    def lacking(candidate: Trial, limits: Sequence[int]) -> int:
        """As if every program took 3% more than it does."""
        asked.append(by_program(candidate, [int(one / 1.03) for one in limits]))
        return asked[-1]

    monkeypatch.setattr(Trial, "lacking_by_program", lacking)
    found = within(trial_of(first.decided), ask, [limit] * WORKERS, least_cost(ask.tables))
    assert peak(found) <= limit / 1.03
    assert max(asked) > 0, "the plan that was found first did not fit"
