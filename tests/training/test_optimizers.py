"""Optimizers against their formulas in NumPy; decay groups, clipping, accumulation, loss scaling; precisions."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper

import stock_runtime
from drawn import random
from planner.errors import UsageError
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph
from planner.training.update.optimizers import Group, Hyper, read_group
from planner.training.update.updates import Schedule

node = helper.make_node
RATE = float(np.float32(0.05))


def linear(forward_model, dtype=np.float64):
    nodes = [node("Gemm", ["x", "w", "b"], ["y"], name="fc")]
    return forward_model(nodes, {"w": random((4, 3), 1, dtype), "b": random((3,), 2, dtype)},
                         {"x": random((5, 4), 3, dtype)})  # fmt: skip


def built(forward, optimizer, **options):
    return build_training_graph(forward.graph(), loss="mse", optimizer=optimizer, learning_rate=0.05, **options)


def gradients_of(w, x, target):
    dy = 2 * (x @ w["w"] + w["b"] - target) / target.size
    return {"w": x.T @ dy, "b": dy.sum(0)}


def steps(step, reference, feeds, count):
    """States before and after each of some steps."""
    model, feeds = to_model(step), dict(feeds)
    for name, value in step.initial.items():
        feeds.setdefault(name, value)
    for _ in range(count):
        found = reference(model, feeds)
        yield {pair.current: feeds[pair.current] for pair in step.state}, found
        feeds.update((pair.current, found[pair.following]) for pair in step.state)


def expected_update(optimizer, hyper, rate, x, g, memory, t):
    """The next parameter and memories, as the specifications of ai.onnx.preview.training and PyTorch's AdamW say."""
    decay = hyper.weight_decay
    if optimizer != "adamw":
        g = g + decay * x
    if optimizer == "sgd":
        return x - rate * g, {}
    if optimizer in ("momentum", "nesterov"):
        v = hyper.momentum * memory["momentum"] + g
        return x - rate * (v if optimizer == "momentum" else g + hyper.momentum * v), {"momentum": v}
    if optimizer == "adagrad":
        h = memory["squares"] + g * g
        slower = rate / (1 + (t - 1) * hyper.decay_factor)
        return x - slower * g / (np.sqrt(h) + (hyper.epsilon or 1e-10)), {"squares": h}
    v = hyper.beta1 * memory["mean"] + (1 - hyper.beta1) * g
    h = hyper.beta2 * memory["squares"] + (1 - hyper.beta2) * g * g
    a, b = 1 - hyper.beta1**t, 1 - hyper.beta2**t
    epsilon = hyper.epsilon or 1e-8
    if optimizer == "adam":
        return x - rate * np.sqrt(b) / a * v / (np.sqrt(h) + epsilon), {"mean": v, "squares": h}
    return x * (1 - rate * decay) - rate / a * v / (np.sqrt(h / b) + epsilon), {"mean": v, "squares": h}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adagrad", "adam", "adamw"])
@pytest.mark.parametrize(
    "hyper",
    [
        Hyper(),
        Hyper(0.7, 0.8, 0.95, 1e-3, 0.1, 0.03),
        Hyper(weight_decay=0.1, groups=(Group("*", decay=0.2), Group("b", rate=0.5))),
    ],
)
def test_optimizer(optimizer, hyper, forward_model, reference):
    forward = linear(forward_model)
    target = random((5, 3), 7)
    step = built(forward, optimizer, hyper=hyper)
    onnx.checker.check_model(to_model(step), full_check=True)
    made = list(steps(step, reference, {**forward.data, "target": target}, 3))
    assert len(made) == 3
    for t, (before, found) in enumerate(made, 1):
        gradients = gradients_of(before, forward.data["x"], target)
        assert gradients.keys() == forward.parameters.keys()
        for name, gradient in gradients.items():
            kept = ("momentum", "beta1", "beta2", "epsilon", "decay_factor")
            own = Hyper(**{key: getattr(hyper, key) for key in kept},
                        weight_decay=0.2 if hyper.groups else hyper.weight_decay if name == "w" else 0.0)  # fmt: skip
            rate = RATE * (0.5 if name == "b" and hyper.groups else 1.0)
            memory = {
                key.removeprefix(f"{name}."): value for key, value in before.items() if key.startswith(f"{name}.")
            }
            x, after = expected_update(optimizer, own, rate, before[name], gradient, memory, t)
            np.testing.assert_allclose(found[f"{name}.next"], x, rtol=1e-6, atol=1e-9)
            for key, value in after.items():
                np.testing.assert_allclose(found[f"{name}.{key}.next"], value, rtol=1e-6, atol=1e-9)


