"""Gelu in the simple ops in which files spell it is one op of a training graph; what is nearly Gelu stays as it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from drawn import random
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph

SLOPE = math.sqrt(2 / math.pi)
NUMBERS = {
    "one": 1.0, "half": 0.5, "two": 2.0, "three": 3.0, "root": math.sqrt(2), "per_root": math.sqrt(0.5), "slope": SLOPE,
    "cubic": 0.044715, "minus_double": -2 * SLOPE, "cubic_slope": 0.044715 * SLOPE, "quick": 1.702, "third": 1 / 3,
}  # fmt: skip
ERF = {
    "half first": "h=Mul x half; d=Div x root; e=Erf d; o=Add e one; y=Mul h o",
    "half last": "d=Mul x per_root; e=Erf d; o=Add one e; p=Mul x o; y=Mul p half",
    "half in the middle": "d=Div x root; e=Erf d; o=Add e one; p=Mul half o; y=Mul x p",
    "sum of products": "d=Div x root; e=Erf d; h=Div x two; p=Mul h e; y=Add p h",
    "of a multiple": "z=Mul x third; d=Div z root; e=Erf d; o=Add e one; h=Mul half z; y=Mul o h",
}
TANH = {
    "power": "c=Pow x three; k=Mul c cubic; i=Add x k; v=Mul i slope; t=Tanh v; o=Add t one; h=Mul half x; y=Mul h o",
    "products": "q=Mul x x; c=Mul q x; k=Mul cubic c; i=Add k x; v=Mul slope i; t=Tanh v; o=Add one t; p=Mul x o;"
                "y=Mul half p",
    "factored": "q=Pow x two; k=Mul q cubic; o=Add k one; i=Mul o x; v=Mul i slope; t=Tanh v; p=Add t one;"
                "h=Mul half p; y=Mul x h",
    "two slopes": "q=Mul x x; k=Mul q cubic_slope; i=Add k slope; v=Mul x i; t=Tanh v; p=Mul t x; r=Add p x;"
                  "y=Mul r half",
    "sigmoid": "q=Mul x x; k=Mul q cubic; o=Add k one; i=Mul o x; n=Mul minus_double i; v=Neg n; t=Sigmoid v;"
               "y=Mul x t",
}  # fmt: skip
OTHERS = {
    "no root": "e=Erf x; o=Add e one; p=Mul x o; y=Mul p half",
    "no half": "d=Div x root; e=Erf d; o=Add e one; y=Mul x o",
    "less one": "d=Div x root; e=Erf d; o=Sub e one; p=Mul x o; y=Mul p half",
    "of something else": "d=Div x root; e=Erf d; o=Add e one; z=Exp x; p=Mul z o; y=Mul p half",
    "no cube": "v=Mul x slope; t=Tanh v; o=Add t one; h=Mul half x; y=Mul h o",
    "another cube": "c=Pow x three; k=Mul c quick; i=Add x k; v=Mul i slope; t=Tanh v; o=Add t one; h=Mul half x;"
                    "y=Mul h o",
    "quick": "v=Mul x quick; s=Sigmoid v; y=Mul x s",
    "another function": "c=Pow x three; k=Mul c cubic; i=Add x k; v=Mul i slope; t=Sin v; o=Add t one; h=Mul half x;"
                        "y=Mul h o",
}  # fmt: skip
PASSES = {"": 9, "tanh": 12}
"""Element-wise ops of the gradient."""


def spelled(text):
    """Nodes and the numbers that they read; ``y=Mul a b`` makes y."""
    parts = [part.strip().split() for part in text.split(";")]
    nodes = [helper.make_node(made.split("=")[1], read, [made.split("=")[0]]) for made, *read in parts]
    read = {name for node in nodes for name in node.input}
    return nodes, {name: np.array(value) for name, value in NUMBERS.items() if name in read}


@pytest.mark.parametrize("text", [*ERF.values(), *TANH.values()], ids=[*ERF, *TANH])
def test_a_spelled_gelu_is_one_op(text, check_gradients, forward_model):
    nodes, constants = spelled(text)
    step = check_gradients(forward_model(nodes, {"x": random((3, 4))}, constants=constants))
    (gelu,) = [op for op in step.ops if op.op_type == "Gelu"]
    kind = "" if "Erf" in text else "tanh"
    assert gelu.attribute("approximate", "") == kind
    forward = {name.split("=")[0].strip() for name in text.replace(";", " ").split() if "=" in name}
    assert {op.outputs[0] for op in step.ops} & forward == ({"y", "z"} if "z=" in text else {"y"})
    backward = [
        op for op in step.ops if f"{gelu.name}.backward" in op.name or op.outputs[0] == f"{gelu.inputs[0]}.grad"
    ]
    assert len(backward) == PASSES[kind]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_gelu_stays(name, check_gradients, forward_model):
    nodes, constants = spelled(OTHERS[name])
    step = check_gradients(forward_model(nodes, {"x": random((3, 4))}, constants=constants))
    kinds = [op.op_type for op in step.ops]
    assert "Gelu" not in kinds
    assert not {node.op_type for node in nodes} - {*kinds}


def test_what_others_read_stays(check_gradients, forward_model):
    nodes, constants = spelled(ERF["half first"])
    step = check_gradients(forward_model(nodes, {"x": random((3, 4))}, constants=constants, outputs=["y", "e"]))
    assert [op.op_type for op in step.ops][:3] == ["Div", "Erf", "Gelu"]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_numbers_are_read_before_they_are_rounded(precision, forward_model):
    nodes, constants = spelled(TANH["power"])
    narrow = {name: value.astype(np.float32) for name, value in constants.items()}
    forward = forward_model(nodes, {"x": random((3, 4)).astype(np.float32)}, constants=narrow, opset=18)
    step = build_training_graph(
        forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0, precision=precision,
        parameters=forward.trained(),
    )  # fmt: skip
    (gelu,) = [op for op in step.ops if op.op_type == "Gelu"]
    assert step.tensors[gelu.outputs[0]].dtype.value == precision
    assert to_model(step).opset_import[0].version >= 20


def test_a_trained_number_is_none(check_gradients, forward_model):
    """A slope that is learned may become another one."""
    nodes, constants = spelled(TANH["power"])
    slope = {"slope": constants.pop("slope").reshape(1)}
    forward = forward_model(nodes, {"x": random((3, 4)), **slope}, constants=constants)
    step = check_gradients(forward)
    assert "Gelu" not in {op.op_type for op in step.ops}
