"""Ops in steps: the leanest choice tells first whether any fits."""

from __future__ import annotations

import pytest

from planner import opdefs
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.planning.goal import least_cost
from planner.planning.limit.fit import within
from planner.planning.limit.in_steps import TIMES, fitted_by_steps
from planner.planning.limit.trial import Trial
from planner.planning.thresholds import Work
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.stop import Stop


def product() -> Decision:
    tensors = {name: Tensor(name, (256, 256), DType.FLOAT32) for name in "aby"}
    graph = Graph("one", tensors, (Op("op", "MatMul", ("a", "b"), ("y",), ()),), ("a", "b"), ("y",), {})
    return decide(graph, opdefs.standard().bind_all(graph), SearchRequest(8, partitioned_inputs=True, effort="quick"))


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """The plans whose programs are asked what they lack, as they are asked."""
    asked: list[Trial] = []
    by_program = Trial.lacking_by_program

    def lacking(candidate: Trial, limits: tuple[int, ...]) -> int:
        asked.append(candidate)
        return by_program(candidate, limits)

    monkeypatch.setattr(Trial, "lacking_by_program", lacking)
    return asked


def test_the_leanest_choice_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, limits, asked = product(), (180 << 10,) * 8, watched(monkeypatch)
    found = fitted_by_steps(Trial(plan), limits, Stop())
    assert found is not None
    counts = [steps.count for candidate in asked if (steps := candidate.decided.strategies["op"].steps) is not None]
    assert counts[0] == max(counts), "the leanest comes first"
    assert found is asked[-1]
    assert counts[1:] == sorted(counts[1:]), "where it fits, the fewest steps that fit are looked for"
    asked.clear()
    too_little = (10 << 10,) * 8
    leanest = fitted_by_steps(Trial(plan), too_little, Stop())
    assert leanest is not None
    assert len(asked) == 1, "where the leanest does not fit, nothing else is tried"
    assert leanest.lacking_by_program(too_little) > 0


def test_a_large_plan_is_tried_in_the_most_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, limits, asked = product(), (180 << 10,) * 8, watched(monkeypatch)
    monkeypatch.setattr(Work.TRIALS, "most_ops", 0)
    large = fitted_by_steps(Trial(plan), limits, Stop())
    assert large is not None
    assert len(asked) == 1
    steps = large.decided.strategies["op"].steps
    assert steps is not None
    assert steps.count >= TIMES[-1]


def test_a_refusal_states_what_the_plan_in_steps_would_take() -> None:
    plan = product()
    ask = SearchRequest(8, partitioned_inputs=True, effort="quick", tables=CostTables())
    with pytest.raises(InfeasibleError, match="no plan was found that fits") as refused:
        within(Trial(plan), ask, (100 << 10,) * 8, least_cost(CostTables()), may_step=True)
    leanest = fitted_by_steps(Trial(plan), (100 << 10,) * 8, Stop())
    assert leanest is not None
    enough = max(leanest.partitioned.program.peak_bytes)
    assert enough < max(Trial(plan, is_lean=True).partitioned.program.peak_bytes)
    assert f"--memory {enough}B" in str(refused.value.hint)


def test_no_steps_are_tried_where_inputs_alone_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, asked = product(), watched(monkeypatch)
    ask = SearchRequest(8, partitioned_inputs=True, effort="quick", tables=CostTables())
    # The two inputs take 64 KiB on each of eight workers.
    with pytest.raises(InfeasibleError):
        within(Trial(plan), ask, (60 << 10,) * 8, least_cost(CostTables()), may_step=True)
    assert asked
    assert all(candidate.decided.strategies["op"].steps is None for candidate in asked)
