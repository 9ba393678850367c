"""Gradient rules of matrix products."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from drawn import random
from fast_suite import examples

node = helper.make_node


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 3, 4), (2, 4, 1)),
        ((2, 5, 3, 4), (4, 2)), ((1, 4), (4, 1)),
    ],
)  # fmt: skip
def test_matmul(a, b, check_gradients, forward_model):
    check_gradients(forward_model([node("MatMul", ["a", "b"], ["y"])], {"a": random(a, 1), "b": random(b, 2)}))


def test_product_of_two_vectors(check_gradients, forward_model):
    nodes = [node("MatMul", ["a", "b"], ["z"]), node("Mul", ["z", "a"], ["y"])]
    check_gradients(forward_model(nodes, {"a": random((4,), 1), "b": random((4,), 2)}))


@examples(30)
@given(
    trans_a=st.booleans(),
    trans_b=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, 2.0]),
    bias=st.sampled_from([None, (5,), (3, 5), (1, 5), (3, 1), (1,)]),
)
def test_gemm(trans_a, trans_b, alpha, beta, bias, check_gradients, forward_model):
    parameters = {"a": random((4, 3) if trans_a else (3, 4), 1), "b": random((5, 4) if trans_b else (4, 5), 2)}
    if bias is not None:
        parameters["c"] = random(bias, 3)
    attributes = {"transA": int(trans_a), "transB": int(trans_b), "alpha": alpha, "beta": beta}
    check_gradients(forward_model([node("Gemm", list(parameters), ["y"], **attributes)], parameters))
