"""Accuracy and held-out data, beside what NumPy counts; and training goes on as if nobody had looked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.errors import UsageError
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.options.running import RunOptions
from planner.runtime.accuracy import accuracy_of
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.run import run_with
from planner.runtime.run_report import RunResult, StepReport

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((20, 6)).astype(np.float32), RNG.integers(0, 3, 20)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> LoadedPlan:
    """One layer, softmax and momentum, on two workers: batches of 4."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    folder = tmp_path_factory.mktemp("net")
    weight = numpy_helper.from_array(RNG.standard_normal((6, 3)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 3])],
        [weight],
    )
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "m.onnx")
    loss = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "ignore_index": -1}
    api.grad(folder / "m.onnx", output=folder / "t.onnx", **loss)
    api.plan(folder / "t.onnx", gpus=2, out=folder / "plan", effort="quick")
    return replace(load_plan(folder / "plan"), paths=())  # its workers are threads of this process


def loss_and_accuracy(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The mean over the labels that count, batch by batch; and the share over all."""
    logits = x.astype(np.float64) @ w.astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    losses = [
        np.mean([-np.log(p[row, y[row]]) for row in range(first, first + 4) if y[row] >= 0])
        for first in range(0, len(y), 4)
    ]
    counted = y >= 0
    return float(np.mean(losses)), float(np.mean(logits.argmax(axis=1)[counted] == y[counted]))


def bits(outcome: RunResult) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outcome.results.items()}


@pytest.mark.parametrize("verify", [False, True])
def test_both_are_what_numpy_counts_and_training_is_as_without(plan: LoadedPlan, tmp_path: Path, verify: bool) -> None:
    held_x, held_y = X[12:], np.where(np.arange(8) == 5, -1, Y[12:])
    np.savez(tmp_path / "held.npz", x=np.concatenate([held_x, X[:3]]), labels=np.concatenate([held_y, Y[:3]]))
    options = RunOptions(inputs={"x": X[:12], "labels": Y[:12]}, epochs=2, shuffle=3, verify=verify)
    plain = run_with(plan, options)
    told: list[StepReport] = []
    said: list[str] = []
    looked = replace(
        options,
        metric="accuracy",
        eval_inputs=tmp_path / "held.npz",
        checkpoint_dir=tmp_path / "ck",
        checkpoint_every=3,
        log=tmp_path / "l.jsonl",
        on_step=told.append,
        notice=said.append,
    )
    ran = run_with(plan, looked)
    assert bits(ran) == bits(plain)
    assert ran.losses == plain.losses
    assert any("held.npz has 11 rows: 2 batches of 4 an epoch; 3 rows are left out" in line for line in said)
    assert [one.step for one in ran.evaluations] == [3, 6]
    after = {6: ran.results["w.next"], 3: run_with(plan, replace(options, epochs=1)).results["w.next"]}
    for one in ran.evaluations:
        loss, accuracy = loss_and_accuracy(after[one.step], held_x, held_y)
        np.testing.assert_allclose(one.loss, loss, rtol=1e-5)
        assert one.accuracy == accuracy
    assert [report.evaluation is not None for report in told] == [False, False, True] * 2
    lines = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    assert [line.get("eval_accuracy") for line in lines][2::3] == [one.accuracy for one in ran.evaluations]
    assert [line["accuracy"] for line in lines] == list(ran.accuracies)
    # The checkpoint after an evaluation is of the training's state: whoever goes on from it trains as without.
    run_with(plan, replace(looked, epochs=None, steps=3, checkpoint_dir=tmp_path / "short", log=None))
    again = run_with(plan, replace(options, resume=True, checkpoint_dir=tmp_path / "short"))
    assert again.first_step == 4
    assert bits(again) == bits(plain)


def test_the_accuracy_of_a_step_is_that_before_its_update(plan: LoadedPlan) -> None:
    w = plan.graph.initial["w"]
    assert w is not None
    ran = run_with(plan, RunOptions(inputs={"x": X[:4], "labels": Y[:4]}, metric="accuracy"))
    assert ran.accuracies == (loss_and_accuracy(w, X[:4], Y[:4])[1],)


def test_held_out_data_of_one_batch(plan: LoadedPlan, tmp_path: Path) -> None:
    np.savez(tmp_path / "held.npz", x=X[4:8], labels=Y[4:8])
    options = RunOptions(inputs={"x": X[:4], "labels": Y[:4]}, steps=2, eval_inputs=tmp_path / "held.npz")
    ran = run_with(plan, options)
    (found,) = ran.evaluations
    assert (found.step, found.batches, found.accuracy) == (2, 1, None)
    np.testing.assert_allclose(found.loss, loss_and_accuracy(ran.results["w.next"], X[4:8], Y[4:8])[0], rtol=1e-5)
    np.savez(tmp_path / "held.npz", x=X[4:8])
    with pytest.raises(UsageError, match=r"held\.npz lacks inputs of the model"):
        run_with(plan, options)


def graph_of(note: dict[str, Any], axis: int | None, shape: tuple[int, ...], labels: tuple[int, ...]) -> Graph:
    tensors = {"logits": Tensor("logits", shape, DType.FLOAT32), "labels": Tensor("labels", labels, DType.INT64)}
    tensors["p"] = Tensor("p", shape, DType.FLOAT32)
    ops = () if axis is None else (Op("s", "LogSoftmax", ("logits",), ("p",), (("axis", axis),)),)
    notes = {"tofu.inputs": json.dumps({"labels": note})}
    return Graph("g", tensors, ops, ("labels",), ("logits",), {}, notes=notes)


def test_the_dim_of_classes_is_that_of_the_losss_softmax() -> None:
    note = {"integers_below": 4, "labels": True}
    for axis in (1, 2):
        assert accuracy_of(graph_of(note, axis, (2, 4, 4), (2, 4))).axis == axis
    assert accuracy_of(graph_of(note, -1, (2, 4, 4), (2, 4))).axis == 2
    assert accuracy_of(graph_of(note, None, (2, 4, 4), (2, 4))).axis == 1


def test_a_next_token_is_the_label_of_the_one_before() -> None:
    found = accuracy_of(graph_of({"integers_below": 3, "labels": True, "next": True}, 2, (1, 4, 3), (1, 4)))
    logits = np.eye(3, dtype=np.float32)[[[1, 2, 0, 1]]]
    assert found.count(logits, np.array([[0, 1, 2, 1]])) == (2, 3)


def test_logits_in_float64_are_compared_as_they_are() -> None:
    found = accuracy_of(graph_of({"integers_below": 2, "labels": True}, 1, (1, 2), (1,)))
    assert found.count(np.array([[1.0, 1.0 + 1e-12]]), np.array([1])) == (1, 1)


def test_without_labels_or_logits_there_is_no_accuracy() -> None:
    for note, shape in (({"integers_below": 4}, (2, 4)), ({"integers_below": 4, "labels": True}, (2, 5))):
        with pytest.raises(UsageError, match="--metric accuracy: no result fits"):
            accuracy_of(graph_of(note, None, shape, (2,)))
