"""What rounding alone does to a result, and what it excuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.runtime.judge import references as judge_module
from planner.runtime.judge.reference import NoReferenceError
from planner.runtime.judge.references import Judge
from planner.runtime.judge.rounding import EXACT, Rounding, nudged

EPS = float(np.finfo(np.float32).eps)


def kinked() -> Graph:
    """A derivative with a kink: y = g where x - c > 0, else 0."""
    shapes = {"x": (64,), "g": (64,), "c": (64,), "d": (64,), "zero": (), "side": (64,), "y": (64,)}
    tensors = {name: Tensor(name, shape, DType.BOOL if name == "side" else DType.FLOAT32)
               for name, shape in shapes.items()}  # fmt: skip
    ops = (
        Op("d", "Sub", ("x", "c"), ("d",)),
        Op("side", "Greater", ("d", "zero"), ("side",)),
        Op("y", "Where", ("side", "g", "zero"), ("y",)),
    )
    return Graph("kinked", tensors, ops, ("x", "g", "c"), ("y",), {"zero": np.zeros((), np.float32)})


@given(st.integers(0, 2**32), st.sampled_from(["Mul", "Conv", "Softmax"]))
def test_a_rounded_result_is_within_one_epsilon(seed: int, op_type: str) -> None:
    exact = np.linspace(-3, 3, 101)
    rough = Rounding(seed).of(op_type, exact, EPS)
    assert 0 < np.abs(rough - exact).max() <= 3 * EPS
    assert np.array_equal(Rounding(seed).of(op_type, exact, EPS), rough)


@pytest.mark.parametrize("op_type", sorted(EXACT))
def test_what_rounds_nothing_is_left_alone(op_type: str) -> None:
    exact = np.linspace(-3, 3, 101)
    assert Rounding(0).of(op_type, exact, EPS) is exact


def test_integers_and_results_without_an_epsilon_are_left_alone() -> None:
    whole = np.arange(5)
    assert Rounding(0).of("Mul", whole, EPS) is whole
    assert Rounding(0).of("Mul", whole / 2, 0.0) is not None


def test_a_side_that_rounding_decides_is_excused_and_no_other() -> None:
    judge = Judge(_summed())
    parts = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    parts[0] = (1.0, 0.51 * EPS, -1.0)  # float32 rounds 1 + 0.51 eps up, and might as well have rounded it down
    parts[1] = (1.0, 0.5, -1.0)
    values = {"a": parts[:, 0].copy(), "b": parts[:, 1].copy(), "c": parts[:, 2].copy(), "g": np.ones(64, np.float32)}
    found, right = judge.compare(1, judge.whole.step(values), values)
    assert found.is_same
    assert found.tensors[0].whole_error == 0.0
    turned = right["y"].copy()
    turned[0] = 0
    (tensor,) = judge.compare(1, {"y": turned}, values)[0].tensors
    assert tensor.is_same
    assert (tensor.error, tensor.noise_error, tensor.is_noise) == (1.0, 1.0, False)
    for wrong in (1 - right["y"], -right["y"], right["y"] * np.float32(1 + 1e-4), 2 * turned):
        assert not judge.compare(1, {"y": wrong}, values)[0].is_same


@pytest.mark.parametrize("op_type", ["Conv", "Mul"])
def test_only_sums_are_off_by_the_rounding_of_partial_sums(op_type: str) -> None:
    exact = np.linspace(-3, 3, 101)
    plain, rough = (Rounding(0, has_partial_sums=has).of(op_type, exact, EPS) for has in (False, True))
    middle = abs(rough[50] - exact[50])
    assert plain[50] == exact[50] == 0
    if op_type == "Mul":
        assert np.array_equal(rough, plain)
    else:
        assert 0 < middle <= 16 * EPS * 3
        assert np.abs(rough - exact).max() <= 32 * EPS * 3


@pytest.mark.parametrize(("op_type", "operands", "terms", "size"), [
    ("ReduceSum", [(256, 8)], 256, 16.0),
    ("ReduceMean", [(256, 8)], 256, 16.0 / 256),
    ("MatMul", [(4, 100), (100, 8)], 100, 10.0),
    ("Gemm", [(1, 100), (100, 8)], 100, 10.0),
    ("Conv", [(1, 16, 5, 5), (8, 16, 3, 3)], 144, 12.0),
])  # fmt: skip
def test_a_sum_that_cancels_is_off_by_what_its_terms_are(
    op_type: str, operands: list[tuple[int, ...]], terms: int, size: float
) -> None:
    """Of n terms of size 1, sqrt(n) epsilons of sqrt(n), though the results are zero."""
    rng = np.random.default_rng(0)
    given: list[np.ndarray | None] = [rng.choice((-1.0, 1.0), shape) for shape in operands]
    zero = np.zeros(8)
    if op_type == "Conv":
        zero = np.zeros((1, 8, 3, 3))
    rough = Rounding(0, has_partial_sums=True).of(op_type, zero, EPS, given)
    most = max(8, terms**0.5) * EPS * size
    assert 0.5 * most < np.abs(rough).max() <= most
    assert not Rounding(0, has_partial_sums=True).of(op_type, zero, EPS).any()


@pytest.mark.parametrize(("first", "is_excused"), [(2e-6, True), (2e-3, False)])
def test_a_side_that_partial_sums_decide_is_excused(first: float, is_excused: bool) -> None:
    """A product whose terms cancel but for a trifle, and what lies behind its sign."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((64, 64)).astype(np.float32)
    weights[:, 0] = np.resize((1.0, -1.0), 64)
    weights[:2, 0] = (first, 0.0)
    names = {"x": (1, 64), "w": (64, 64), "h": (1, 64), "side": (1, 64), "g": (1, 64), "y": (1, 64), "zero": ()}
    graph = Graph(
        "product",
        {name: Tensor(name, size, DType.BOOL if name == "side" else DType.FLOAT32) for name, size in names.items()},
        (
            Op("h", "MatMul", ("x", "w"), ("h",)),
            Op("side", "Greater", ("h", "zero"), ("side",)),
            Op("y", "Where", ("side", "g", "zero"), ("y",)),
        ),
        ("x", "w", "g"),
        ("y",),
        {"zero": np.zeros((), np.float32)},
    )
    values = {"x": np.ones((1, 64), np.float32), "w": weights, "g": np.ones((1, 64), np.float32)}
    judge = Judge(graph)
    turned = {"y": judge.whole.step(values)["y"].copy()}
    assert turned["y"][0, 0] == 1
    turned["y"][0, 0] = 0
    assert judge.compare(1, turned, values)[0].is_same == is_excused


