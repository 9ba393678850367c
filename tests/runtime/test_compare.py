"""The acceptance rule."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.runtime.judge.compare import (
    OVERFLOW,
    WHOLE_EPS,
    Noise,
    compare_step,
    compare_tensor,
    difference,
    errors,
    worst,
    worst_tensor,
)
from planner.runtime.judge.precision import coarsest_eps

EPS = float(np.finfo(np.float32).eps)


def test_errors_are_relative_to_the_largest_element() -> None:
    exact = np.array([4.0, 0.0, 1e-9])
    assert errors(np.array([4.0, 0.0, 2.0]), exact) == (pytest.approx(0.5), 0.0)
    assert errors(np.array([5.0, 1.0, 1.0]), exact) == (0.25, 0.25)


def test_where_the_reference_is_zero_errors_are_absolute() -> None:
    assert errors(np.array([0.0, 0.25]), np.zeros(2)) == (0.25, 0.125)
    assert errors(np.zeros(2), np.zeros(2)) == (0.0, 0.0)
    assert errors(np.zeros(0), np.zeros(0)) == (0.0, 0.0)


def test_what_is_not_finite_must_be_so_in_both() -> None:
    exact = np.array([2.0, -np.inf, np.nan, np.inf])
    assert errors(np.array([2.0, -np.inf, np.nan, np.inf]), exact) == (0.0, 0.0)
    for wrong in ([2.0, np.inf, np.nan, np.inf], [2.0, -np.inf, 0.0, np.inf], [np.nan, -np.inf, np.nan, np.inf]):
        assert errors(np.array(wrong), exact)[0] == np.inf
    assert errors(np.array([np.nan]), np.array([np.nan])) == (0.0, 0.0)


def test_four_times_the_whole_runs_error_is_the_limit() -> None:
    exact = np.array([1.0, 0.5])
    whole = np.array([1.0 + 1e-4, 0.5 + 1e-4], np.float32)
    assert compare_tensor("y", np.array([1 + 3.9e-4, 0.5], np.float32), whole, exact).is_same
    assert not compare_tensor("y", np.array([1 + 4.1e-4, 0.5], np.float32), whole, exact).is_same


def test_noise_around_a_zero_is_compared_with_noise() -> None:
    exact = np.array([1e-19, -1e-19])
    whole = np.array([1e-10, -2e-10], np.float32)
    assert compare_tensor("y", np.array([9e-10, 9e-10], np.float32), whole, exact).is_same
    assert not compare_tensor("y", np.array([1e-7, 1e-7], np.float32), whole, exact).is_same


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_where_the_whole_model_overflows_nothing_is_accepted(value: float) -> None:
    exact = np.array([1e39, 2e39])
    whole = np.full(2, value, np.float32)
    for split in (np.zeros(2, np.float32), whole, np.array([1, 2], np.float32)):
        found = compare_tensor("y", split, whole, exact)
        assert not found.is_same
        assert str(found) == f"y: {OVERFLOW}"


def test_a_finite_whole_run_does_not_excuse_a_reference_that_is_not() -> None:
    assert not compare_tensor("y", np.zeros(2, np.float32), np.ones(2, np.float32), np.array([np.nan, 1])).is_same


def test_what_is_finite_nowhere_is_accepted_and_counted() -> None:
    exact = np.array([1.0, np.nan, -np.inf])
    whole = exact.astype(np.float32)
    found = compare_tensor("y", whole, whole, exact)
    assert found.is_same
    assert (found.strange_elements, found.finite_elements) == (2, 1)
    assert not compare_tensor("y", np.array([1, 0, -np.inf], np.float32), whole, exact).is_same
    assert not compare_tensor("y", np.array([0, np.nan, -np.inf], np.float32), whole, exact).is_same


@pytest.mark.parametrize("has_reference", [True, False])
def test_a_step_of_nothing_but_nan_is_not_verified(has_reference: bool) -> None:
    arrays = {"y": np.full(3, np.nan, np.float32), "count": np.array([1])}
    step = compare_step(2, arrays, arrays, arrays if has_reference else None)
    assert all(tensor.is_same for tensor in step.tensors)
    assert not step.is_same
    error = difference((step,))
    assert error is not None
    assert error.facts == ("step 2: nothing could be compared, no element of any tensor is finite",)


@pytest.mark.parametrize("off", [0.07, 0.2])
def test_zeros_and_a_flipped_sign_are_not_taken_for_noise(off: float) -> None:
    exact = np.linspace(-1, 1, 11)
    whole = (exact * (1 + off)).astype(np.float32)
    assert compare_tensor("y", whole, whole, exact).is_noise
    assert compare_tensor("y", (exact * (1 - 2 * off)).astype(np.float32), whole, exact).is_same
    assert not compare_tensor("y", np.zeros(11, np.float32), whole, exact).is_same
    assert not compare_tensor("y", -whole, whole, exact).is_same


@pytest.mark.parametrize("off", [0.5, 7.0])
def test_zeros_are_not_taken_for_noise_however_large_it_is(off: float) -> None:
    exact = np.array([1.0, -1.0, 0.5])
    whole = (exact * (1 + off)).astype(np.float32)
    found = compare_tensor("y", np.zeros(3, np.float32), whole, exact)
    assert not found.is_same
    assert "its largest element is 0.00e+00" in str(found)


def test_noise_of_a_right_run_is_accepted() -> None:
    """The figures are those of an attention's key bias in a BERT step; a single element may be near zero by chance."""
    exact = np.array([1e-13, -1e-13])
    whole = (exact * 1.35).astype(np.float32)
    assert compare_tensor("y", (exact * 2.6).astype(np.float32), whole, exact).is_same
    tiny = np.array([1e-19])
    assert compare_tensor("y", np.zeros(1, np.float32), np.array([1e-10], np.float32), tiny).is_same


