"""ONNX's own training format: the specification's test cases, a model written by hand, and there and back again."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from drawn import random32 as random
from fast_suite import chosen
from planner import api
from planner.errors import ModelError, UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from planner.training.doors.training_info import read_training_info
from planner.training.doors.write_info import training_info_model
from planner.training.update.optimizers import Group, Hyper
from stock_runtime import run

node = helper.make_node
DOMAIN = "ai.onnx.preview.training"
OPTIMIZERS = ("adam", "adagrad", "momentum")


def specification_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in OPTIMIZERS:  # all other operators' cases would take seconds to make
            import_module(f"onnx.backend.test.case.node.{name}")
        from onnx.backend.test.case.node import _NodeTestCases

        return [case for case in _NodeTestCases if any(name in case.name for name in OPTIMIZERS)]


def test_the_cases_of_the_specification():
    cases = specification_cases()
    assert len(cases) >= 7
    for case in cases:
        graph = read_training_info(case.model)
        inputs, outputs = case.data_sets[0]
        feeds = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=True)}
        found = run(graph, feeds)
        for value, expected in zip(case.model.graph.output, outputs, strict=True):
            np.testing.assert_allclose(found[value.name], expected, rtol=1e-5, atol=1e-6, err_msg=case.name)


def by_hand():
    """Y = XW + b trained with a squared error and Adam, as TrainingInfoProto's text describes."""
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "b"], ["y"])], "forward",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 3])],
        [numpy_helper.from_array(random((4, 3), 1), "w"), numpy_helper.from_array(random((3,), 2), "b")],
    )  # fmt: skip
    model = helper.make_model(graph, ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)])  # fmt: skip
    info = model.training_info.add()
    nodes = [
        node("Sub", ["y", "t"], ["d"]), node("Mul", ["d", "d"], ["dd"]),
        node("ReduceMean", ["dd"], ["loss"], keepdims=0),
        node("Gradient", ["w", "b", "x", "t"], ["dw", "db"], xs=["w", "b"], zs=["x", "t"], y="loss", domain=DOMAIN),
        node("Adam", ["r", "count", "w", "b", "dw", "db", "vw", "vb", "hw", "hb"],
             ["w_new", "b_new", "vw_new", "vb_new", "hw_new", "hb_new"], domain=DOMAIN,
             alpha=0.8, beta=0.9, epsilon=1e-3, norm_coefficient=0.01, norm_coefficient_post=0.02),
        node("Add", ["count", "one"], ["count_new"]),
    ]  # fmt: skip
    zeros = [numpy_helper.from_array(np.zeros(shape, np.float32), name)
             for name, shape in (("vw", (4, 3)), ("vb", (3,)), ("hw", (4, 3)), ("hb", (3,)))]  # fmt: skip
    info.algorithm.CopyFrom(
        helper.make_graph(
            nodes, "step", [helper.make_tensor_value_info("t", TensorProto.FLOAT, [6, 3])],
            [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
            [*zeros, numpy_helper.from_array(np.array(0.1, np.float32), "r"),
             numpy_helper.from_array(np.array(0, np.int64), "count"),
             numpy_helper.from_array(np.array(1, np.int64), "one")],
        )
    )  # fmt: skip
    for key in ("w", "b", "vw", "vb", "hw", "hb", "count"):
        info.update_binding.add(key=key, value=f"{key}_new")
    info.initialization.CopyFrom(
        helper.make_graph(
            [node("Constant", [], ["b0"], value_floats=[0.5, 0.25, 0.125])], "first", [],
            [helper.make_tensor_value_info("b0", TensorProto.FLOAT, [3])],
        )
    )  # fmt: skip
    info.initialization_binding.add(key="b", value="b0")
    return model


def test_a_model_written_by_hand():
    """Three steps beside NumPy; at the first T is 0, so the rate is not adjusted."""
    graph = read_training_info(by_hand())
    assert {pair.current for pair in graph.state} == {"w", "b", "vw", "vb", "hw", "hb", "count"}
    assert graph.inputs[:2] == ("x", "t")
    assert "r" in graph.constants
    np.testing.assert_array_equal(graph.initial["b"], np.array([0.5, 0.25, 0.125], np.float32))
    assert graph_from_proto(to_model(graph)).state == graph.state
    x, t = random((6, 4), 5), random((6, 3), 6)
    values = {"w": random((4, 3), 1).astype(float), "b": np.array([0.5, 0.25, 0.125])}
    v = {name: np.zeros_like(value) for name, value in values.items()}
    h = {name: np.zeros_like(value) for name, value in values.items()}
    feeds = {"x": x, "t": t}
    for count in range(3):
        found = run(graph, feeds)
        d = x @ values["w"] + values["b"] - t
        assert found["loss"] == pytest.approx((d * d).mean(), rel=1e-5)
        dy = 2 * d / d.size
        rate = 0.1 * (np.sqrt(1 - 0.9**count) / (1 - 0.8**count) if count else 1.0)
        for name, gradient in (("w", x.T @ dy), ("b", dy.sum(0))):
            g = gradient + 0.01 * values[name]
            v[name] = 0.8 * v[name] + 0.2 * g
            h[name] = 0.9 * h[name] + 0.1 * g * g
            values[name] = 0.98 * (values[name] - rate * v[name] / (np.sqrt(h[name]) + 1e-3))
            following = next(pair.following for pair in graph.state if pair.current == name)
            np.testing.assert_allclose(found[following], values[name], rtol=1e-4, atol=1e-5)
        feeds.update((pair.current, found[pair.following]) for pair in graph.state)


@pytest.mark.parametrize("workers", chosen([2, 4], fast=[2]))
def test_it_plans_and_runs_as_its_explicit_form(workers, tmp_path):
    implicit, explicit = tmp_path / "implicit.onnx", tmp_path / "explicit.onnx"
    implicit.write_bytes(by_hand().SerializeToString())
    api.grad(implicit, output=explicit)
    assert not onnx.load(explicit).training_info
    results, moved = [], []
    for model in (implicit, explicit):
        folder, file = tmp_path / f"{model.stem}.plan", tmp_path / f"{model.stem}.npz"
        api.plan(model, gpus=workers, out=folder)
        outcome = api.run(folder, steps=3, result=file, verify=True)
        assert outcome.verified, outcome.difference()
        moved.append(outcome.moved_bytes)
        with np.load(file) as arrays:
            results.append({name: arrays[name].tobytes() for name in arrays.files})
    assert moved[0] == moved[1] > 0
    assert results[0] == results[1]
    assert {"loss", "w_new", "hw_new", "count_new"} <= set(results[0])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adagrad", "adam"])
def test_there_and_back(optimizer):
    graph = helper.make_graph(
        [node("Gemm", ["x", "w", "b"], ["h"]), node("LayerNormalization", ["h", "s", "o"], ["n"]),
         node("Gelu", ["n"], ["g"]), node("MatMul", ["g", "v"], ["y"])], "forward",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 3])],
        [numpy_helper.from_array(array, name) for name, array in (
            ("w", random((4, 5), 1)), ("b", random((5,), 2)), ("s", np.ones(5, np.float32)),
            ("o", np.zeros(5, np.float32)), ("v", random((5, 3), 3)))],
    )  # fmt: skip
    forward = graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    options = {"loss": "softmax_cross_entropy", "optimizer": optimizer, "learning_rate": 0.05,
               "hyper": Hyper(weight_decay=0.01, groups=(Group("v", decay=0.02),), decay_factor=0.1)}  # fmt: skip
    model = training_info_model(forward, **options)
    onnx.checker.check_model(model)
    again = read_training_info(onnx.ModelProto.FromString(model.SerializeToString()))
    step = build_training_graph(forward, **options)
    feeds = {"x": random((6, 4), 7), "labels": np.array([0, 1, 2, 2, 1, 0])}
    expected, found = run(step, feeds), run(again, feeds)
    assert found.keys() >= expected.keys() != set()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_the_format_does_not_have():
    graph = graph_from_proto(by_hand_forward())
    with pytest.raises(UnsupportedError, match="no operator for 'adamw'"):
        training_info_model(graph, loss="mse", optimizer="adamw", learning_rate=0.1, hyper=Hyper())
    hyper = Hyper(groups=(Group("w", rate=0.1),))
    with pytest.raises(UnsupportedError, match="one learning rate, and group 'w' its own"):
        training_info_model(graph, loss="mse", optimizer="sgd", learning_rate=0.1, hyper=hyper)


