"""Every strategy of every described operator, executed split and whole; those that are missing, by brute force."""

from __future__ import annotations

import pytest

from planner import opdefs
from planner.algebra.tiling import Replicate, Tiling
from planner.features.ops.cases.case import bind_case, by_type, qualified
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.strategies import verify_strategy
from planner.features.ops.verification import QUICK, THOROUGH, verify_operator

CASES = by_type(all_cases())
DESCRIPTIONS = opdefs.standard()


def test_every_described_type_has_a_case() -> None:
    assert {qualified(*key) for key in DESCRIPTIONS.described} - set(CASES) == set()


@pytest.mark.parametrize("op_type", sorted(CASES))
def test_every_cut_gives_what_the_whole_op_gives_and_none_is_missing(op_type: str) -> None:
    found = verify_operator(op_type, CASES[op_type], DESCRIPTIONS, ways=QUICK)
    assert found.wrong == ()
    assert found.missing == ()


@pytest.mark.parametrize("op_type", sorted(CASES))
def test_replicated_work_is_the_whole_op(op_type: str) -> None:
    assert CASES[op_type]
    for case in CASES[op_type][:4]:
        bound, inputs, whole = bind_case(case, DESCRIPTIONS)
        verdict = verify_strategy(bound, Tiling((Replicate(),), (2,)), inputs, whole=whole)
        assert verdict.findings == (), str(case)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", sorted(CASES))
def test_every_pair_of_cuts_gives_what_the_whole_op_gives(op_type: str) -> None:
    found = verify_operator(op_type, CASES[op_type], DESCRIPTIONS, ways=THOROUGH)
    assert found.wrong == ()
    assert found.missing == ()


@pytest.mark.parametrize(
    "op_type", ["Conv", "ConvTranspose", "MatMul", "Gemm", "MaxPool", "Gather", "ScatterND", "ReduceMean", "Attention"]
)
def test_pairs_of_cuts_where_halos_and_reductions_meet(op_type: str) -> None:
    assert verify_operator(op_type, CASES[op_type][:3], DESCRIPTIONS, ways=[(2, 2)]).wrong == ()
