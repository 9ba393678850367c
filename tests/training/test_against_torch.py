"""Rules that PyTorch has a counterpart of, against PyTorch's own gradients in float64, kinks and ties among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph

torch = pytest.importorskip("torch", reason="PyTorch is not installed: these rules are held to differences only")
F = torch.nn.functional
node = helper.make_node

KINKS = np.array([[-3.0, -2.0, -1.0, -0.5, -0.1, 0.0], [0.1, 0.5, 1.0, 2.0, 3.0, 6.0]])
"""Where activations change their form, and between."""


def random(shape, seed=1, positive=False):
    x = np.random.default_rng(seed).standard_normal(shape)
    return abs(x) + 0.5 if positive else x


def ints(*values):
    return np.array(values, np.int64)


def unary(op_type: str, function: Callable[..., Any], x: np.ndarray = KINKS, opset: int = 21, **attributes: Any):
    return pytest.param(
        [node(op_type, ["x"], ["y"], **attributes)], {"x": x}, {}, lambda t: function(t["x"]), opset,
        id="-".join([op_type, *map(str, attributes.values())]),
    )  # fmt: skip


def case(name: str, nodes: Any, parameters: Mapping[str, np.ndarray], function: Callable[..., Any], opset: int = 21,
         **constants: np.ndarray):  # fmt: skip
    nodes = nodes if isinstance(nodes, list) else [nodes]
    return pytest.param(nodes, parameters, constants, function, opset, id=name)


SMALL, POSITIVE, LARGE = 0.9 * np.tanh(random((3, 4))), random((3, 4), positive=True), 1 + random((3, 4), positive=True)
ACTIVATIONS = [
    unary("Abs", torch.abs), unary("Relu", torch.relu), unary("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), alpha=0.2),
    unary("Elu", lambda x: F.elu(x, 0.7), alpha=0.7), unary("Celu", lambda x: F.celu(x, 0.7), opset=26, alpha=0.7),
    unary("Selu", F.selu), unary("Gelu", F.gelu, opset=21),
    unary("Gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh"), unary("Mish", F.mish),
    unary("HardSwish", F.hardswish), unary("HardSigmoid", F.hardsigmoid, alpha=1 / 6), unary("Softplus", F.softplus),
    unary("Softsign", F.softsign), unary("Sigmoid", torch.sigmoid), unary("Tanh", torch.tanh),
    unary("ThresholdedRelu", lambda x: F.threshold(x, 0.5, 0.0), alpha=0.5), unary("Swish", F.silu, opset=24),
    unary("Shrink", lambda x: F.softshrink(x, 0.5), bias=0.5), unary("Shrink", lambda x: F.hardshrink(x, 0.5)),
    unary("Exp", torch.exp), unary("Erf", torch.erf), unary("Sin", torch.sin), unary("Cos", torch.cos),
    unary("Tan", torch.tan, SMALL), unary("Sinh", torch.sinh), unary("Cosh", torch.cosh), unary("Atan", torch.atan),
    unary("Asinh", torch.asinh), unary("Asin", torch.asin, SMALL), unary("Acos", torch.acos, SMALL),
    unary("Atanh", torch.atanh, SMALL), unary("Acosh", torch.acosh, LARGE), unary("Log", torch.log, POSITIVE),
    unary("Sqrt", torch.sqrt, POSITIVE), unary("Reciprocal", torch.reciprocal, POSITIVE), unary("Neg", torch.neg),
    case("Clip at its bounds", node("Clip", ["x", "lo", "hi"], ["y"]), {"x": KINKS},
         lambda t: torch.clamp(t["x"], -1.0, 2.0), lo=np.array(-1.0), hi=np.array(2.0)),
    case("PRelu", node("PRelu", ["x", "s"], ["y"]), {"x": random((2, 3, 4)), "s": random((3, 1))},
         lambda t: F.prelu(t["x"], t["s"].reshape(3))),
]  # fmt: skip

TIES = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, -1.0, 0.0]])
REDUCTIONS = [
    case("ReduceSum", node("ReduceSum", ["x", "a"], ["y"]), {"x": TIES}, lambda t: t["x"].sum(1, keepdim=True),
         a=ints(1)),
    case("ReduceMean", node("ReduceMean", ["x", "a"], ["y"], keepdims=0), {"x": TIES}, lambda t: t["x"].mean(0),
         a=ints(0)),
    case("ReduceMax of ties", node("ReduceMax", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: t["x"].amax(1, keepdim=True), a=ints(1)),
    case("ReduceMin of ties", node("ReduceMin", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: t["x"].amin(1, keepdim=True), a=ints(1)),
    case("ReduceProd with zeros", node("ReduceProd", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: t["x"].prod(1, keepdim=True), a=ints(1)),
    case("ReduceL1", node("ReduceL1", ["x", "a"], ["y"]), {"x": TIES}, lambda t: t["x"].abs().sum(1, keepdim=True),
         a=ints(1)),
    case("ReduceL2", node("ReduceL2", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: torch.linalg.vector_norm(t["x"], dim=1, keepdim=True), a=ints(1)),
    case("ReduceLogSumExp", node("ReduceLogSumExp", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: torch.logsumexp(t["x"], 1, keepdim=True), a=ints(1)),
    case("ReduceSumSquare", node("ReduceSumSquare", ["x", "a"], ["y"]), {"x": TIES},
         lambda t: (t["x"] ** 2).sum(1, keepdim=True), a=ints(1)),
    case("CumSum", node("CumSum", ["x", "a"], ["y"]), {"x": TIES}, lambda t: t["x"].cumsum(1), a=np.array(1)),
    case("CumProd with zeros", node("CumProd", ["x", "a"], ["y"]), {"x": TIES}, lambda t: t["x"].cumprod(1), 26,
         a=np.array(1)),
    unary("Softmax", lambda x: torch.softmax(x, 0), axis=0), unary("LogSoftmax", lambda x: F.log_softmax(x, -1)),
]  # fmt: skip

IMAGE, GRID = random((2, 4, 5, 6)), 0.8 * random((2, 3, 2, 2), 2)
CONV = {"strides": [2, 1], "pads": [1, 2, 1, 2], "dilations": [1, 2], "group": 2}
OF_IMAGES = [
    case("Conv", node("Conv", ["x", "w", "b"], ["y"], **CONV),
         {"x": IMAGE, "w": random((6, 2, 3, 2), 3), "b": random((6,), 4)},
         lambda t: F.conv2d(t["x"], t["w"], t["b"], (2, 1), (1, 2), (1, 2), 2)),
    case("ConvTranspose", node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 3], pads=[1, 1, 1, 1], group=2,
                               output_padding=[1, 0]), {"x": IMAGE, "w": random((4, 3, 3, 2), 3)},
         lambda t: F.conv_transpose2d(t["x"], t["w"], None, (2, 3), 1, (1, 0), 2)),
    case("MaxPool", node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
         {"x": np.round(IMAGE)}, lambda t: F.max_pool2d(t["x"], (3, 2), 2, 1)),
    case("AveragePool", node("AveragePool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
         {"x": IMAGE}, lambda t: F.avg_pool2d(t["x"], (3, 2), 2, 1, count_include_pad=False)),
    unary("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True), IMAGE),
    unary("GlobalMaxPool", lambda x: x.amax((2, 3), keepdim=True), np.round(IMAGE)),
    case("LRN", node("LRN", ["x"], ["y"], size=3, alpha=0.3, beta=0.6, bias=1.2), {"x": IMAGE},
         lambda t: F.local_response_norm(t["x"], 3, 0.3, 0.6, 1.2)),
    case("Col2Im", node("Col2Im", ["x", "i", "k"], ["y"], strides=[2, 1], pads=[1, 0, 1, 0]),
         {"x": random((2, 12, 10))}, lambda t: F.fold(t["x"], (3, 6), (2, 2), 1, (1, 0), (2, 1)), i=ints(3, 6),
         k=ints(2, 2)),
    *(case(f"GridSample {mode} {padding} {aligned}",
           node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=int(aligned)),
           {"x": IMAGE, "g": GRID},
           lambda t, mode=mode, padding=padding, aligned=aligned: F.grid_sample(
               t["x"], t["g"], mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode), padding_mode=padding,
               align_corners=aligned), 20)
      for mode in ("linear", "cubic") for padding in ("zeros", "border", "reflection") for aligned in (False, True)),
    case("GridSample on the border", node("GridSample", ["x", "g"], ["y"], padding_mode="border", align_corners=1),
         {"x": IMAGE, "g": np.array([[[[-1.0, 1.0], [1.0, -1.0], [-1.5, 0.3]]]] * 2)},
         lambda t: F.grid_sample(t["x"], t["g"], padding_mode="border", align_corners=True)),
    *(case(f"Resize {mode} antialias {antialias}", node("Resize", ["x", "", "", "s"], ["y"], mode=onnx_mode,
                                                        antialias=antialias, exclude_outside=antialias),
           {"x": IMAGE}, lambda t, mode=mode, antialias=antialias: F.interpolate(
               t["x"], (3, 4), mode=mode, align_corners=False, antialias=bool(antialias)), s=ints(2, 4, 3, 4))
      for mode, onnx_mode, antialias in (("bilinear", "linear", 0), ("bicubic", "cubic", 0),
                                         ("bilinear", "linear", 1))),
    case("AffineGrid", node("AffineGrid", ["theta", "size"], ["y"]), {"theta": random((2, 2, 3))},
         lambda t: F.affine_grid(t["theta"], [2, 3, 4, 5], align_corners=False), size=ints(2, 3, 4, 5)),
    case("DepthToSpace", node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD"), {"x": IMAGE},
         lambda t: F.pixel_shuffle(t["x"], 2)),
    case("Pad reflect", node("Pad", ["x", "p"], ["y"], mode="reflect"), {"x": IMAGE},
         lambda t: F.pad(t["x"], (2, 1, 1, 2), "reflect"), p=ints(0, 0, 1, 2, 0, 0, 2, 1)),
]  # fmt: skip

NORMALISATIONS = [
    case("LayerNormalization", node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1),
         {"x": IMAGE, "s": random((6,), 2), "b": random((6,), 3)},
         lambda t: F.layer_norm(t["x"], (6,), t["s"], t["b"])),
    case("InstanceNormalization", node("InstanceNormalization", ["x", "s", "b"], ["y"]),
         {"x": IMAGE, "s": random((4,), 2), "b": random((4,), 3)},
         lambda t: F.instance_norm(t["x"], weight=t["s"], bias=t["b"])),
    case("GroupNormalization", node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2),
         {"x": IMAGE, "s": random((4,), 2), "b": random((4,), 3)},
         lambda t: F.group_norm(t["x"], 2, t["s"], t["b"])),
    case("RMSNormalization", node("RMSNormalization", ["x", "s"], ["y"], epsilon=1e-5),
         {"x": IMAGE, "s": random((6,), 2)}, lambda t: F.rms_norm(t["x"], (6,), t["s"], 1e-5), 23),
    case("LpNormalization", node("LpNormalization", ["x"], ["y"], axis=1), {"x": IMAGE},
         lambda t: F.normalize(t["x"], dim=1)),
]  # fmt: skip

INDEX = np.array([[0, 2, 1], [3, 0, 0]])
X, U = (
    np.array([[1.0, 0.0, 2.0], [0.5, 1.5, -1.0], [2.0, 2.0, 0.0], [3.0, -2.0, 1.0]]),
    np.array([[1.0, 2.0, 0.0], [0.0, -2.0, 4.0]]),
)


def scattered(reduction: str) -> Callable[..., Any]:
    def function(t: Mapping[str, Any]) -> Any:
        index = torch.from_numpy(INDEX)
        if reduction == "none":
            return t["x"].scatter(0, index, t["u"])
        names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
        return t["x"].scatter_reduce(0, index, t["u"], names[reduction])

    return function


OTHERS = [
    *(case(f"ScatterElements {reduction}", node("ScatterElements", ["x", "i", "u"], ["y"], reduction=reduction),
           {"x": X, "u": U}, scattered(reduction), i=INDEX) for reduction in ("add", "mul", "max", "min")),
    case("GatherElements", node("GatherElements", ["x", "i"], ["y"]), {"x": X},
         lambda t: t["x"].gather(0, torch.from_numpy(INDEX)), i=INDEX),
    case("Gather", node("Gather", ["x", "i"], ["y"]), {"x": X}, lambda t: t["x"][torch.from_numpy(INDEX)], i=INDEX),
    case("TopK", node("TopK", ["x", "k"], ["y", "n"], axis=0), {"x": random((4, 3))},
         lambda t: t["x"].topk(2, 0).values, k=ints(2)),
    case("MatMul", node("MatMul", ["a", "b"], ["y"]), {"a": random((2, 1, 3, 4)), "b": random((5, 4, 2), 2)},
         lambda t: t["a"] @ t["b"]),
    case("Gemm", node("Gemm", ["a", "b", "c"], ["y"], transB=1, alpha=0.5, beta=2.0),
         {"a": random((3, 4)), "b": random((2, 4), 2), "c": random((2,), 3)},
         lambda t: 0.5 * t["a"] @ t["b"].T + 2 * t["c"]),
    case("Einsum", node("Einsum", ["a", "b"], ["y"], equation="bhqd,bhkd->bhqk"),
         {"a": random((1, 2, 3, 4)), "b": random((1, 2, 5, 4), 2)},
         lambda t: torch.einsum("bhqd,bhkd->bhqk", t["a"], t["b"])),
    case("Attention", node("Attention", ["q", "k", "v"], ["y"], is_causal=1),
         {name: random((2, 2, 3, 4), seed) for seed, name in enumerate("qkv")},
         lambda t: F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=True), 23),
    case("Pow", node("Pow", ["a", "b"], ["y"]), {"a": POSITIVE, "b": random((3, 4), 2)}, lambda t: t["a"] ** t["b"]),
    case("Div", node("Div", ["a", "b"], ["y"]), {"a": random((3, 4)), "b": POSITIVE}, lambda t: t["a"] / t["b"]),
    case("Max", node("Max", ["a", "b"], ["y"]), {"a": random((3, 4)), "b": random((4,), 2)},
         lambda t: torch.maximum(t["a"], t["b"])),
    case("Mod", node("Mod", ["a", "b"], ["y"], fmod=1), {"a": 3 * random((3, 4)), "b": POSITIVE},
         lambda t: torch.fmod(t["a"], t["b"])),
    case("Det", node("Det", ["x"], ["y"]), {"x": random((2, 4, 4))}, lambda t: torch.linalg.det(t["x"])),
    case("DFT", node("DFT", ["x", "", "a"], ["y"], onesided=1), {"x": random((2, 7, 1))},
         lambda t: torch.view_as_real(torch.fft.rfft(t["x"][..., 0], dim=1)), a=np.array(1)),
    case("DFT inverse", node("DFT", ["x", "", "a"], ["y"], inverse=1), {"x": random((2, 7, 2))},
         lambda t: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(t["x"]), dim=1)), a=np.array(1)),
    case("STFT", node("STFT", ["x", "s", "w", "n"], ["y"], onesided=1), {"x": random((2, 16, 1)), "w": random((6,), 2)},
         lambda t: torch.view_as_real(torch.stft(t["x"][..., 0], 6, 3, 6, t["w"], center=False, return_complex=True)
                                      .transpose(1, 2)), s=np.array(3), n=np.array(6)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "parameters", "constants", "function", "opset"),
    [*ACTIVATIONS, *REDUCTIONS, *OF_IMAGES, *NORMALISATIONS, *OTHERS],
)
def test_gradients_are_pytorchs(nodes, parameters, constants, function, opset, forward_model, reference):
    forward = forward_model(nodes, parameters, constants=constants, opset=opset)
    step = build_training_graph(
        forward.graph(), output="y", loss="mse", optimizer="sgd", learning_rate=1.0, parameters=forward.trained()
    )
    target = random(step.tensors["y"].shape, 7)
    found = reference(to_model(step), {"target": target})
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    y = function(tensors)
    assert tuple(y.shape) == target.shape
    loss = ((y - torch.from_numpy(target)) ** 2).mean()
    loss.backward()
    assert math.isclose(float(loss.detach()), float(found["loss"]), rel_tol=2e-6)
    for name, value in parameters.items():
        expected = tensors[name].grad.numpy()
        gradient = value - found[f"{name}.next"]
        assert np.abs(gradient - expected).max() <= 2e-6 * max(1.0, np.abs(expected).max()), name


LSTM, GRU = (torch.nn.LSTM, (0, 3, 1, 2)), (torch.nn.GRU, (1, 0, 2))
"""PyTorch's cells, and where ONNX's gates are among PyTorch's: LSTM iofc of ifco, GRU zrh of rzh."""


