"""A normalisation of groups costs the same as one operator and as PyTorch writes it below opset 21, in a merged dim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from planner import api

GROUPS, CHANNELS = 4, 8
node = helper.make_node


def network(opset: int, *, is_merged: bool) -> ModelProto:
    """Two convolutions with a normalisation of groups between them: [2, 3, 32, 32] to [2, 3, 32, 32]."""
    random = np.random.default_rng(0)
    weights = {
        "first": random.normal(size=(CHANNELS, 3, 3, 3)), "last": random.normal(size=(3, CHANNELS, 3, 3)),
        "scale": random.uniform(0.5, 1.5, CHANNELS), "bias": random.normal(size=CHANNELS),
    }  # fmt: skip
    if is_merged:
        weights |= {name: weights[name].reshape(CHANNELS, 1, 1) for name in ("scale", "bias")}
        weights |= {"ones": np.ones(GROUPS), "zeros": np.zeros(GROUPS)}
        norm = [
            node("Reshape", ["x.conv", "merged"], ["x.merged"]),
            node("InstanceNormalization", ["x.merged", "ones", "zeros"], ["x.normal"]),
            node("Reshape", ["x.normal", "whole"], ["x.whole"]),
            node("Mul", ["x.whole", "scale"], ["x.scaled"]), node("Add", ["x.scaled", "bias"], ["x.norm"]),
        ]  # fmt: skip
    else:
        norm = [node("GroupNormalization", ["x.conv", "scale", "bias"], ["x.norm"], num_groups=GROUPS)]
    shapes = {"merged": [0, GROUPS, -1], "whole": [2, CHANNELS, 32, 32]} if is_merged else {}
    arrays = {
        **{name: value.astype(np.float32) for name, value in weights.items()},
        **{name: np.array(value, np.int64) for name, value in shapes.items()},
    }
    graph = helper.make_graph(
        [node("Conv", ["x", "first"], ["x.conv"], pads=[1] * 4), *norm, node("Relu", ["x.norm"], ["x.relu"]),
         node("Conv", ["x.relu", "last"], ["y"], pads=[1] * 4)],
        "decoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 32, 32])],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["forward", "step"])
def test_it_costs_the_same(trains: bool, tmp_path: Path) -> None:
    plans = {}
    models = {f"opset {opset}": network(opset, is_merged=True) for opset in (17, 20)}
    for name, model in {"one": network(21, is_merged=False), **models}.items():
        file = tmp_path / f"{name}.onnx"
        file.write_bytes(model.SerializeToString())
        if trains:
            file = tmp_path / f"{name}.train.onnx"
            api.grad(tmp_path / f"{name}.onnx", loss="mse", optimizer="sgd", lr=0.1, output=file)
        plans[name] = [api.plan(file, gpus=count, out=tmp_path / f"{name} {count}").plan for count in (2, 4)]
    assert len(plans["one"]) == 2
    for plan, single in zip([*plans["opset 17"], *plans["opset 20"]], 2 * plans["one"], strict=True):
        assert plan.cost <= 1.05 * single.cost
        assert plan.certified_gap == 0


@pytest.mark.parametrize("opset", [17, 20])
def test_it_runs_as_it_was_written(opset: int, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(network(opset, is_merged=True).SerializeToString())
    api.plan(tmp_path / "m.onnx", gpus=3, out=tmp_path / "plan")
    assert api.run(tmp_path / "plan", verify=True).verified
    assert api.prove(tmp_path / "plan").is_proven