def by_hand_forward():
    model = by_hand()
    del model.training_info[:]
    return model


def test_the_gradient_of_an_inner_tensor():
    """dY/dH, where H is computed; and of the second order."""
    graph = helper.make_graph(
        [node("Mul", ["x", "x"], ["h"]), node("Mul", ["h", "x"], ["y"]), node("ReduceSum", ["y"], ["s"], keepdims=0),
         node("Gradient", ["h", "x"], ["dh", "dx"], xs=["h", "x"], y="s", domain=DOMAIN),
         node("Gradient", ["x"], ["full"], xs=["x"], y="s", domain=DOMAIN),
         node("ReduceSum", ["full"], ["f"], keepdims=0),
         node("Gradient", ["x"], ["second"], xs=["x"], y="f", domain=DOMAIN)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("dh", "full", "second")],
    )  # fmt: skip
    model = helper.make_model(graph, ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)])  # fmt: skip
    x = random((4,))
    found = run(read_training_info(model), {"x": x})
    np.testing.assert_allclose(found["dh"], x, rtol=1e-6)
    np.testing.assert_allclose(found["full"], 3 * x * x, rtol=1e-6)
    np.testing.assert_allclose(found["second"], 6 * x, rtol=1e-6)


def test_what_a_rewritten_op_has_in_common_with_a_composite_does_not_end_its_gradient():
    """A mean becomes a sum, and so does the one inside InstanceNormalization: of one tensor, over the same dims."""
    shapes = {"x": (2, 3, 4, 5), "scale": (3,), "bias": (3,), "weight": (2, 3, 4, 5)}
    forward = [
        node("GlobalAveragePool", ["x"], ["mean"]), node("Mul", ["mean", "mean"], ["squares"]),
        node("InstanceNormalization", ["x", "scale", "bias"], ["normal"]), node("Mul", ["normal", "weight"], ["parts"]),
        node("ReduceSum", ["squares"], ["a"], keepdims=0), node("ReduceSum", ["parts"], ["b"], keepdims=0),
        node("Add", ["a", "b"], ["loss"]),
    ]  # fmt: skip

    def ran(nodes, output, feeds):
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        made = [helper.make_empty_tensor_value_info(output)]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        model = helper.make_model(helper.make_graph(nodes, "g", inputs, made), opset_imports=opsets, ir_version=10)
        graph = read_training_info(model)
        return run(graph, {name: feeds[name] for name in graph.inputs})[output]

    feeds = {name: random(shape, index) for index, (name, shape) in enumerate(shapes.items())}
    asked = node("Gradient", ["x"], ["dx"], xs=["x"], y="loss", domain=DOMAIN)
    found = ran([*forward, asked], "dx", feeds)
    way = 0.01 * random(shapes["x"], 9)
    up, down = (ran(forward, "loss", {**feeds, "x": feeds["x"] + sign * way}) for sign in (1, -1))
    assert float((found * way).sum()) == pytest.approx(float(up - down) / 2, rel=2e-3)


