"""The shipped cases again at other opsets, wherever the operator has the same form there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fast_suite import by_night
from planner import opdefs
from planner.features.ops.cases.case import bind_case, by_type
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.execute import ExecutionError
from planner.features.ops.strategies import enumerate_strategies, verify_strategy
from planner.graph.files.protos import MAX_OPSET

CASES = by_type(all_cases())
DESCRIPTIONS = opdefs.standard()


def compared_at(op_type: str, opset: int) -> tuple[int, list[str]]:
    """How many strategies are compared, and those that are wrong."""
    compared, wrong = 0, []
    for case in CASES[op_type]:
        try:
            bound, inputs, whole = bind_case(replace(case, opset=opset), DESCRIPTIONS)
        except ExecutionError:
            continue  # at this opset the operator has another form: axes as an attribute, or no such type
        for candidate in enumerate_strategies(bound, 2):
            verdict = verify_strategy(bound, candidate.strategy, inputs, whole=whole)
            compared += 1
            if verdict.is_wrong:
                wrong.append(f"{case} at opset {opset}: {verdict.text}: {verdict.findings[0].message}")
    return compared, wrong


@pytest.mark.parametrize(("op_type", "opset"), by_night(sorted(CASES), [13, 18, MAX_OPSET], one_of=3))
def test_the_same_op_at_another_opset(op_type: str, opset: int) -> None:
    assert compared_at(op_type, opset)[1] == []


@pytest.mark.parametrize("op_type", ["Softmax", "ReduceSum", "Resize", "GroupNormalization", "Gather", "Split"])
def test_operators_that_changed_at_the_newest_opset(op_type: str) -> None:
    compared, wrong = compared_at(op_type, MAX_OPSET)
    assert compared > 0
    assert wrong == []
