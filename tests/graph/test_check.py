"""The invariants of a Graph, each broken in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import ModelError
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor


def small() -> Graph:
    tensors = {name: Tensor(name, (2,), DType.FLOAT32) for name in ("x", "c", "h", "y")}
    return Graph(
        name="small",
        tensors=tensors,
        ops=(Op("a", "Add", ("x", "c"), ("h",)), Op("r", "Relu", ("h",), ("y",))),
        inputs=("x",),
        outputs=("y",),
        constants={"c": np.zeros(2, np.float32)},
    )


def test_a_consistent_graph_passes() -> None:
    check_graph(small())
    check_graph(replace(small(), state=(StatePair("x", "y"),), initial={"x": None}, folded=frozenset({"c"})))


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda g: replace(g, ops=g.ops[::-1]), "op 'r' (Relu) reads 'h', which is not made before it"),
        (lambda g: replace(g, ops=(*g.ops, Op("s", "Exp", ("x",), ("h",)))), "makes 'h', which is defined already"),
        (lambda g: replace(g, ops=(g.ops[0], replace(g.ops[1], name="a"))), "two ops are named 'a'"),
        (
            lambda g: replace(g, ops=(*g.ops, Op("s", "Exp", ("x",), ("q",)))),
            "makes 'q', which is not among the tensors",
        ),
        (lambda g: replace(g, outputs=("z",)), "output 'z' is not among the tensors"),
        (lambda g: replace(g, outputs=("c",)), "output 'c' is not made"),
        (lambda g: replace(g, inputs=("x", "c")), "'c' is both an input and a constant"),
        (lambda g: replace(g, inputs=("x", "x")), "an input is listed twice"),
        (lambda g: replace(g, folded=frozenset({"h"})), "'h' is folded but no constant"),
        (lambda g: replace(g, constants={"c": np.zeros(3, np.float32)}), "constant 'c' is [3] of float32"),
        (lambda g: replace(g, constants={"c": np.zeros(2)}), "constant 'c' is [2] of float64"),
        (lambda g: replace(g, initial={"h": None}), "initial value of 'h', which is no input"),
        (lambda g: replace(g, state=(StatePair("h", "y"),)), "state 'h' is not an input"),
        (lambda g: replace(g, state=(StatePair("x", "h"),)), "next state 'h' is not an output"),
        (lambda g: replace(g, state=(StatePair("x", "y"),) * 2), "state 'x' is not an input"),
        (
            lambda g: replace(g, tensors={**g.tensors, "z": Tensor("z", (), DType.BOOL)}),
            "tensor 'z' is not made",
        ),
    ],
)
def test_each_violation_is_named(break_it: Callable[[Graph], Graph], said: str) -> None:
    with pytest.raises(ModelError) as raised:
        check_graph(break_it(small()))
    assert raised.value.what == "graph 'small' is not consistent"
    assert any(said in fact for fact in raised.value.facts), raised.value.facts
