"""16-bit floats on a CPU: the model in float32 kernels gives what is rounded after every op."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fast_suite import examples
from planner.graph.files.protos import dtype_of
from planner.runtime.engine.core.halves import in_float32
from planner.runtime.engine.core.sessions import SessionMaker

node = helper.make_node
KINDS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def model_of(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs], list(initializers),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run(model, **feeds):
    """Outputs in float32: Casts at both ends bring what NumPy has no name for in and out."""
    wrapped = onnx.ModelProto()
    wrapped.CopyFrom(model)
    for values, turn in ((wrapped.graph.input, "in"), (wrapped.graph.output, "out")):
        for value in values:
            kind = value.type.tensor_type.elem_type
            if kind not in KINDS.values():
                continue
            inside, value.name = value.name, f"{value.name}_{turn}"
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            if turn == "in":
                wrapped.graph.node.insert(0, node("Cast", [value.name], [inside], to=kind))
            else:
                wrapped.graph.node.append(node("Cast", [inside], [value.name], to=TensorProto.FLOAT))
    session = SessionMaker(1).session(wrapped)
    named = {value.name: feeds[value.name.removesuffix("_in")] for value in wrapped.graph.input}
    return session.run(None, named)


@examples(20)
@given(kind=st.sampled_from([*KINDS]), ops=st.lists(st.sampled_from(["Add", "Mul", "Sub"]), min_size=1, max_size=6))
def test_every_op_rounds(kind, ops):
    """A chain of ops, each of whose results is rounded, however many there are."""
    names = ["x", *(f"t{index}" for index in range(len(ops)))]
    nodes = [node(op, [before, "y"], [after]) for op, before, after in zip(ops, names, names[1:], strict=False)]
    model = model_of(nodes, [("x", KINDS[kind], [50]), ("y", KINDS[kind], [50])], [(names[-1], KINDS[kind], [50])])
    low = dtype_of(KINDS[kind]).array_dtype
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(50).astype(low).astype(np.float32) for _ in range(2))
    expected, by_name = x, {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}
    for op in ops:
        expected = by_name[op](expected, y).astype(low).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x, y=y)[0], expected)


@pytest.mark.parametrize("kind", [*KINDS])
def test_operators_without_a_kernel_run(kind):
    code = KINDS[kind]
    low = dtype_of(code).array_dtype
    table = numpy_helper.from_array(np.arange(12).reshape(4, 3).astype(low), "table")
    fill = numpy_helper.from_array(np.array([0.5]).astype(low), "fill")
    nodes = [
        node("ConstantOfShape", ["shape"], ["z"], value=fill),
        node("ScatterND", ["z", "i", "u"], ["s"], reduction="add"),
        node("MatMul", ["s", "table2"], ["p"]),
        node("Transpose", ["table"], ["table2"], perm=[1, 0]),
        node("EyeLike", ["p"], ["eye"], dtype=code),
        node("Add", ["p", "eye"], ["y"]),
    ]
    nodes[2], nodes[3] = nodes[3], nodes[2]
    model = model_of(
        nodes, [("u", code, [2, 3]), ("i", TensorProto.INT64, [2, 1])], [("y", code, [4, 4])],
        [table, numpy_helper.from_array(np.array([4, 3]), "shape")],
    )  # fmt: skip
    u, i = np.ones((2, 3), np.float32), np.array([[1], [1]])
    base = np.full((4, 3), 0.5, np.float32)
    base[1] += 2
    expected = base @ np.arange(12, dtype=np.float32).reshape(4, 3).T + np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(run(model, u=u, i=i)[0], expected.astype(low).astype(np.float32))


def test_statistics_that_are_stashed_in_16_bits():
    code = TensorProto.BFLOAT16
    nodes = [node("LayerNormalization", ["x", "s"], ["y", "m", "v"], stash_type=code)]
    model = model_of(nodes, [("x", code, [3, 8]), ("s", code, [8])], [("y", code, [3, 8]), ("m", code, [3, 1])])
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(ml_dtypes.bfloat16).astype(np.float32)
    y, mean = run(model, x=x, s=np.ones(8, np.float32))
    np.testing.assert_array_equal(mean, x.mean(axis=1, keepdims=True).astype(ml_dtypes.bfloat16).astype(np.float32))
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, atol=2e-2)


def test_a_model_without_16_bit_floats_is_left_alone():
    model = model_of([node("Exp", ["x"], ["y"])], [("x", 1, [2])], [("y", 1, [2])])
    assert in_float32(model) is model


def test_names_that_are_taken():
    code = TensorProto.FLOAT16
    nodes = [node("Exp", ["x"], ["x.float32"]), node("Add", ["x", "x.float32"], ["y"])]
    model = model_of(nodes, [("x", code, [2])], [("y", code, [2])])
    onnx.checker.check_model(in_float32(model), full_check=True)
    x = np.array([0.0, 1.0], np.float32)
    exp = np.exp(x).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x)[0], (x + exp).astype(np.float16).astype(np.float32))
