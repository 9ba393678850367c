"""A whole model that is far from float64 is no judge, and hands on no state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.runtime.judge.casts import cast_to_eight_bits
from planner.runtime.judge.far import far_tensors, limits, spread_error
from planner.runtime.judge.precision import fed_strange
from planner.runtime.judge.references import Judge


def regression() -> Graph:
    """w.next = w - 0.0125 Transpose(x) (x w - t): what ONNX Runtime fuses, and has wrong, where w is a vector."""
    shapes = {"x": (16, 6), "t": (16,), "w": (6,), "p": (16,), "r": (16,), "q": (16,), "loss": (), "xt": (6, 16)}
    shapes |= {"g": (6,), "u": (6,), "w.next": (6,), "rate": ()}
    return Graph(
        "regression",
        {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()},
        (
            Op("p", "MatMul", ("x", "w"), ("p",)),
            Op("r", "Sub", ("p", "t"), ("r",)),
            Op("q", "Mul", ("r", "r"), ("q",)),
            Op("loss", "ReduceMean", ("q",), ("loss",), (("keepdims", 0),)),
            Op("xt", "Transpose", ("x",), ("xt",), (("perm", (1, 0)),)),
            Op("g", "MatMul", ("xt", "r"), ("g",)),
            Op("u", "Mul", ("g", "rate"), ("u",)),
            Op("w.next", "Sub", ("w", "u"), ("w.next",)),
        ),
        ("x", "t", "w"),
        ("loss", "w.next"),
        {"rate": np.array(0.0125, np.float32)},
        state=(StatePair("w", "w.next"),),
    )


def drawn() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in
            (("x", (16, 6)), ("t", (16,)), ("w", (6,)))}  # fmt: skip


def by_hand(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, t, w = (values[name].astype(np.float64) for name in ("x", "t", "w"))
    r = x @ w - t
    made = {"loss": np.mean(r * r), "w.next": w - np.float64(np.float32(0.0125)) * (x.T @ r)}
    return {name: np.asarray(value, np.float32) for name, value in made.items()}


class _Wrong:
    """A whole model whose next state is another one, as a fusion makes it."""

    def __init__(self, judge: Judge) -> None:
        self._right = judge.whole.step

    def step(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**self._right(values), "w.next": by_hand({**values, "t": -values["t"]})["w.next"]}


def judge_of(*, is_wrong: bool) -> Judge:
    # Another form of the same, which no release fuses.
    graph = regression()
    ops = tuple(replace(op, op_type="Einsum", attributes=(("equation", "ij,j->i"),)) if op.name == "g" else op
                for op in graph.ops)  # fmt: skip
    judge = Judge(replace(graph, ops=ops))
    if is_wrong:
        judge.whole = _Wrong(judge)  # type: ignore[assignment]
    return judge


def test_a_step_goes_on_from_what_is_right() -> None:
    judge, values = Judge(regression()), drawn()
    losses = []
    for step in range(1, 5):
        right = by_hand(values)
        found, handed_on = judge.compare(step, right, values)
        assert found.is_same
        assert not found.noise
        np.testing.assert_allclose(handed_on["w.next"], right["w.next"], rtol=1e-6)
        losses.append(float(right["loss"]))
        values = {**values, "w": handed_on["w.next"]}
    assert sorted(losses, reverse=True) == losses


def test_the_reference_judges_where_the_whole_model_is_wrong() -> None:
    judge, values = judge_of(is_wrong=True), drawn()
    right = by_hand(values)
    found, handed_on = judge.compare(1, right, values)
    assert [tensor.tensor for tensor in found.far] == ["w.next"]
    assert found.far[0].error > 0.01
    assert found.is_same
    np.testing.assert_allclose(handed_on["w.next"], right["w.next"], rtol=1e-6)
    for wrong in (judge.whole.step(values)["w.next"], values["w"], right["w.next"] * np.float32(1 + 1e-4)):
        assert not judge.compare(2, {**right, "w.next": wrong}, values)[0].is_same


def test_a_right_whole_model_is_never_far() -> None:
    judge, values = judge_of(is_wrong=False), drawn()
    found, handed_on = judge.compare(1, by_hand(values), values)
    assert not found.far
    assert np.array_equal(handed_on["w.next"], judge.whole.step(values)["w.next"])


def test_noise_is_not_far_where_right_runs_differ_as_much() -> None:
    exact = {"b": np.array([1e-9, -2e-9])}
    whole = {"b": np.array([3e-8, 1e-8], np.float32)}
    other = ({"b": np.array([-2e-8, 2e-8], np.float32)}, False)
    alike = ({"b": whole["b"] + np.float32(1e-14)}, False)
    by_reference = ({"b": np.array([2e-8, -3e-8])}, True)
    for samples, expected in (([other], []), ([alike], ["b"]), ([alike, by_reference], []), ([], ["b"])):
        found = far_tensors(whole, exact, {"b": 1e-3}, {}, lambda samples=samples: iter(samples))  # type: ignore[misc]
        assert [tensor.tensor for tensor in found] == expected
    assert far_tensors(whole, exact, {"b": 1e-3}, {}, lambda: iter([other]), {"b"})


def test_an_error_of_a_few_elements_is_not_the_whole_models() -> None:
    right = np.ones(30)
    few, many = right.copy(), right.copy()
    few[:2], many[:3] = 2, 2
    assert spread_error(few, right) == 0
    assert spread_error(many, right) == 1
    assert spread_error(np.array([1.0, np.nan]), np.array([1.0, 5.0])) == 0
    assert spread_error(np.array([np.inf]), np.array([1.0])) == 0


def test_a_wrong_update_is_far_though_it_is_small_beside_the_weight() -> None:
    before = np.full(8, 100, np.float32)
    exact = {"w": before + 1e-2 * np.arange(1.0, 9)}
    whole = {"w": (before - 1e-2 * np.arange(1.0, 9)).astype(np.float32)}
    assert far_tensors(whole, exact, {"w": 1e-3}, {"w": before}, lambda: iter(()))
    assert not far_tensors(whole, exact, {"w": 1e-2}, {}, lambda: iter(()))


def eight_bits(saturate: int) -> Graph:
    tensors = {name: Tensor(name, (9,), DType.FLOAT32) for name in "xy"}
    tensors["q"] = Tensor("q", (9,), DType.FLOAT8E4M3FN)
    ops = (
        Op("q", "Cast", ("x",), ("q",), (("saturate", saturate), ("to", 17))),
        Op("y", "Cast", ("q",), ("y",), (("to", 1),)),
    )
    return Graph("eight", tensors, ops, ("x",), ("y",), {}, opset=19)


@pytest.mark.parametrize("saturate", [0, 1])
def test_a_cast_that_asks_for_nan_is_no_overflow(saturate: int) -> None:
    judge = Judge(eight_bits(saturate))
    x = {"x": np.array([1000, -2000, 449, 464, 465, 0.3, -1.1, 17, 3], np.float32)}
    whole = judge.whole.step(x)
    (tensor,) = judge.compare(1, whole, x)[0].tensors
    assert tensor.is_same
    assert (tensor.strange_elements, tensor.whole_error) == (0 if saturate else 3, 0.0)
    assert not judge.compare(1, {"y": np.nan_to_num(whole["y"], nan=1.0) + np.float32(600)}, x)[0].is_same
    assert limits(judge.graph, judge.eps) == {"y": 0.5}


@pytest.mark.parametrize(("level", "limit"), [(0, 8192 * 2.0**-23), (1, 8192 * 2.0**-23), (4, 2.0**-4)])
def test_a_product_that_may_round_to_bytes_is_not_far(level: int, limit: float) -> None:
    tensors = {name: Tensor(name, (2, 2), DType.FLOAT32) for name in "xwyz"}
    product = Op("y", "MatMulNBits", ("x", "w"), ("y",), (("accuracy_level", level),), "com.microsoft")
    graph = Graph("g", tensors, (product, Op("z", "Exp", ("y",), ("z",))), ("x", "w"), ("z",), {})
    assert limits(graph, {"z": 2.0**-23}) == {"z": limit}


@pytest.mark.parametrize("dtype", [DType.FLOAT8E5M2, DType.FLOAT8E4M3FNUZ])
def test_what_saturates_becomes_the_largest_number(dtype: DType) -> None:
    most = float(ml_dtypes.finfo(dtype.array_dtype).max)
    assert cast_to_eight_bits(np.array([np.inf, -1e9]), dtype, saturates=True).tolist() == [most, -most]
    assert not np.isfinite(cast_to_eight_bits(np.array([np.inf, -1e9]), dtype, saturates=False)).any()


def test_nan_in_the_data_is_no_overflow() -> None:
    """ONNX Runtime's maximum passes NaN over in some places; NumPy's passes it on."""
    tensors = {"x": Tensor("x", (3, 4), DType.FLOAT32), "y": Tensor("y", (3,), DType.FLOAT32)}
    tensors |= {"z": Tensor("z", (3, 4), DType.FLOAT32), "a": Tensor("a", (1,), DType.INT64)}
    tensors["s"] = Tensor("s", (3, 4), DType.FLOAT32)
    ops = (
        Op("y", "ReduceMax", ("x", "a"), ("y",), (("keepdims", 0),)),
        Op("z", "Exp", ("s",), ("z",)),
    )
    graph = Graph("g", tensors, ops, ("x", "s"), ("y", "z"), {"a": np.array([1])}, opset=18)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = {"x": x.copy(), "s": x / 10}
    values["x"][0, 0] = np.nan
    assert fed_strange(graph, values) == {"y"}
    judge = Judge(graph)
    whole = judge.whole.step(values)
    exact = {"y": np.array([np.nan, 7, 11]), "z": np.exp(values["s"].astype(np.float64))}
    judge.exact = lambda values: exact  # type: ignore[method-assign]
    judge.whole.step = lambda values: {"y": np.array([3, 7, 11], np.float32), "z": whole["z"]}  # type: ignore[method-assign]
    split = judge.whole.step(values)
    found = judge.compare(1, split, values)[0]
    assert found.is_same
    assert (found.untold_elements, found.strange_elements) == (1, 0)
    assert not judge.compare(1, {**split, "y": np.array([2, 7, 11], np.float32)}, values)[0].is_same
    # Where inputs are finite, it is one.
    values["x"][0, 0] = 0
    assert "overflows" in judge.compare(1, split, values)[0].tensors[0].remark
