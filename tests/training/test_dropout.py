"""Dropout: the rule, the mode that is asked for, and steps that draw the same masks on any number of workers."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from drawn import random32 as random
from fast_suite import chosen, examples
from planner import api
from planner.errors import UnsupportedError, UsageError
from planner.graph.decompositions.randomness import STEP, lower_randomness
from planner.graph.files.to_onnx import to_model
from planner.runtime.judge.whole import WholeModel
from planner.training.build import build_training_graph

node = helper.make_node
SGD = {"loss": "mse", "optimizer": "sgd", "learning_rate": 1.0}


def dropping(forward_model, *, ratio=0.25, trains=True, dtype=np.float32, outputs=("y", "m")):
    """Y = tanh of x w, some of it dropped, times v."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Dropout", ["h", "r", "t"] if trains is not None else ["h", "r"], ["d", "m"], name="drop"),
        node("Tanh", ["d"], ["a"]),
        node("MatMul", ["a", "v"], ["y"]),
    ]
    parameters = {"w": random((5, 12), 2, dtype), "v": random((12, 4), 3, dtype)}
    constants = {"r": np.array(ratio, dtype)} | ({} if trains is None else {"t": np.array(trains)})
    return forward_model(nodes, parameters, {"x": random((6, 5), 1, dtype)}, constants, outputs=outputs)


def step_of(forward, **options):
    return build_training_graph(forward.graph(), output="y", **SGD, **options)


@examples(15)
@given(ratio=st.floats(0, 0.9), computed=st.booleans(), step=st.integers(0, 2**32 - 1))
def test_gradients_with_the_mask_that_was_drawn(ratio, computed, step, forward_model, directions, reference):
    """The mask depends on seed, op and step alone: differences of the step itself see the same one."""
    forward = dropping(forward_model, ratio=ratio, dtype=np.float64)
    if computed:
        forward.nodes = [node("ReduceSum", ["given"], ["r"], keepdims=0), *forward.nodes]
        forward.data = {**forward.data, "given": np.array([ratio])}
        del forward.constants["r"]
    graph = lower_randomness(step_of(forward))
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    feeds = {**forward.data, "target": random((6, 4), 7, np.float64), STEP: np.array(step, np.uint32)}
    found = reference(model, feeds)
    gradients = {name: value - found[f"{name}.next"] for name, value in forward.parameters.items()}
    directions(
        lambda values: float(reference(model, {**feeds, **values})["loss"]), forward.parameters, gradients,
        tolerance=1e-5,
    )  # fmt: skip
    assert found["m"].shape == (6, 12)


def test_all_dropped(forward_model, reference):
    """A ratio of 1 is not ONNX's (it is below 1), but frameworks write it."""
    graph = lower_randomness(step_of(dropping(forward_model, ratio=1.0)))
    found = WholeModel(graph).step(
        {
            **dict(graph.initial),
            "x": random((6, 5)),
            "target": np.zeros((6, 4), np.float32),
            STEP: np.array(0, np.uint32),
        }
    )
    assert not found["y"].any()
    assert np.isfinite(found["w.next"]).all()


def modes(graph):
    """training_mode of the Dropouts of a graph; None where they have none."""
    return [
        bool(graph.constants[op.inputs[2]]) if len(op.inputs) > 2 else None
        for op in graph.ops
        if op.op_type == "Dropout"
    ]


@pytest.mark.parametrize("trains", [None, False, True])
def test_the_mode_is_the_models_or_the_one_that_is_asked_for(trains, forward_model):
    forward = dropping(forward_model, trains=trains)
    assert modes(step_of(forward)) == [trains]
    assert modes(step_of(forward, dropout="train")) == [True]
    assert modes(step_of(forward, dropout="off")) == [None]
    drops = lower_randomness(step_of(forward, dropout="off"))
    assert STEP not in drops.tensors


def test_a_dropout_without_a_ratio(forward_model):
    forward = forward_model([node("Dropout", ["x"], ["y"], name="drop")], {"x": random((3, 4))})
    step = build_training_graph(forward.graph(), dropout="train", **SGD)
    (drop,) = [op for op in step.ops if op.op_type == "Dropout"]
    assert drop.inputs[:2] == ("x", "")
    lower_randomness(step)


def test_a_mode_that_is_an_input(forward_model):
    forward = dropping(forward_model)
    forward.data = {**forward.data, "t": np.array(True)}
    del forward.constants["t"]
    with pytest.raises(UnsupportedError) as error:
        step_of(forward)
    assert "op 'drop' (Dropout): its training_mode is not a known constant" in error.value.facts[0]
    assert "dropout" in error.value.hint
    assert modes(step_of(forward, dropout="train")) == [True]


def test_a_model_without_dropout(forward_model):
    forward = forward_model([node("Tanh", ["x"], ["y"])], {"x": random((3, 4))})
    with pytest.raises(UsageError, match="the model has no Dropout"):
        build_training_graph(forward.graph(), dropout="train", **SGD)
    build_training_graph(forward.graph(), dropout="off", **SGD)
    with pytest.raises(UsageError, match="dropout is 'on'"):
        build_training_graph(forward.graph(), dropout="on", **SGD)


def test_random_ops_on_equal_operands_stay_apart(forward_model):
    """Two draws from one tensor are two draws, also where the model is written anew in another precision."""
    nodes = [
        node("RandomUniformLike", ["x"], ["a"]),
        node("RandomUniformLike", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["c"]),
        node("Mul", ["c", "w"], ["y"]),
    ]  # fmt: skip
    forward = forward_model(nodes, {"w": random((3, 4))}, {"x": random((3, 4))})
    for precision in ("float32", "float16"):
        graph = lower_randomness(build_training_graph(forward.graph(), precision=precision, **SGD))
        feeds = {**dict(graph.initial), "x": random((3, 4)), "target": np.zeros((3, 4), np.float32)}
        assert np.abs(WholeModel(graph).step(feeds)["y"]).min() > 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory, forward_model):
    """The training graph on file, made by the door that ``tofu grad`` is."""
    folder = tmp_path_factory.mktemp("dropout")
    onnx.save(dropping(forward_model, trains=None).model(), folder / "m.onnx")
    api.grad(
        folder / "m.onnx", loss="mse", optimizer="adam", lr=0.01, loss_input="y", dropout="train",
        output=folder / "train.onnx",
    )  # fmt: skip
    return folder / "train.onnx"


@pytest.mark.parametrize("workers", chosen([2, 3], fast=[2]))
def test_a_split_step_is_verified(trained, tmp_path, workers):
    api.plan(trained, gpus=workers, out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=3, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(1, 2), (1, 3), (1, 4)])
@pytest.mark.parametrize("pinned", [{"m": "S(0)"}, {"m": "S(1)"}])
def test_masks_are_the_same_bits_on_any_number_of_workers(trained, tmp_path, pinned, numbers):
    masks = []
    for workers in numbers:
        folder = tmp_path / str(workers)
        api.plan(trained, gpus=workers, out=folder, pin=pinned)
        for steps in (1, 2):
            api.run(folder, steps=steps, result=folder / "out.npz")
            with np.load(folder / "out.npz") as arrays:
                masks.append(arrays["m"])
    firsts, seconds = masks[::2], masks[1::2]
    assert all(np.array_equal(mask, firsts[0]) for mask in firsts)
    assert all(np.array_equal(mask, seconds[0]) for mask in seconds)
    assert not np.array_equal(firsts[0], seconds[0])
    assert 0.5 < firsts[0].mean() < 0.95


@pytest.mark.slow
def test_all_of_an_element_wise_step_is_the_same_bits(tmp_path, forward_model):
    """Without sums, that two numbers of workers could order in two ways, the whole training state is."""
    nodes = [node("Mul", ["x", "w"], ["h"]), node("Dropout", ["h"], ["d"], name="drop"), node("Mul", ["d", "v"], ["y"])]
    forward = forward_model(nodes, {"w": random((7, 11), 1), "v": random((7, 11), 2)}, {"x": random((7, 11), 3)})
    onnx.save(forward.model(), tmp_path / "m.onnx")
    options = {"loss": "mse", "optimizer": "momentum", "dropout": "train", "train": ["w", "v"]}
    api.grad(tmp_path / "m.onnx", output=tmp_path / "t.onnx", **options)
    found = []
    for workers in (1, 2, 3, 4):
        api.plan(tmp_path / "t.onnx", gpus=workers, out=tmp_path / f"{workers}", pin={"w": "S(0)", "v": "S(0)"})
        api.run(tmp_path / f"{workers}", steps=3, result=tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as arrays:
            found.append({name: arrays[name].tobytes() for name in arrays.files if name != "loss"})
    assert all(other == found[0] for other in found[1:])
    assert json.dumps(sorted(found[0])).count("next") == 5
