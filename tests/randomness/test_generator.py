"""Random operators as functions of seed, operator, step and index: what they are, and that they look random."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import UnsupportedError
from planner.graph.core.check import check_graph
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.decompositions.randomness import STEP, lower_randomness
from planner.graph.rewriting import random_numbers
from planner.runtime.judge.reference import Reference
from planner.runtime.judge.whole import WholeModel

SHAPE = (200, 333)
COUNT = SHAPE[0] * SHAPE[1]
X = np.random.default_rng(0).random(SHAPE, dtype=np.float32)


def graph_of(*ops: Op, opset: int = 21, shape: tuple[int, ...] = SHAPE, **constants: np.ndarray) -> Graph:
    """Ops on x, all of its shape; a tensor called mask is boolean."""
    tensors = {"x": Tensor("x", shape, DType.FLOAT32)}
    tensors |= {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in constants.items()}
    for op in ops:
        for name in op.outputs:
            tensors[name] = Tensor(name, shape, DType.BOOL if name.startswith("mask") else DType.FLOAT32)
    outputs = tuple(name for op in ops for name in op.outputs)
    return Graph("g", tensors, ops, ("x",), outputs, dict(constants), frozenset(constants), opset=opset)


def random_op(op_type: str, name: str, **attributes: Attribute) -> Op:
    reads = () if op_type in ("RandomNormal", "RandomUniform") else ("x",)
    if not reads:
        attributes["shape"] = SHAPE
    return Op(f"{name}_op", op_type, reads, (name,), tuple(sorted(attributes.items())))


def dropout(name: str = "y", ratio: str = "ratio", **attributes: Attribute) -> Op:
    stated = tuple(sorted(attributes.items()))
    return Op(f"{name}_op", "Dropout", ("x", ratio, "train"), (name, f"mask_{name}"), stated)


TRAIN = np.array(True)


def draw(graph: Graph, step: int = 0, x: np.ndarray = X) -> Mapping[str, np.ndarray]:
    lowered = lower_randomness(graph)
    check_graph(lowered)
    return WholeModel(lowered).step({"x": x, STEP: np.array(step, np.uint32)})


def sigmas(found: float, wanted: float, deviation: float, count: int = COUNT) -> float:
    return abs(found - wanted) / (deviation / np.sqrt(count))


@pytest.mark.parametrize("opset", [13, 18, 21, 22])
def test_moments(opset: int) -> None:
    """Every opset has the kernels that are used; from 22 on it has none for the random operators themselves."""
    made = draw(
        graph_of(
            random_op("RandomNormal", "normal", mean=1.0, scale=2.0),
            random_op("RandomNormalLike", "standard"),
            random_op("RandomUniform", "uniform", low=-1.0, high=3.0),
            random_op("RandomUniformLike", "unit"),
            random_op("Bernoulli", "coins"),
            opset=opset,
        )
    )
    assert sigmas(made["normal"].mean(), 1.0, 2.0) < 4
    assert sigmas(made["normal"].var(), 4.0, 4 * np.sqrt(2)) < 4
    standard = made["standard"].astype(float)
    assert sigmas((standard**3).mean(), 0.0, np.sqrt(15)) < 4
    assert sigmas((standard**4).mean(), 3.0, np.sqrt(96)) < 4
    assert np.abs(standard).max() > 3.5
    assert sigmas(made["uniform"].mean(), 1.0, 4 / np.sqrt(12)) < 4
    assert made["uniform"].min() >= -1
    assert made["uniform"].max() <= 3
    assert made["unit"].max() < 1
    assert sigmas(made["unit"].var(), 1 / 12, np.sqrt(1 / 180)) < 4
    assert set(np.unique(made["coins"])) == {0.0, 1.0}
    assert abs((made["coins"] - X).mean()) * np.sqrt(COUNT) < 4 * np.sqrt(1 / 6)


def test_the_distribution_is_normal_and_uniform() -> None:
    """Kolmogorov's distance; 1.95 / sqrt(n) is passed in 1 of 1000."""
    made = draw(graph_of(random_op("RandomNormalLike", "n"), random_op("RandomUniformLike", "u")))
    steps = np.arange(1, COUNT + 1) / COUNT
    uniform = np.sort(made["u"].astype(float).ravel())
    assert np.abs(uniform - steps).max() * np.sqrt(COUNT) < 1.95
    from statistics import NormalDist

    normal = np.array([NormalDist().cdf(float(value)) for value in np.sort(made["n"].ravel())])
    assert np.abs(normal - steps).max() * np.sqrt(COUNT) < 1.95


def test_neighbours_steps_and_ops_are_independent() -> None:
    graph = graph_of(random_op("RandomUniformLike", "one"), random_op("RandomUniformLike", "two"))
    steps = [draw(graph, step) for step in range(3)]
    one = steps[0]["one"].astype(float)
    others = [
        steps[0]["two"],
        steps[1]["one"],
        steps[2]["one"],
        np.roll(one, 1, axis=1),
        np.roll(one, 1, axis=0),
        np.roll(one, 64, axis=1),
    ]
    for other in others:
        correlation = np.corrcoef(one.ravel(), other.astype(float).ravel())[0, 1]
        assert abs(correlation) * np.sqrt(COUNT) < 4
    pairs = np.histogram2d(one[:, :-1].ravel(), one[:, 1:].ravel(), bins=32)[0]
    expected = pairs.sum() / 1024
    assert abs(((pairs - expected) ** 2 / expected).sum() - 1023) < 5 * np.sqrt(2 * 1023)


def test_the_same_seed_op_and_step_give_the_same_numbers() -> None:
    graph = graph_of(random_op("RandomNormalLike", "n", seed=3.0))
    first = draw(graph, 5)["n"]
    assert np.array_equal(first, draw(graph, 5)["n"])
    for other in (
        draw(graph, 6)["n"],
        draw(graph_of(random_op("RandomNormalLike", "n", seed=4.0)), 5)["n"],
        draw(graph_of(replace(graph.ops[0], name="elsewhere")), 5)["n"],
    ):
        assert (first == other).mean() < 0.001


def test_the_float64_twin_draws_the_same() -> None:
    graph = graph_of(
        random_op("RandomNormalLike", "n"),
        random_op("Bernoulli", "b"),
        dropout(),
        ratio=np.float32([0.3])[0],
        train=TRAIN,
    )
    lowered = lower_randomness(graph)
    values = {"x": X, STEP: np.array(7, np.uint32)}
    whole, twin = WholeModel(lowered).step(values), Reference(lowered).step(values)
    assert np.abs(whole["n"] - twin["n"]).max() < 2e-6
    for name in ("b", "mask_y", f"{STEP}.next"):
        assert np.array_equal(whole[name], twin[name])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout(share: float) -> None:
    made = draw(graph_of(dropout(), ratio=np.array(share, np.float32), train=TRAIN))
    mask = made["mask_y"]
    assert sigmas(mask.mean(), 1 - np.float32(share), np.sqrt(share * (1 - share)) or 1e-12) < 4
    assert np.array_equal(made["y"][~mask], np.zeros((~mask).sum(), np.float32))
    if share < 1:
        factor = np.float32(1 / (1 - float(np.float32(share))))
        assert np.array_equal(made["y"][mask], X[mask] * factor)


def test_a_ratio_that_is_computed() -> None:
    graph = graph_of(dropout(ratio="share"), train=TRAIN)
    share = Tensor("share", (), DType.FLOAT32)
    graph = replace(graph, tensors={**graph.tensors, "share": share}, inputs=("x", "share"))
    lowered = lower_randomness(graph)
    values = {"x": X, "share": np.array(0.25, np.float32), STEP: np.array(0, np.uint32)}
    made = WholeModel(lowered).step(values)
    assert sigmas(made["mask_y"].mean(), 0.75, np.sqrt(3 / 16)) < 4
    assert np.allclose(made["y"][made["mask_y"]], X[made["mask_y"]] / 0.75)


