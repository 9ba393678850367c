"""Steps in 16 bits from float32 parameters, with loss scaling: planned, run by several workers, verified."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from planner import api
from planner.graph.core.model import DType
from planner.graph.reading.from_onnx import read_model

node = helper.make_node


def random(shape, seed):
    return (0.3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def mlp(forward_model):
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        node("Relu", ["h"], ["a"]),
        node("Gemm", ["a", "w2", "b2"], ["y"], transB=1),
    ]
    parameters = {"w1": random((32, 16), 1), "b1": random((32,), 2), "w2": random((10, 32), 3), "b2": random((10,), 4)}
    return forward_model(nodes, parameters, {"x": random((8, 16), 5)})


def cnn(forward_model):
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1] * 4),
        node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"]),
        node("Relu", ["n"], ["a"]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w", "b"], ["y"], transB=1),
    ]
    parameters = {"k": random((8, 3, 3, 3), 1), "s": 1 + random((8,), 2), "o": random((8,), 3), "w": random((10, 8), 4),
                  "b": random((10,), 5)}  # fmt: skip
    constants = {"m": random((8,), 6), "v": 1 + abs(random((8,), 7))}
    return forward_model(nodes, parameters, {"x": random((8, 3, 8, 8), 8)}, constants)


def attention(forward_model):
    """An embedding, whose gradient is scattered, a head of attention, and what lies between."""
    nodes = [
        node("Gather", ["e", "i"], ["x"]),
        node("LayerNormalization", ["x", "s", "o"], ["n"]),
        *(node("MatMul", ["n", f"w{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["l"]),
        node("Softmax", ["l"], ["p"]),
        node("MatMul", ["p", "v"], ["z"]),
        node("Gelu", ["z"], ["ge"]),
        node("Add", ["ge", "x"], ["u"]),
        node("Dropout", ["u", "ratio", "trains"], ["d"]),
        node("ReduceMean", ["d", "axes"], ["me"], keepdims=0),
        node("MatMul", ["me", "w"], ["y"]),
    ]
    parameters = {"e": random((20, 16), 1), "s": 1 + random((16,), 2), "o": random((16,), 3), "w": random((16, 10), 4),
                  **{f"w{name}": random((16, 16), 5 + index) for index, name in enumerate("qkv")}}  # fmt: skip
    data = {"i": np.random.default_rng(9).integers(0, 20, (8, 6))}
    constants = {"ratio": np.array(0.1, np.float32), "trains": np.array(True), "axes": np.array([1])}
    return forward_model(nodes, parameters, data, constants)


def without_bfloat16(forward_model):
    """Operators that ONNX does not define for bfloat16, between ones for which it does."""
    nodes = [
        node("Einsum", ["x", "w1"], ["h"], equation="bi,ij->bj"),
        node("TopK", ["h", "k"], ["t", "at"]),
        node("Gemm", ["t", "w2"], ["y"]),
    ]
    parameters = {"w1": random((16, 32), 1), "w2": random((8, 10), 2)}
    return forward_model(nodes, parameters, {"x": random((8, 16), 3)}, {"k": np.array([8])})


def test_operators_that_onnx_does_not_define_in_16_bits_are_computed_in_full(tmp_path, forward_model):
    onnx.save(without_bfloat16(forward_model).model(), tmp_path / "m.onnx")
    api.grad(
        tmp_path / "m.onnx", loss="softmax_cross_entropy", optimizer="sgd", precision="bfloat16",
        output=tmp_path / "train.onnx",
    )  # fmt: skip
    onnx.checker.check_model(onnx.load(tmp_path / "train.onnx"), full_check=True)
    graph = read_model(tmp_path / "train.onnx")
    dtypes = {op.op_type: graph.tensors[op.outputs[0]].dtype for op in graph.ops}
    assert dtypes["Einsum"] == dtypes["TopK"] == DType.FLOAT32
    assert dtypes["Gemm"] is DType.BFLOAT16


@pytest.mark.parametrize(
    ("network", "precision", "scale"),
    [
        (mlp, "bfloat16", 1024.0),
        pytest.param(without_bfloat16, "bfloat16", 1024.0, marks=pytest.mark.slow),
        pytest.param(cnn, "float16", "dynamic", marks=pytest.mark.slow),
        pytest.param(mlp, "float16", 1024.0, marks=pytest.mark.slow),
        pytest.param(cnn, "bfloat16", "dynamic", marks=pytest.mark.slow),
        pytest.param(attention, "float16", 1024.0, marks=pytest.mark.slow),
        pytest.param(attention, "bfloat16", "dynamic", marks=pytest.mark.slow),
    ],
)
def test_a_step_in_16_bits_is_run_and_verified(network, precision, scale, tmp_path, forward_model):
    onnx.save(network(forward_model).model(), tmp_path / "m.onnx")
    train = tmp_path / "train.onnx"
    api.grad(
        tmp_path / "m.onnx", loss="softmax_cross_entropy", optimizer="adam", lr=0.01, precision=precision,
        loss_scale=scale, output=train,
    )  # fmt: skip
    graph = read_model(train)
    low = DType(precision)
    products = [op for op in graph.ops if op.op_type in ("Gemm", "Conv", "MatMul")]
    assert any(graph.tensors[op.outputs[0]].dtype is low for op in products)
    assert low not in {graph.tensors[pair.current].dtype for pair in graph.state}
    losses = []
    for workers in (2, 4):
        api.plan(train, gpus=workers, out=tmp_path / f"{workers}")
        result = api.run(tmp_path / f"{workers}", steps=3, verify=True)
        assert result.verified, result.difference()
        assert result.moved_bytes == result.predicted_bytes > 0
        losses.append(result.losses)
    np.testing.assert_allclose(*losses, rtol=2e-3)
    assert losses[0][-1] < losses[0][0]


def test_a_step_that_overflows_is_left_out_and_verified(tmp_path, forward_model):
    """With the first scale, 2^16, gradients of large data are beyond float16: the reference takes the same side."""
    parameters = {"w": random((6, 5), 1), "b": random((5,), 2)}
    forward = forward_model([node("Gemm", ["x", "w", "b"], ["y"])], parameters, {"x": random((8, 6), 3)})
    onnx.save(forward.model(), tmp_path / "m.onnx")
    api.grad(tmp_path / "m.onnx", loss="softmax_cross_entropy", optimizer="sgd", lr=0.01, precision="float16",
             loss_scale="dynamic", output=tmp_path / "t.onnx")  # fmt: skip
    api.plan(tmp_path / "t.onnx", gpus=2, out=tmp_path / "plan")
    x = (40 * random((8, 6), 3)).astype(read_model(tmp_path / "t.onnx").tensors["x"].dtype.array_dtype)
    ran = api.run(tmp_path / "plan", inputs={"x": x, "labels": np.arange(8) % 5}, verify=True)
    assert ran.verified, ran.difference()
    np.testing.assert_array_equal(ran.results["w.next"], parameters["w"].astype(np.float32))
    assert ran.results["loss_scale.next"] == 2.0**15