def test_noise_is_looked_at_only_where_a_tensor_fails() -> None:
    judge = Judge(kinked())
    x = np.linspace(1, 2, 64, dtype=np.float32)
    c = np.full(64, 1.5, np.float32)
    values = {"x": x, "g": np.ones(64, np.float32), "c": c}
    right = judge.whole.step(values)
    (tensor,) = judge.compare(1, right, values)[0].tensors
    assert tensor.is_same
    assert tensor.noise_error is None
    turned = right["y"].copy()
    turned[40] = 1 - turned[40]
    (tensor,) = judge.compare(1, {"y": turned}, values)[0].tensors
    assert not tensor.is_same
    assert tensor.noise_error is not None
    assert tensor.noise_error < 9 * EPS, "no x is within rounding of 1.5, and g is nudged"


@pytest.mark.parametrize("has_reference", [True, False])
def test_a_gradient_that_cancels_is_noise_with_and_without_a_reference(
    has_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of what a mean was taken off, as of a bias before a normalisation; and beside it one that is no noise."""
    if not has_reference:
        monkeypatch.setattr(judge_module, "Reference", _no_reference)
    names = {"x": (256, 8), "m": (1, 8), "c": (256, 8), "zero": (8,), "sum": (8,), "a": (1,)}
    graph = Graph(
        "centred",
        {name: Tensor(name, size, DType.INT64 if name == "a" else DType.FLOAT32) for name, size in names.items()},
        (
            Op("m", "ReduceMean", ("x", "a"), ("m",)),
            Op("c", "Sub", ("x", "m"), ("c",)),
            Op("zero", "ReduceSum", ("c", "a"), ("zero",), (("keepdims", 0),)),
            Op("sum", "ReduceSum", ("x", "a"), ("sum",), (("keepdims", 0),)),
        ),
        ("x",),
        ("zero", "sum"),
        {"a": np.array([0])},
    )  # fmt: skip
    x = np.random.default_rng(1).standard_normal((256, 8)).astype(np.float32) * np.float32(1e-6)
    judge = Judge(graph)
    right = judge.whole.step({"x": x})
    centred = x - x.mean(axis=0)
    split = {"zero": centred[:128].sum(axis=0) + centred[128:].sum(axis=0), "sum": x[:128].sum(axis=0) + x[128:].sum(0)}
    assert np.abs(split["zero"] - right["zero"]).max() > 0.1 * np.abs(right["zero"]).max()
    found, _ = judge.compare(1, split, {"x": x})
    assert found.is_same
    assert [tensor.is_noise for tensor in found.tensors] == [True, False]
    assert found.noise == 1
    missing = {"zero": centred[:128].sum(axis=0), "sum": split["sum"]}
    for wrong in (missing, {**split, "sum": x[:128].sum(axis=0)}, {**split, "sum": 2 * split["sum"]}):
        assert not judge.compare(1, wrong, {"x": x})[0].is_same


@pytest.mark.parametrize("has_reference", [True, False])
def test_a_sample_that_overflows_excuses_nothing(has_reference: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest float32 times nearly 1, which a nudge makes more than 1."""
    if not has_reference:
        monkeypatch.setattr(judge_module, "Reference", _no_reference)
    names = {"x": (16,), "y": (16,), "most": ()}
    graph = Graph(
        "most",
        {name: Tensor(name, size, DType.FLOAT32) for name, size in names.items()},
        (Op("y", "Mul", ("x", "most"), ("y",)),),
        ("x",),
        ("y",),
        {"most": np.array(np.finfo(np.float32).max)},
    )
    x = np.full(16, np.nextafter(np.float32(1), np.float32(0)), np.float32)
    judge = Judge(graph)
    right = judge.whole.step({"x": x})["y"]
    assert np.isfinite(right).all()
    assert not all(np.isfinite(judge.whole.step(nudged({"x": x}, seed))["y"]).all() for seed in range(8))
    assert not judge.compare(1, {"y": right / 2}, {"x": x})[0].is_same


def test_whole_numbers_are_not_nudged() -> None:
    """They may be counts, masks or places, in whatever dtype."""
    places = np.array([0, 1, 7, np.inf], np.float32)
    values = {"places": places, "x": np.array([0.5, 1.25], np.float32), "n": np.arange(3)}
    found = nudged(values, 0)
    assert np.array_equal(found["places"], places)
    assert found["n"] is values["n"]
    off = np.abs(found["x"] / values["x"] - 1)
    assert 0 < off.max() <= 9 * EPS
    assert found["x"].dtype == np.float32


def _no_reference(*_args: object, **_options: object) -> None:
    raise NoReferenceError("there is none")


def _summed() -> Graph:
    """The output is g where a + b + c > 0, else 0."""
    names = ("a", "b", "c", "g", "ab", "d", "y")
    tensors = {name: Tensor(name, (64,), DType.FLOAT32) for name in names}
    tensors |= {"side": Tensor("side", (64,), DType.BOOL), "zero": Tensor("zero", (), DType.FLOAT32)}
    ops = (
        Op("ab", "Add", ("a", "b"), ("ab",)),
        Op("d", "Add", ("ab", "c"), ("d",)),
        Op("side", "Greater", ("d", "zero"), ("side",)),
        Op("y", "Where", ("side", "g", "zero"), ("y",)),
    )
    return Graph("summed", tensors, ops, ("a", "b", "c", "g"), ("y",), {"zero": np.zeros((), np.float32)})
