"""Networks of operators that are written out, and of rarer rules: planned, run by 3 workers, verified."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from planner import api

node = helper.make_node


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


REGIONS = np.array(
    [[0.3, 0.1, 4.3, 3.4], [1.3, 0.5, 6.2, 4.9], [0.2, 2.2, 5.7, 6.4], [1, 1, 3, 4], [2, 0.4, 7, 6]], np.float32
)
SAME = {"pads": [1] * 4}
NETWORKS = {
    "spatial transformer": (
        [
            node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "wt", "bt"], ["t"]),
            node("Reshape", ["t", "shape"], ["theta"]), node("AffineGrid", ["theta", "size"], ["g"]),
            node("GridSample", ["x", "g"], ["z"], padding_mode="border"), node("Conv", ["z", "w"], ["c"], **SAME),
            node("ReduceMean", ["c", "axes"], ["y"], keepdims=0),
        ],
        {"wt": 0.05 * random(72, 6), "bt": np.array([1, 0, 0, 0, 1, 0], np.float32), "w": random(8, 2, 3, 3)},
        {"x": random(6, 2, 6, 6, seed=5)},
        {"shape": ints(-1, 2, 3), "size": ints(6, 2, 6, 6), "axes": ints(2, 3)},
    ),
    "deformable convolution": (
        [
            node("Conv", ["x", "wo", "bo"], ["o"], **SAME), node("Conv", ["x", "wm", "bm"], ["n"], **SAME),
            node("Sigmoid", ["n"], ["m"]),
            node("DeformConv", ["x", "w", "o", "b", "m"], ["d"], kernel_shape=[3, 3], **SAME),
            node("Relu", ["d"], ["a"]), node("ReduceMean", ["a", "axes"], ["y"], keepdims=0),
        ],
        {"wo": 0.3 * random(18, 4, 3, 3), "bo": random(18), "wm": 0.3 * random(9, 4, 3, 3), "bm": random(9),
         "w": random(6, 4, 3, 3, seed=3), "b": random(6)},
        {"x": random(6, 4, 6, 5, seed=5)}, {"axes": ints(2, 3)},
    ),
    "regions": (
        [
            node("Conv", ["x", "w"], ["c"], **SAME),
            node("RoiAlign", ["c", "r", "b"], ["p"], output_height=2, output_width=3, sampling_ratio=2),
            node("Flatten", ["p"], ["f"]), node("MatMul", ["f", "v"], ["y"]),
        ],
        {"w": random(4, 3, 3, 3), "v": random(24, 5)}, {"x": random(4, 3, 7, 8, seed=5)},
        {"r": REGIONS, "b": ints(0, 1, 1, 3, 2)},
    ),
    "spectrogram": (
        [
            node("Mul", ["x", "g"], ["u"]), node("STFT", ["u", "step", "window"], ["s"], onesided=1),
            node("Mul", ["s", "s"], ["q"]), node("ReduceSum", ["q", "axes"], ["e"], keepdims=0),
            node("MatMul", ["e", "w"], ["y"]),
        ],
        {"g": random(1, 32, 1), "window": random(8), "w": random(5, 6)}, {"x": random(6, 32, 1, seed=5)},
        {"step": np.array(4), "axes": ints(3)},
    ),
    "filter in the frequency domain": (
        [
            node("DFT", ["x", "", "a"], ["s"]), node("Mul", ["s", "k"], ["q"]),
            node("DFT", ["q", "", "a"], ["z"], inverse=1), node("Tanh", ["z"], ["y"]),
        ],
        {"k": random(1, 12, 2)}, {"x": random(6, 12, 1, seed=5)}, {"a": np.array(1)},
    ),
    "determinants": (
        [node("MatMul", ["x", "w"], ["h"]), node("Det", ["h"], ["d"]), node("Mul", ["d", "v"], ["y"])],
        {"w": random(3, 3), "v": random(8)}, {"x": random(6, 8, 3, 3, seed=5)}, {},
    ),
    "transmittance": (
        [
            node("MatMul", ["x", "w"], ["h"]), node("Sigmoid", ["h"], ["s"]),
            node("CumProd", ["s", "a"], ["c"], exclusive=1), node("Mul", ["c", "v"], ["y"]),
        ],
        {"w": random(5, 9), "v": random(9)}, {"x": random(8, 5, seed=5)}, {"a": np.array(1)},
    ),
    **{
        f"scatter by {reduction}": (
            [
                node("MatMul", ["x", "w"], ["h"]),
                node("ScatterElements", ["z", "i", "h"], ["p"], reduction=reduction),
                node("MatMul", ["p", "v"], ["y"]),
            ],
            {"w": random(5, 6), "v": random(6, 4), "z": random(4, 6, seed=9)}, {"x": random(9, 5, seed=5)},
            {"i": np.random.default_rng(0).integers(0, 4, (9, 6))},
        )
        for reduction in ("max", "mul")
    },
    "fold": (
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Col2Im", ["h", "image", "block"], ["p"], strides=[2, 2]), node("Tanh", ["p"], ["y"]),
        ],
        {"w": random(12, 9)}, {"x": random(4, 12, 12, seed=5)}, {"image": ints(7, 7), "block": ints(2, 2)},
    ),
    "antialiased resize": (
        [node("Conv", ["x", "w"], ["c"], **SAME), node("Resize", ["c", "", "", "s"], ["y"], mode="cubic", antialias=1)],
        {"w": random(4, 3, 3, 3)}, {"x": random(4, 3, 8, 8, seed=5)}, {"s": ints(4, 4, 3, 5)},
    ),
}  # fmt: skip


QUICK = ("spatial transformer", "filter in the frequency domain", "scatter by mul", "antialiased resize")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_a_step_is_planned_run_and_verified(name, tmp_path, forward_model):
    nodes, parameters, data, constants = NETWORKS[name]
    opset = 26 if name == "transmittance" else 21
    onnx.save(forward_model(nodes, parameters, data, constants, opset=opset).model(), tmp_path / "m.onnx")
    options = {"loss": "mse", "optimizer": "adam", "lr": 0.01, "train": tuple(parameters)}
    api.grad(tmp_path / "m.onnx", output=tmp_path / "t.onnx", **options)
    api.plan(tmp_path / "t.onnx", gpus=3, out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert not result.no_reference
    assert result.moved_bytes == result.predicted_bytes > 0


@pytest.mark.parametrize("ignored", [None, -100])
def test_classes_of_a_loss_by_labels_are_divided(ignored, tmp_path, forward_model):
    """What moves has no classes: labels are looked up, and gradients placed, by who has the class."""
    classes, positions = 3000, 16
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    parameters = {"w": random(5, 8), "v": random(8, classes)}
    onnx.save(forward_model(nodes, parameters, {"x": random(2, 8, 5)}).model(), tmp_path / "m.onnx")
    options = {"loss": "softmax_cross_entropy", "class_axis": 2, "ignore_index": ignored, "train": ("w", "v")}
    api.grad(tmp_path / "m.onnx", output=tmp_path / "t.onnx", optimizer="momentum", lr=0.1, **options)
    api.plan(tmp_path / "t.onnx", gpus=2, pin={"y": "S(2)"}, out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert 0 < result.moved_bytes < positions * classes