def test_what_is_not_random_is_left_alone() -> None:
    inference = graph_of(dropout(), ratio=np.array(0.5, np.float32), train=np.array(False))
    assert lower_randomness(inference) is inference
    short = graph_of(Op("d", "Dropout", ("x",), ("y",)))
    assert lower_randomness(short) is short


def test_all_that_cannot_be_lowered_is_named_at_once() -> None:
    graph = graph_of(dropout(), dropout("z"), ratio=np.array(0.5, np.float32))
    mode = Tensor("train", (), DType.BOOL)
    graph = replace(graph, tensors={**graph.tensors, "train": mode}, inputs=("x", "train"))
    with pytest.raises(UnsupportedError) as caught:
        lower_randomness(graph)
    assert [fact.split(":")[0] for fact in caught.value.facts] == ["op 'y_op' (Dropout)", "op 'z_op' (Dropout)"]
    assert all("training_mode" in fact for fact in caught.value.facts)


def multinomial(x: np.ndarray, samples: int, dtype: DType = DType.INT32) -> Graph:
    """Classes drawn by unnormalised log-probabilities."""
    tensors = {"x": Tensor("x", x.shape, DType(x.dtype.name)), "y": Tensor("y", (len(x), samples), dtype)}
    op = Op("classes", "Multinomial", ("x",), ("y",), (("dtype", 7 if dtype is DType.INT64 else 6),
                                                      ("sample_size", samples)))  # fmt: skip
    return Graph("g", tensors, (op,), ("x",), ("y",), {}, frozenset(), opset=21)


@pytest.mark.parametrize("scalar", ["float16", "float32", "float64"])
def test_classes_come_as_often_as_their_weights_say(scalar: str) -> None:
    x = np.array([[0.0, 1.0, -2.0, 0.5], [3.0, -np.inf, 3.0, -40.0], [7.0, 7.0, 7.0, 8.0]], scalar)
    made = draw(multinomial(x, COUNT, DType.INT64), x=x)["y"]
    assert made.dtype == np.int64
    weights = np.exp(x.astype(float))
    for row, share in zip(made, weights / weights.sum(axis=1, keepdims=True), strict=True):
        found = np.bincount(row, minlength=4) / COUNT
        assert len(found) == 4
        for one, wanted in zip(found, share, strict=True):
            assert abs(one - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / COUNT)


def test_one_class_and_many() -> None:
    assert not draw(multinomial(np.zeros((2, 1), np.float32), 5), x=np.zeros((2, 1), np.float32))["y"].any()
    many = np.zeros((1, 70_000), np.float32)
    made = draw(multinomial(many, 200), x=many)["y"].astype(float)
    assert sigmas(made.mean(), 35_000, 70_000 / np.sqrt(12), 200) < 4
    assert made.max() < 70_000


def test_the_step_is_state_that_counts() -> None:
    lowered = lower_randomness(graph_of(random_op("RandomNormalLike", "n")))
    (pair,) = lowered.state
    assert (pair.current, pair.following) == (STEP, f"{STEP}.next")
    assert lowered.initial[STEP] == np.array(0, np.uint32)
    step = np.array(2**32 - 1, np.uint32)
    assert WholeModel(lowered).step({"x": X, STEP: step})[pair.following] == 0


def test_a_tensor_with_more_elements_than_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose elements share counters draw by keys of their own: made visible with a small limit."""
    monkeypatch.setattr(random_numbers, "MAX_INDEX", 2**12)
    made = draw(graph_of(random_op("RandomUniformLike", "u")))["u"].astype(float)
    assert sigmas(made.mean(), 0.5, np.sqrt(1 / 12)) < 4
    rows = np.corrcoef(made)
    assert np.abs(rows - np.eye(SHAPE[0])).max() * np.sqrt(SHAPE[1]) < 6
    assert len(np.unique(made)) > 0.99 * COUNT
