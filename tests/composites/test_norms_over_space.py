"""A training step with norms over space costs hardly more than one without them: images stay cut along their height."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner import api, opdefs
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.request import SearchRequest
from planner.training.build import build_training_graph

CHANNELS, SIDE, GROUPS = 16, 32, 4
node = helper.make_node


def _groups_as_instances(x: str, y: str) -> list[NodeProto]:
    """As PyTorch's older export writes a norm of groups."""
    return [
        node("Reshape", [x, "by group"], [f"{y}.3"]),
        node("InstanceNormalization", [f"{y}.3", "one", "zero"], [f"{y}.n"]),
        node("Reshape", [f"{y}.n", "image"], [f"{y}.4"]),
        node("Mul", [f"{y}.4", "scale of dims"], [f"{y}.m"]),
        node("Add", [f"{y}.m", "bias of dims"], [y]),
    ]


def _norm(kind: str, x: str, y: str) -> list[NodeProto]:
    match kind:
        case "none":
            return [node("Identity", [x], [y])]
        case "groups as instances":
            return _groups_as_instances(x, y)
        case "GroupNormalization":
            return [node(kind, [x, "scale", "bias"], [y], num_groups=GROUPS)]
        case "InstanceNormalization":
            return [node(kind, [x, "scale", "bias"], [y])]
        case "LRN":
            return [node(kind, [x], [y], size=3)]
        case _:
            return [node(kind, [x], [y])]


def _model(kind: str) -> ModelProto:
    """Two convolutions of one image of 32 x 32, a norm after each."""
    learned = {
        "w0": (CHANNELS, 3, 3, 3),
        "w1": (CHANNELS, CHANNELS, 3, 3),
        "scale": (CHANNELS,),
        "bias": (CHANNELS,),
        "scale of dims": (CHANNELS, 1, 1),
        "bias of dims": (CHANNELS, 1, 1),
    }
    constants = {
        "by group": np.array([0, GROUPS, -1]),
        "image": np.array([1, CHANNELS, SIDE, SIDE]),
        "one": np.ones(GROUPS, np.float32),
        "zero": np.zeros(GROUPS, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4),
        *_norm(kind, "c0", "n0"),
        node("Relu", ["n0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1] * 4),
        *_norm(kind, "c1", "n1"),
        node("Relu", ["n1"], ["y"]),
    ]
    read = {name for one in nodes for name in one.input}
    made = [
        node("Constant", [], [name], value=numpy_helper.from_array(value))
        for name, value in constants.items()
        if name in read
    ]
    source = np.random.default_rng(0)
    return helper.make_model(
        helper.make_graph(
            made + nodes,
            "norms",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, SIDE, SIDE))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, CHANNELS, SIDE, SIDE))],
            [
                numpy_helper.from_array(source.uniform(0.1, 0.2, shape).astype(np.float32), name)
                for name, shape in learned.items()
                if name in read
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def _step(kind: str) -> Graph:
    return build_training_graph(graph_from_proto(_model(kind)), loss="mse", optimizer="sgd", learning_rate=0.1)


@cache
def _cost(kind: str) -> int:
    graph = canonical(_step(kind)).graph
    return decide_with_bodies(graph, opdefs.standard(), SearchRequest(4, effort="quick")).cost


FAST: Sequence[str] = ("GroupNormalization", "groups as instances")
SLOW: Sequence[str] = ("InstanceNormalization", "MeanVarianceNormalization", "LRN")


@pytest.mark.parametrize("kind", [*FAST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def test_a_norm_over_space_adds_its_statistics_and_nothing_else(kind: str) -> None:
    assert 0 < _cost("none") <= _cost(kind) <= 1.1 * _cost("none")


@pytest.mark.slow
def test_a_step_with_norms_of_groups_runs_cut_along_space(tmp_path: Path) -> None:
    graph = _step("GroupNormalization")
    write_model(graph, tmp_path / "step.onnx")
    planned = api.plan(tmp_path / "step.onnx", gpus=4, out=tmp_path / "plan")
    assert "S(2)" in str(planned.plan.tilings["c1"])
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes
