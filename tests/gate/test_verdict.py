"""Verdicts: what is more than allowed, and which ops made it so."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.gate.baseline import ModelCosts, PlanCost
from planner.gate.verdict import CheckResult, Verdict, judge

OPS = {"00000.MatMul.a": "[4] -> [4]", "00001.Relu.b": "[4] -> [4]"}
PLACES = {"00000.MatMul.a": ("product",), "00001.Relu.b": ("one", "two")}


def verdict(before: PlanCost, now: PlanCost, allowed: Fraction = Fraction(0), **changed: str) -> Verdict:
    """Judges two plans of one model, whose shapes were others at some op types."""
    forms = {key: changed.get(key.split(".")[1], form) for key, form in OPS.items()}
    known = ModelCosts("s", forms, {4: before})
    return judge("m", 4, ModelCosts("s", OPS, {}), PLACES, now, known, allowed)


def cost(moved: int = 100, peak: int = 50, gap: float | None = None, excess: int = 7, **op_costs: int) -> PlanCost:
    by_op = {key: op_costs[kind] for key in OPS if (kind := key.split(".")[1]) in op_costs}
    return PlanCost(moved + excess, moved, peak, gap, by_op)


def test_equal_costs_pass() -> None:
    found = verdict(cost(MatMul=100), cost(MatMul=100))
    assert found.is_passed
    assert (found.grew, found.fell, found.ops) == ((), (), ())


def test_growth_names_its_ops_the_largest_first() -> None:
    found = verdict(cost(100, MatMul=60, Relu=40), cost(110, MatMul=62, Relu=48))
    assert found.grew == ("cost", "moved_bytes")
    assert [(op.names, op.op_type, op.growth) for op in found.ops] == [
        (("one", "two"), "Relu", 8),
        (("product",), "MatMul", 2),
    ]
    found = verdict(cost(100, MatMul=100), cost(101, MatMul=40, Relu=61))
    assert [op.names for op in found.ops] == [("one", "two")], "what costs less is not to blame"


def test_excess_grows_alone_and_may_pay_for_what_moves_less() -> None:
    assert verdict(cost(100, excess=5), cost(100, excess=6)).grew == ("cost",)
    traded = verdict(cost(100, excess=5), cost(80, excess=25))
    assert (traded.grew, traded.fell) == ((), ("moved_bytes",))
    assert traded.is_passed
    dearer = verdict(cost(100, excess=5), cost(103, excess=0))
    assert (dearer.grew, dearer.fell) == (("moved_bytes",), ("cost",))


def test_memory_that_grew_names_the_ops_of_other_sizes() -> None:
    found = verdict(cost(peak=50), cost(peak=51), MatMul="[3] -> [3]")
    assert found.grew == ("peak_bytes",)
    assert [(op.names, op.shapes_before, op.shapes) for op in found.ops] == [(("product",), "[3] -> [3]", "[4] -> [4]")]


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.fractions(0, 3))
def test_exactly_what_is_allowed_passes(before: int, now: int, allowed: Fraction) -> None:
    found = verdict(cost(before, before, excess=0), cost(now, now, excess=0), allowed)
    assert found.is_passed == (Fraction(now) <= before * (1 + allowed))
    assert bool(found.fell) == (now < before)
    assert not (found.grew and found.fell)


@pytest.mark.parametrize(
    ("before", "now", "grew", "fell"),
    [
        (None, None, False, False),
        (None, 0.5, False, True),
        (0.0, None, True, False),
        (0.0, 0.0, False, False),
        (0.0, 0.000001, False, False),
        (0.0, 0.02, True, False),
        (0.01, 0.02, False, False),
        (0.01, 0.0201, True, False),
        (0.02, 0.01, False, True),
    ],
)
def test_gaps_are_compared_in_their_own_unit(before: float | None, now: float | None, grew: bool, fell: bool) -> None:
    allowed = Fraction(1, 100)
    found = verdict(cost(gap=before), cost(gap=now), allowed)
    assert (found.grew == ("certified_gap",), found.fell == ("certified_gap",)) == (grew, fell)


def test_what_the_baseline_does_not_know_is_new() -> None:
    model = ModelCosts("s", OPS, {})
    assert judge("m", 4, model, PLACES, cost(), None, Fraction(0)).baseline is None
    known = ModelCosts("s", OPS, {2: cost()})
    assert judge("m", 4, model, PLACES, cost(), known, Fraction(0)).is_passed


def test_a_baseline_that_was_just_written_is_what_is_wanted() -> None:
    bad = verdict(cost(100), cost(200))
    assert not CheckResult("c.json", Fraction(0), (bad,), is_updated=False).is_passed
    assert CheckResult("c.json", Fraction(0), (bad,), is_updated=True).is_passed