def test_refused():
    model = by_hand()
    model.training_info.add()
    with pytest.raises(UnsupportedError, match="2 training algorithms"):
        read_training_info(model)
    model = by_hand()
    model.training_info[0].update_binding[0].key = "q"
    with pytest.raises(ModelError) as error:
        read_training_info(model)
    assert error.value.facts == ("it updates 'q', which is no initializer",)
    model = by_hand()
    gradient = next(n for n in model.training_info[0].algorithm.node if n.op_type == "Gradient")
    gradient.input[0], gradient.input[1] = "b", "w"
    with pytest.raises(UnsupportedError, match="at other values"):
        read_training_info(model)


def test_operators_of_the_format_in_a_flat_step_have_state():
    """A file without bindings says nothing of its states: they are found, and may be given."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]>
        g (float[8, 4] x, float[8, 3] t, float[4, 3] w, float[4, 3] v, float[4, 3] h, float r, int64 n)
        => (float loss, float[4, 3] o0, float[4, 3] o1, float[4, 3] o2, int64 o3) <int64 one = {{1}}> {{
            y = MatMul(x, w) d = Sub(y, t) q = Mul(d, d) loss = ReduceMean <keepdims = 0> (q)
            g = {DOMAIN}.Gradient <xs = ["w"], zs = ["x", "t"], y = "loss"> (w, x, t)
            o0, o1, o2 = {DOMAIN}.Adam <alpha = 0.9, beta = 0.99> (r, n, w, g, v, h) o3 = Add(n, one)
        }}"""
    )
    pairs = [(pair.current, pair.following) for pair in read_training_info(model).state]
    assert pairs == [("w", "o0"), ("v", "o1"), ("h", "o2"), ("n", "o3")]
    assert [pair.current for pair in read_training_info(model, pairs[:1]).state] == ["w"]


@pytest.mark.parametrize("op_type", ["Adam", "Adagrad", "Momentum", "Gradient"])
def test_a_node_that_its_operator_would_not_take_is_an_error_of_the_model(op_type):
    """A Gradient has one output for each of xs; of the optimizers none takes a matrix for its learning rate."""
    taken = []
    for inputs, outputs in product(range(1, 7), range(1, 4)):
        names = [f"y{index}" for index in range(outputs)]
        stated = {"xs": ["x"] * inputs, "y": "x"} if op_type == "Gradient" else {}
        graph = helper.make_graph(
            [node(op_type, ["x"] * inputs, names, domain=DOMAIN, **stated)], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [helper.make_empty_tensor_value_info(name) for name in names],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        with suppress(ModelError):
            read_training_info(helper.make_model(graph, opset_imports=opsets, ir_version=10))
            taken.append((inputs, outputs))
    is_gradient = op_type == "Gradient"
    assert taken == [pair for pair in product(range(1, 7), range(1, 4)) if is_gradient and pair[1] <= pair[0]]
