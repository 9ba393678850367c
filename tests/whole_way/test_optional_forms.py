"""Inputs without elements, outputs without names, values that are data: run as the runtime does, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from fast_suite import spread
from planner import api
from planner.commands import main as cli
from stock_runtime import run

node = helper.make_node
MS = "com.microsoft"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def model_of(nodes: list[NodeProto], feeds: dict[str, np.ndarray], results: tuple[str, ...]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)


def queries(positions: int) -> dict[str, np.ndarray]:
    """Of two samples, two heads of eight elements side by side, with caches that are empty."""
    flat = {name: drawn(2, positions, 16) for name in ("q", "k", "v")}
    return {**flat, "pk": drawn(2, 2, 0, 8), "pv": drawn(2, 2, 0, 8)}


CELL = {"x": drawn(5, 4, 3)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def cell(op_type: str, *outputs: str) -> tuple[list[NodeProto], dict[str, np.ndarray], tuple[str, ...]]:
    gates = GATES[op_type]
    feeds = {**CELL, "w": drawn(1, gates * 2, 3), "r": drawn(1, gates * 2, 2)}
    return [node(op_type, list(feeds), outputs, hidden_size=2)], feeds, tuple(filter(None, outputs))


GROUPED = node(
    "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "lengths", "total"], ["y", "nk", "nv"], domain=MS,
    num_heads=2, kv_num_heads=2,
)  # fmt: skip
BY_HEAD = {**{name: drawn(2, 2, 3, 8) for name in ("q", "k", "v")}, "pk": drawn(2, 2, 0, 8), "pv": drawn(2, 2, 0, 8)}
CASES = {
    "GroupQueryAttention behind an empty past": (
        [node("Constant", [], ["total"], value=numpy_helper.from_array(np.array(3, np.int32))), GROUPED],
        {**queries(3), "lengths": np.full(2, 2, np.int32)},
        ("y",),
    ),
    "Attention behind an empty past": (
        [node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"])], BY_HEAD, ("y", "nk", "nv"),
    ),
    "scores alone beside the result": (
        [node("Attention", ["q", "k", "v"], ["y", "", "", "s"])],
        {name: BY_HEAD[name] for name in "qkv"}, ("y", "s"),
    ),
    "no rows for a cache": (
        [node("TensorScatter", ["x", "u", "i"], ["y"])],
        {"x": drawn(2, 2, 4, 3), "u": drawn(2, 2, 0, 3), "i": np.zeros(2, np.int64)}, ("y",),
    ),
    "LSTM, last state": cell("LSTM", "", "h"),
    "LSTM, last cell": cell("LSTM", "", "", "c"),
    "GRU, last state": cell("GRU", "", "h"),
    "RNN, last state": cell("RNN", "", "h"),
    "Pad with data": (
        [node("Constant", [], ["p"], value_ints=[1, 0, 2, 1]), node("Pad", ["x", "p", "v"], ["y"])],
        {"x": drawn(2, 5), "v": drawn(1)}, ("y",),
    ),
    "Trilu by data": ([node("Trilu", ["x", "k"], ["y"])], {"x": drawn(5, 4), "k": np.array(-1)}, ("y",)),
}  # fmt: skip


@pytest.mark.parametrize("name", spread(CASES, one_of=2))
def test_what_the_runtime_runs_is_planned_and_verified(name: str, tmp_path: Path) -> None:
    nodes, feeds, results = CASES[name]
    model = model_of(nodes, feeds, results)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "given.npz", **feeds)
    api.plan(
        tmp_path / "m.onnx",
        gpus=2,
        out=tmp_path / "plan",
        effort="quick",
        rates="link=1TB/s,memory=1GB/s,compute=1GFLOP/s",
    )
    ran = api.run(tmp_path / "plan", inputs=tmp_path / "given.npz", verify=True, result=tmp_path / "made.npz")
    assert ran.verified, ran.comparisons
    made = np.load(tmp_path / "made.npz")
    for key, expected in run(model, feeds).items():
        np.testing.assert_allclose(made[key], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("outputs", "attributes"), [(["", "i"], {}), (["y", ""], {})], ids=["first", "second"])
def test_an_output_that_an_operator_always_makes_has_a_name(outputs, attributes, tmp_path, capsys):
    model = model_of([node("Split", ["x"], outputs, num_outputs=2)], {"x": drawn(4, 4)}, tuple(filter(None, outputs)))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
    assert "has no name, and the operator always makes it" in capsys.readouterr().err


def test_a_past_without_a_present_is_refused(tmp_path, capsys):
    feeds = {**BY_HEAD, "pk": drawn(2, 2, 2, 8), "pv": drawn(2, 2, 2, 8)}
    model = model_of([node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y"])], feeds, ("y",))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
    assert "its present keys and values (outputs 1 and 2) have no names" in capsys.readouterr().err


ODD = {
    "a function that is not fused": node("FusedGemm", ["x", "w"], ["y"], domain=MS, activation="Swish"),
    "paddings of no kind": node("FusedConv", ["i", "k"], ["y"], domain=MS, auto_pad="AROUND"),
    "Cast, down": node("Cast", ["x"], ["y"], to=TensorProto.INT64, round_mode="down"),
    "a window of an older Attention": node("Attention", ["h", "h", "h"], ["y"], left_window_size=1),
}


@pytest.mark.parametrize("name", ODD)
def test_attributes_that_the_runtime_refuses_are_refused_before_a_plan(name, tmp_path, capsys):
    every = {"x": drawn(4, 6), "w": drawn(6, 5), "i": drawn(2, 3, 6, 6), "k": drawn(4, 3, 3, 3), "h": drawn(2, 2, 3, 8)}
    model = model_of([ODD[name]], {key: array for key, array in every.items() if key in ODD[name].input}, ("y",))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64 if "Cast" in name else 1, None))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
    said = capsys.readouterr().err
    assert "attribute" in said
    assert ODD[name].op_type in said


def test_parameters_that_a_fused_function_has_not_are_ignored(tmp_path: Path) -> None:
    fused = node("FusedGemm", ["x", "w"], ["y"], domain=MS, activation="Relu", activation_beta=0.7)
    model = model_of([fused], {"x": drawn(4, 6), "w": drawn(6, 5)}, ("y",))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "plan")
    assert api.run(tmp_path / "plan", verify=True).verified


def test_a_value_that_must_be_known_is_asked_for_in_words_of_the_model(tmp_path, capsys):
    model = model_of([node("CumSum", ["x", "axis"], ["y"])], {"x": drawn(4, 4), "axis": np.array(1)}, ("y",))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
    said = capsys.readouterr().err
    assert "(CumSum): its input 1 ('axis') is data, and a plan needs its value" in said
    assert ".py" not in said
    assert (
        cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2", "--value", "axis=1", "-o", str(tmp_path / "p")]) == 0
    )


def test_a_convolution_in_bfloat16_is_to_be_exported_in_float32(tmp_path, capsys):
    value = helper.make_tensor_value_info
    half = TensorProto.BFLOAT16
    graph = helper.make_graph(
        [node("Conv", ["x", "w"], ["y"])], "g", [value("x", half, [1, 2, 4, 4]), value("w", half, [2, 2, 1, 1])],
        [value("y", half, [1, 2, 4, 4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
    assert "float32, without autocast; then `tofu grad --precision bfloat16`" in capsys.readouterr().err


def test_the_loss_of_a_last_state_is_differentiated(tmp_path: Path) -> None:
    nodes, feeds, _ = cell("LSTM", "", "h")
    model = model_of([*nodes, node("ReduceSum", ["h"], ["l"], keepdims=0)], {"x": feeds["x"]}, ("l",))
    model.graph.initializer.extend(numpy_helper.from_array(feeds[name], name) for name in "wr")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    api.grad(tmp_path / "m.onnx", loss="output:l", optimizer="sgd", output=tmp_path / "t.onnx")
    api.plan(tmp_path / "t.onnx", gpus=2, out=tmp_path / "plan", effort="quick")
    assert api.run(tmp_path / "plan", verify=True).verified


def test_samples_first_and_no_steps_are_refused(tmp_path, capsys):
    """Of neither has ONNX Runtime a kernel: it ends the process over a GRU without steps."""
    nodes, feeds, results = cell("GRU", "y")
    for attributes, shape, said in (({"layout": 1}, (4, 5, 3), "its layout is 1"), ({}, (0, 4, 3), "has no step")):
        nodes[0].attribute.extend(helper.make_attribute(*one) for one in attributes.items())
        model = model_of(nodes, {**feeds, "x": drawn(*shape)}, results)
        del nodes[0].attribute[1:]
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        assert cli.main(["plan", str(tmp_path / "m.onnx"), "--gpus", "2"]) == 2
        assert said in capsys.readouterr().err
