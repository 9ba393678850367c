"""Micro-batches whose labels do not count alike: one step is that of the whole batch, divided once by all weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from drawn import random
from planner.graph.files.to_onnx import to_model
from planner.options.training import LabelOptions
from planner.training.build import build_training_graph
from planner.training.update.updates import Schedule

node = helper.make_node
ROWS = 4
LABELS = np.array([0, -100, -100, -100, 2, 1, 0, 2, -100, -100, -100, -100])
"""One label that counts, four, and none."""
PARAMETERS = {"w": random((3, 3), 2), "b": random((3,), 3)}
NODES = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])]


def built(forward_model, x, loss, optimizer, options, **schedule):
    nodes = [*NODES[:1], node("Add", ["h", "b"], ["a"]), node("LogSoftmax", ["a"], ["y"])] if loss == "nll" else NODES
    forward = forward_model(nodes, PARAMETERS, {"x": x})
    return build_training_graph(
        forward.graph(), loss=loss, optimizer=optimizer, learning_rate=0.5, labels=options,
        schedule=Schedule(**schedule),
    )  # fmt: skip


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "nll"])
@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0)])
@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [("sgd", {}), ("adam", {"clip_norm": 0.05}), ("sgd", {"loss_scale": 8.0}), ("sgd", {"dynamic_scale": True})],
)
def test_one_step_is_the_whole_batchs(loss, weights, optimizer, schedule, forward_model, reference):
    x = random((12, 3), 5)
    options = LabelOptions(class_weights=weights, ignore_index=-100)
    whole = built(forward_model, x, loss, optimizer, options, **schedule)
    step = built(forward_model, x[:ROWS], loss, optimizer, options, accumulate=3, **schedule)
    assert step.tensors["labels"].shape == LABELS.shape
    wanted = reference(to_model(whole), {**whole.initial, "x": x, "labels": LABELS})
    found = reference(to_model(step), {**step.initial, "x": x, "labels": LABELS})
    for name in ("loss", *(pair.following for pair in whole.state)):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9, atol=1e-12)
    assert [pair.current for pair in step.state] == [pair.current for pair in whole.state]


def test_classes_weigh_without_ignored_labels(forward_model, reference):
    x, labels = random((8, 3), 6), np.array([0, 0, 0, 1, 2, 2, 1, 1])
    options = LabelOptions(class_weights=(4.0, 1.0, 0.25))
    whole = built(forward_model, x, "nll", "sgd", options)
    step = built(forward_model, x[:ROWS], "nll", "sgd", options, accumulate=2)
    wanted = reference(to_model(whole), {**whole.initial, "x": x, "labels": labels})
    found = reference(to_model(step), {**step.initial, "x": x, "labels": labels})
    for name in ("loss", "w.next", "b.next"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9)
