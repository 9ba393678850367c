"""Every strategy of every described operator, executed split and whole."""

from __future__ import annotations

import pytest

import opdefs
from planner.tdl.bind import Descriptions
from planner.verify.cases import Case, all_cases, bind_case, by_type
from planner.verify.strategies import enumerate_strategies, replicated, verify_strategy

CASES = by_type(all_cases())
DESCRIPTIONS = opdefs.standard()
VETOED = {"Conv", "ConvTranspose", "ReduceMean"}
"""Grouped convolutions whose parts hold parts of groups; means of integers. Nothing else may be vetoed."""


def wrong_strategies(case: Case, descriptions: Descriptions, *ways: int) -> list[str]:
    bound, inputs, whole = bind_case(case, descriptions)
    wrong = []
    for candidate in enumerate_strategies(bound, *ways):
        verdict = verify_strategy(bound, candidate.strategy, inputs, whole=whole)
        assert verdict.is_vetoed == bool(candidate.veto)
        assert not verdict.is_vetoed or case.op_type in VETOED, f"{case}: {candidate.text}: {candidate.veto}"
        wrong += [f"{case}: {verdict.text}: {finding.message}" for finding in verdict.findings if verdict.is_wrong]
    return wrong


def test_every_described_type_has_a_case() -> None:
    described = {op_type for domain, op_type in DESCRIPTIONS.described if domain == ""}
    assert described - set(CASES) == set()


@pytest.mark.parametrize("op_type", sorted(CASES))
def test_every_cut_gives_what_the_whole_op_gives(op_type: str) -> None:
    wrong = [text for case in CASES[op_type] for ways in (2, 3) for text in wrong_strategies(case, DESCRIPTIONS, ways)]
    assert wrong == []


@pytest.mark.parametrize("op_type", sorted(CASES))
def test_replicated_work_is_the_whole_op(op_type: str) -> None:
    for case in CASES[op_type]:
        bound, inputs, whole = bind_case(case, DESCRIPTIONS)
        verdict = verify_strategy(bound, replicated(bound, 2), inputs, whole=whole)
        assert verdict.findings == (), str(case)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", sorted(CASES))
def test_every_pair_of_cuts_gives_what_the_whole_op_gives(op_type: str) -> None:
    pairs = ((2, 2), (2, 3), (3, 2))
    wrong = [text for case in CASES[op_type] for ways in pairs for text in wrong_strategies(case, DESCRIPTIONS, *ways)]
    assert wrong == []


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "MatMul", "Gemm", "MaxPool", "ScatterND", "ReduceMean"])
def test_pairs_of_cuts_where_halos_and_reductions_meet(op_type: str) -> None:
    for case in CASES[op_type][:3]:
        assert wrong_strategies(case, DESCRIPTIONS, 2, 2) == []