def test_the_count_is_state(forward_model):
    step = built(linear(forward_model), "adam")
    assert "updates" in [pair.current for pair in step.state]
    assert step.initial["updates"] == 0
    assert "updates" not in built(linear(forward_model), "adagrad").inputs


def test_vectors_are_not_decayed():
    hyper = Hyper(weight_decay=0.1)
    assert [hyper.decay_of("w", shape) for shape in ((4, 4), (1, 4), (4,), (1, 4, 1), ())] == [0.1, 0.0, 0.0, 0.0, 0.0]


def test_groups_by_name():
    groups = map(read_group, ("*.bias:decay=0.3", "head.*:lr=10x", "head.weight:decay=0,lr=0.5x", "*:lr=2x", "*:lr=3x"))
    hyper = Hyper(weight_decay=0.1, groups=tuple(groups))
    names = ("fc.weight", "fc.bias", "head.weight", "head.bias")
    assert [hyper.rate_of(name) for name in names] == [3.0, 3.0, 0.5, 10.0]
    assert [hyper.decay_of(name, (4, 4)) for name in names] == [0.1, 0.3, 0.0, 0.3]


@pytest.mark.parametrize("text", ["w", "w:", ":decay=0", "w:lr=0.1", "w:lr=x", "w:decay=0x", "w:rate=1x", "w:decay=0,"])
def test_what_is_no_group(text):
    with pytest.raises(UsageError, match="is not PATTERN:lr=NUMBERx,decay=NUMBER"):
        read_group(text)


def test_a_group_without_parameters(forward_model):
    with pytest.raises(UsageError, match=r"--group 'head\.\*' fits no trained parameter"):
        built(linear(forward_model), "sgd", hyper=Hyper(groups=(Group("head.*", rate=0.1),)))


@pytest.mark.parametrize("most", [0.1, 100.0])
def test_clipping_by_the_global_norm(most, forward_model, reference):
    forward = linear(forward_model)
    target = random((5, 3), 7)
    step = built(forward, "sgd", schedule=Schedule(clip_norm=most))
    found = reference(to_model(step), {**forward.data, "target": target})
    gradients = gradients_of(forward.parameters, forward.data["x"], target)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    factor = min(1.0, most / (norm + 1e-6))
    assert gradients.keys() == forward.parameters.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            found[f"{name}.next"], forward.parameters[name] - RATE * factor * gradient, rtol=1e-6
        )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_micro_batches_make_one_step(optimizer, forward_model, reference):
    """Two micro-batches of 5 step as one batch of 10 does."""
    forward = linear(forward_model)
    x, target = random((10, 4), 11), random((10, 3), 12)
    small = built(forward, optimizer, schedule=Schedule(accumulate=2))
    whole = forward_model(forward.nodes, forward.parameters, {"x": x})
    (_, expected), (_, later) = steps(built(whole, optimizer), reference, {"x": x, "target": target}, 2)
    (_, found), (_, then) = steps(small, reference, {"x": x, "target": target}, 2)
    assert found.keys() == expected.keys() - {"y"}
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)
        np.testing.assert_allclose(then[name], later[name], rtol=1e-9)


def test_a_fixed_loss_scale_changes_nothing(forward_model, reference):
    forward = linear(forward_model)
    feeds = {**forward.data, "target": random((5, 3), 7)}
    plain = reference(to_model(built(forward, "sgd")), feeds)
    scaled = reference(to_model(built(forward, "sgd", schedule=Schedule(loss_scale=1024.0))), feeds)
    assert plain.keys() == scaled.keys() != set()
    for name, value in plain.items():
        np.testing.assert_allclose(scaled[name], value, rtol=1e-12)


