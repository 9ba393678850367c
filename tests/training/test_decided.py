"""Gradients through what is decided when a model is read: sequences at known positions, the branch of an If."""

from __future__ import annotations

import numpy as np
from onnx import helper

from drawn import random

node = helper.make_node


def whole(value):
    return np.array(value, np.int64)


def test_elements_of_a_sequence(check_gradients, forward_model):
    nodes = [
        node("Mul", ["x", "w"], ["m"]),
        node("SplitToSequence", ["m", "lengths"], ["s"], axis=1),
        node("SequenceAt", ["s", "last"], ["a"]),
        node("SequenceAt", ["s", "first"], ["b"]),
        node("SequenceConstruct", ["a", "b", "a"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    constants = {"lengths": whole([2, 1, 2]), "last": whole(-1), "first": whole(0)}
    check_gradients(forward_model(nodes, {"w": random((3, 5))}, {"x": random((3, 5), 2)}, constants))


def test_a_branch_with_weights_around_it(check_gradients, forward_model):
    then_branch = helper.make_graph(
        [node("Tanh", ["m"], ["p"])], "then", [], [helper.make_tensor_value_info("p", 11, [3, 5])]
    )
    else_branch = helper.make_graph(
        [node("Mul", ["m", "w"], ["q"])], "else", [], [helper.make_tensor_value_info("q", 11, [3, 5])]
    )
    nodes = [
        node("Mul", ["x", "w"], ["m"]),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["rows"]),
        node("Equal", ["rows", "four"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch),
    ]
    constants = {"first": whole(0), "four": whole(4)}
    graph = check_gradients(forward_model(nodes, {"w": random((3, 5))}, {"x": random((3, 5), 2)}, constants))
    assert "Tanh" not in {op.op_type for op in graph.ops}
