"""Prices of memory against an independent solver (HiGHS) of the same linear programme."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from planner.search.memory.prices import cheapest_mixture


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Objectives, and by plan and moment what is above the limit."""
    count, moments = draw(st.integers(1, 10)), draw(st.integers(1, 5))
    row = st.lists(st.integers(-300, 300), min_size=moments, max_size=moments)
    return (
        draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count)),
        draw(st.lists(row, min_size=count, max_size=count)),
    )


@given(plans(), st.sampled_from([1, 5, 1024]))
def test_the_mixture_costs_what_another_solver_finds_and_no_plan_is_cheaper_at_its_prices(
    drawn: tuple[list[int], list[list[int]]], highest: int
) -> None:
    objectives, excesses = drawn
    objective, prices = cheapest_mixture(objectives, excesses, Fraction(highest))
    count, moments = len(objectives), len(excesses[0])
    peer = linprog(
        objectives + [highest] * moments,
        A_ub=np.hstack([np.array(excesses).T, -np.eye(moments)]),
        b_ub=np.zeros(moments),
        A_eq=[[1] * count + [0] * moments],
        b_eq=[1],
    )
    assert float(objective) == pytest.approx(peer.fun, abs=1e-6)
    assert all(0 <= price <= highest for price in prices)
    charged = [
        alone + sum(price * excess for price, excess in zip(prices, row, strict=True))
        for alone, row in zip(objectives, excesses, strict=True)
    ]
    assert min(charged) == objective


def test_prices_of_two_plans_are_the_secant_between_them() -> None:
    assert cheapest_mixture([10, 40], [[20], [-40]], Fraction(1024)) == (20, (Fraction(1, 2),))