def test_a_dynamic_loss_scale(forward_model, reference):
    forward = linear(forward_model)
    step = built(forward, "momentum", schedule=Schedule(dynamic_scale=True))
    model = to_model(step)
    feeds = {**step.initial, **forward.data, "target": random((5, 3), 7)}
    plain = reference(to_model(built(forward, "momentum")), {**forward.data, "target": feeds["target"]})
    found = reference(model, feeds)
    np.testing.assert_allclose(found["w.next"], plain["w.next"], rtol=1e-9)
    assert (found["loss_scale.next"], found["loss_scale.good_steps.next"]) == (65536.0, 1)
    grown = reference(model, {**feeds, "loss_scale.good_steps": np.array(1999)})
    assert (grown["loss_scale.next"], grown["loss_scale.good_steps.next"]) == (131072.0, 0)
    broken = reference(model, {**feeds, "x": np.where(feeds["x"] == feeds["x"].max(), np.inf, feeds["x"])})
    assert (broken["loss_scale.next"], broken["loss_scale.good_steps.next"]) == (32768.0, 0)
    np.testing.assert_array_equal(broken["w.next"], feeds["w"])
    np.testing.assert_array_equal(broken["w.momentum.next"], feeds["w.momentum"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"hyper": Hyper(beta2=1.0)}, "the beta2 is 1.0"),
        ({"hyper": Hyper(weight_decay=-1.0)}, "the weight_decay is -1.0"),
        ({"hyper": Hyper(groups=(Group("w", rate=-1.0),))}, "the lr of group 'w' is -1.0"),
        ({"hyper": Hyper(groups=(Group("w", decay=math.nan),))}, "the decay of group 'w' is nan"),
        ({"schedule": Schedule(clip_norm=0.0)}, "clipped to is 0.0"),
        ({"schedule": Schedule(accumulate=0)}, "0 micro-batches"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
    ],
)
def test_numbers_that_cannot_be_used(options, what, forward_model):
    with pytest.raises(UsageError, match=what):
        built(linear(forward_model), "adam", **options)


def small_net(forward_model):
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"], name="norm"),
        node("Relu", ["n"], ["r"], name="relu"),
        node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        node("Flatten", ["g"], ["f"], name="flat"),
        node("Mul", ["f", "big"], ["e"], name="mask"),
        node("Gemm", ["e", "w", "b"], ["y"], name="fc"),
    ]
    parameters = {"k": random((4, 3, 3, 3), 1, np.float32) / 3, "s": np.ones(4, np.float32),
                  "o": np.zeros(4, np.float32), "w": random((4, 5), 2, np.float32),
                  "b": random((5,), 3, np.float32)}  # fmt: skip
    constants = {"m": np.zeros(4, np.float32), "v": np.ones(4, np.float32), "big": np.array(0.5, np.float32)}
    return forward_model(nodes, parameters, {"x": random((8, 3, 6, 6), 4, np.float32)}, constants)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_low_precision_keeps_float32_state(precision, forward_model):
    forward = small_net(forward_model)
    options = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 0.1}
    options["parameters"] = forward.trained()
    schedule = Schedule(dynamic_scale=True)
    step = build_training_graph(forward.graph(), precision=precision, schedule=schedule, **options)
    onnx.checker.check_model(to_model(step), full_check=True)
    assert all(step.tensors[pair.current].dtype.value in ("float32", "int64") for pair in step.state)
    convs = [op for op in step.ops if op.op_type in ("Conv", "ConvTranspose")]
    assert {step.tensors[op.outputs[0]].dtype.value for op in convs} == {precision}
    assert step.tensors["loss"].dtype.value == step.tensors["y"].dtype.value == "float32"
    if precision == "bfloat16":
        return  # ONNX Runtime has no such kernels on CPU
    plain = build_training_graph(forward.graph(), **options)
    feeds = {**forward.data, "labels": np.arange(8) % 5}
    low, full = [stock_runtime.run(graph, feeds) for graph in (step, plain)]
    assert low["loss"] == pytest.approx(full["loss"], rel=1e-2)
    for name in forward.parameters:
        moved = full[f"{name}.next"] - forward.parameters[name]
        error = np.abs(low[f"{name}.next"] - full[f"{name}.next"]).max()
        assert error <= 2e-2 * np.abs(moved).max() + 1e-6, name