@pytest.mark.parametrize(("op_type", "cell", "order"), [("LSTM", *LSTM), ("GRU", *GRU)])
def test_recurrent_networks_are_pytorchs(op_type, cell, order, forward_model, reference):
    size, hidden, count = 3, 4, len(order)
    torch.manual_seed(0)
    network = cell(size, hidden, dtype=torch.float64)
    own = dict(network.named_parameters())

    def gates(name: str) -> np.ndarray:
        parts = own[name].detach().numpy().reshape(count, hidden, -1)
        return np.concatenate([parts[index] for index in order])

    parameters = {
        "w": gates("weight_ih_l0")[None], "r": gates("weight_hh_l0")[None],
        "b": np.concatenate([gates("bias_ih_l0"), gates("bias_hh_l0")]).reshape(1, -1),
    }  # fmt: skip
    x = random((5, 2, size))
    stated = {"hidden_size": hidden} | ({"linear_before_reset": 1} if op_type == "GRU" else {})
    nodes = [node(op_type, ["x", "w", "r", "b"], ["all"], **stated), node("Squeeze", ["all", "one"], ["y"])]
    forward = forward_model(nodes, parameters, {"x": x}, {"one": ints(1)})
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
    target = random((5, 2, hidden), 7)
    found = reference(to_model(step), {"x": x, "target": target})
    ((network(torch.from_numpy(x))[0] - torch.from_numpy(target)) ** 2).mean().backward()

    def grads(name: str) -> np.ndarray:
        parts = own[name].grad.numpy().reshape(count, hidden, -1)
        return np.concatenate([parts[index] for index in order])

    expected = {
        "w": grads("weight_ih_l0")[None], "r": grads("weight_hh_l0")[None],
        "b": np.concatenate([grads("bias_ih_l0"), grads("bias_hh_l0")]).reshape(1, -1),
    }  # fmt: skip
    for name, value in parameters.items():
        np.testing.assert_allclose(value - found[f"{name}.next"], expected[name], atol=1e-9, err_msg=name)
