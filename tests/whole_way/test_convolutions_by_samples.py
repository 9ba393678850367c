"""Gradients of convolutions are sums over samples: data parallelism moves the trained weights alone."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from fast_suite import by_night
from planner import api
from planner.graph.reading.from_onnx import read_model
from planner.graph.step.gradient_products import gradient_products

_SAMPLES = 12
_CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    # operator, input without samples, weight, attributes
    "depthwise": ("Conv", (6, 9, 9), (6, 1, 3, 3), {"group": 6, "pads": [1] * 4}),
    "with multipliers": ("Conv", (4, 9, 9), (12, 1, 3, 3), {"group": 4, "pads": [1] * 4}),
    "grouped": ("Conv", (8, 9, 9), (6, 4, 3, 3), {"group": 2, "pads": [1] * 4}),
    "strided, dilated": ("Conv", (8, 12, 12), (8, 4, 3, 3), {"group": 2, "strides": [2, 2], "dilations": [2, 2]}),
    "of points": ("Conv", (8, 9, 9), (8, 2, 1, 1), {"group": 4, "strides": [2, 2]}),
    "causal": ("Conv", (8, 16), (8, 1, 4), {"group": 8, "pads": [3, 3]}),
    "of volumes": ("Conv", (4, 5, 6, 6), (8, 2, 3, 3, 3), {"group": 2, "pads": [1] * 6}),
    "depthwise of volumes": ("Conv", (4, 5, 6, 6), (4, 1, 3, 3, 3), {"group": 4, "strides": [1, 2, 2]}),
    "transposed lines": ("ConvTranspose", (8, 9), (8, 2, 4), {"group": 4, "strides": [2], "pads": [1, 1]}),
    "transposed": (
        "ConvTranspose",
        (6, 6, 6),
        (6, 1, 3, 3),
        {"group": 6, "strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "transposed, dilated": ("ConvTranspose", (4, 6, 6), (4, 4, 3, 3), {"group": 2, "dilations": [2, 2]}),
    "transposed volumes": ("ConvTranspose", (4, 3, 4, 4), (4, 2, 3, 3, 3), {"group": 2, "pads": [1] * 6}),
    "patches of uneven images": ("Conv", (3, 18, 18), (8, 3, 4, 4), {"strides": [4, 4]}),
    "rows left over": ("Conv", (4, 12, 12), (4, 4, 5, 5), {"strides": [2, 2]}),
    "dilated, rows left over": ("Conv", (4, 16, 16), (4, 4, 3, 3), {"strides": [3, 3], "dilations": [2, 2]}),
}


def _step(name: str, folder: Path) -> Path:
    """A training step; a scale in front of the convolution has it send a gradient to what it reads."""
    op_type, image, weight, attributes = _CASES[name]
    rng = np.random.default_rng(0)
    shapes = {"scale": (image[0], *(1 for _ in image[1:])), "w": weight}
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "scale"], ["scaled"]),
            helper.make_node(op_type, ["scaled", "w"], ["y"], **attributes),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (_SAMPLES, *image))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.standard_normal(shape, np.float32), name) for name, shape in shapes.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    step = folder / "step.onnx"
    api.grad(model, loss="mse", optimizer="sgd", train=("w", "scale"), output=step)
    return step


def _weights(name: str) -> int:
    """The trained bytes."""
    _, image, weight, _ = _CASES[name]
    return 4 * (image[0] + prod(weight))


@pytest.mark.parametrize("name", _CASES)
def test_data_parallelism_moves_the_trained_weights(name: str, tmp_path: Path) -> None:
    """Twice to every worker but one: the sums of gradients, which are added up, and handed back."""
    plan = api.plan(_step(name, tmp_path), gpus=4, strategy="data", models=False, out=tmp_path / "plan").plan
    assert 1 <= plan.moved_bytes / (2 * 3 * _weights(name)) <= 1.05


@pytest.mark.parametrize(("name", "workers"), by_night(_CASES, [2, 3, 4], one_of=3))
def test_sums_by_samples_are_run_and_proven(name: str, workers: int, tmp_path: Path) -> None:
    step, folder = _step(name, tmp_path), tmp_path / "plan"
    by_data = api.plan(step, gpus=workers, strategy="data", out=folder).plan
    assert 1 <= by_data.moved_bytes / (2 * (workers - 1) * _weights(name)) <= 1.05
    result = api.run(folder, steps=1, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == by_data.moved_bytes
    assert api.prove(folder).is_proven
    own = api.plan(step, gpus=workers, effort="quick", out=folder, force=True).plan
    assert own.cost <= by_data.cost
    assert api.run(folder, steps=1, verify=True).verified
    assert api.prove(folder).is_proven


@pytest.mark.parametrize("name", ["depthwise", "grouped", "of volumes", "transposed"])
def test_the_gradient_of_a_grouped_filter_is_known_as_one(name: str, tmp_path: Path) -> None:
    assert gradient_products(read_model(_step(name, tmp_path))).gradients