def test_the_coarsest_precision_on_the_way_gives_the_tolerance() -> None:
    kinds = {"x": DType.FLOAT32, "h": DType.FLOAT16, "p": DType.FLOAT16, "y": DType.FLOAT32, "z": DType.FLOAT32}
    graph = Graph(
        "casts",
        {**{name: Tensor(name, (3,), dtype) for name, dtype in kinds.items()}, "n": Tensor("n", (3,), DType.INT64)},
        (
            Op("down", "Cast", ("x",), ("h",)),
            Op("product", "Mul", ("h", "h"), ("p",)),
            Op("up", "Cast", ("p",), ("y",)),
            Op("direct", "Neg", ("x", ""), ("z", "")),
            Op("round", "Cast", ("p",), ("n",)),
        ),
        ("x",),
        ("y", "z", "n", "x"),
        {},
    )
    eps = coarsest_eps(graph)
    half = float(np.finfo(np.float16).eps)
    assert eps == {"y": half, "z": EPS, "x": EPS}
    exact = {"y": np.ones(3), "z": np.ones(3), "n": np.ones(3, np.int64)}
    whole = {name: array.astype(np.int64 if name == "n" else np.float32) for name, array in exact.items()}
    split = {**whole, "y": np.full(3, 1 + 4.6e-4, np.float32)}
    assert not compare_step(1, split, whole, exact).is_same
    assert compare_step(1, split, whole, exact, eps).is_same
    assert not compare_step(1, {**split, "z": split["y"]}, whole, exact, eps).is_same
    assert not compare_step(1, {**split, "n": whole["n"] + 1}, whole, exact, eps).is_same


def test_sixty_four_epsilons_are_always_accepted() -> None:
    exact = np.ones(3)
    whole = np.ones(3, np.float32)
    assert compare_tensor("y", np.full(3, 1 + 60 * EPS, np.float32), whole, exact).is_same
    assert not compare_tensor("y", np.full(3, 1 + 70 * EPS, np.float32), whole, exact).is_same


def test_the_median_is_judged_too() -> None:
    """One large element of the whole run must not excuse an error in all elements of the split one."""
    exact = np.ones(101)
    whole = np.ones(101, np.float32)
    whole[0] = 1.5
    found = compare_tensor("y", np.full(101, 1.01, np.float32), whole, exact)
    assert found.error < found.limit
    assert not found.is_same


def test_integers_must_be_equal() -> None:
    whole = np.array([1, 2, 3, 4])
    assert compare_tensor("y", whole.copy(), whole, None).is_same
    found = compare_tensor("y", np.array([1, 2, 3, 5]), whole, whole)
    assert not found.is_same
    assert found.error == 0.25
    assert compare_tensor("y", np.array([True]), np.array([True]), None).is_same


def test_without_a_reference_the_whole_run_stands_in() -> None:
    whole = np.ones(3, np.float32)
    close = compare_tensor("y", np.array([1, 1, 1 + 0.9 * WHOLE_EPS * EPS], np.float32), whole, None)
    assert close.is_same
    assert not close.has_reference
    assert "whole run" in str(close)
    assert not compare_tensor("y", np.array([1, 1, 1 + 1.1 * WHOLE_EPS * EPS], np.float32), whole, None).is_same


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions(dtype: object) -> None:
    whole = np.ones(3, dtype)
    assert compare_tensor("y", whole, whole, np.ones(3)).is_same
    assert not compare_tensor("y", np.full(3, 3, dtype), whole, np.ones(3)).is_same


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_eight_bits_do_not_excuse_zeros(dtype: type) -> None:
    """64 of such an epsilon are more than the largest error that there can be."""
    exact = np.linspace(-3, 5, 33)
    whole = exact.astype(dtype)
    assert compare_tensor("y", whole, whole, exact).is_same
    assert not compare_tensor("y", np.zeros_like(whole), whole, exact).is_same
    assert not compare_tensor("y", np.negative(whole), whole, exact).is_same


def test_a_difference_names_step_and_tensor() -> None:
    whole = {"loss": np.ones((), np.float32), "W": np.ones(2, np.float32)}
    split = {"loss": np.ones((), np.float32), "W": np.array([1, 2], np.float32)}
    step = compare_step(3, split, whole, {name: np.ones_like(array, np.float64) for name, array in whole.items()})
    assert not step.is_same
    assert worst((step,)) == 1.0
    error = difference((step,))
    assert error is not None
    assert error.exit_code == 1
    assert error.facts[0].startswith("step 3, W: 1.00e+00 of the largest element off the reference")
    assert worst_tensor((step,)) == (3, step.tensors[1])
    assert worst_tensor(()) is None
    assert difference(()) is None
    assert worst(()) == 0.0


@pytest.mark.parametrize("has_reference", [True, False])
def test_what_is_exactly_zero_may_be_as_large_as_rounding_makes_it(has_reference: bool) -> None:
    zero = np.zeros(3)
    whole = np.array([0, 1e-9, 0] if has_reference else [0, 0, 0], np.float32)
    small, large = np.full(3, 5e-8, np.float32), np.full(3, 5e-6, np.float32)
    noise = Noise(1e-9, 1e-10)
    exact = zero if has_reference else None
    found = compare_tensor("y", small, whole, exact, noise=noise)
    assert (found.is_same, found.is_noise) == (True, True)
    assert found.error < found.limit == pytest.approx(6.4e-8)
    assert not compare_tensor("y", large, whole, exact, noise=noise).is_same
    assert not compare_tensor("y", small, np.zeros(3, np.float32), exact).is_same
    nothing = compare_tensor("y", np.zeros(3, np.float32), np.zeros(3, np.float32), exact)
    assert (nothing.is_same, nothing.is_noise) == (True, False)


@pytest.mark.parametrize("has_reference", [True, False])
def test_a_wrong_update_does_not_hide_in_a_large_state(has_reference: bool) -> None:
    """A change of 2e-6 of the state is below 64 epsilons of it."""
    before = np.linspace(0.5, 1, 9).astype(np.float32)
    update = 2e-6 * np.linspace(-1, 1, 9)
    exact = before + update
    whole = exact.astype(np.float32)
    given = exact if has_reference else None
    assert compare_tensor("w", whole, whole, given, before=before).is_same
    assert compare_tensor("w", np.nextafter(whole, np.float32(2)), whole, given, before=before).is_same
    for wrong in (before, before - update, before + 2 * update):
        split = wrong.astype(np.float32)
        assert not compare_tensor("w", split, whole, given, before=before).is_same
        assert compare_tensor("w", split, whole, given).is_same, "it is what the state hides"


def test_noise_is_recognised_without_a_reference() -> None:
    """Two right runs of a sum that cancels have nothing in common but their size."""
    rng = np.random.default_rng(0)
    whole, split = (1e-9 * rng.standard_normal((2, 64))).astype(np.float32)
    assert not compare_tensor("y", split, whole, None).is_same
    found = compare_tensor("y", split, whole, None, noise=Noise(1.3, 0.3))
    assert (found.is_same, found.is_noise) == (True, True)
    for wrong in (np.zeros_like(split), 1e3 * split):
        assert not compare_tensor("y", wrong, whole, None, noise=Noise(1.3, 0.3)).is_same
    # A few elements on the other side of a kink make no noise of the others.
    assert not compare_tensor("y", split, whole, None, noise=Noise(1.3, 1e-6)).is_noise
