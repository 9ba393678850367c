"""Indices beyond their tables are refused before a step is run, whatever the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from planner.errors import UsageError
from planner.graph.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.runtime.run import run_with
from planner.runtime.run_options import RunOptions
from planner.runtime.values.indices import index_faults
from planner.runtime.values.state import check_inputs

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g (int64[2, 3] ids, float[6, 4] table, float[8, 4] other)'
LOOKUP = "=> (float[2, 3, 4] y) { y = Gather (table, ids) }"


def graph_of(text: str) -> Graph:
    return graph_from_proto(onnx.parser.parse_model(HEAD + text), state_pairs=())


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64).reshape(2, 3)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (LOOKUP, 6),
        ("=> (float[6, 4] y) <int64[1] s = {-1}> { f = Reshape (ids, s) y = Gather (other, f) }", 8),
        ("=> (float[2, 3, 4] y, float[2, 3, 4] z) { y = Gather (table, ids) z = Gather (other, ids) }", 6),
        ("=> (float[2, 3, 4] y) <int64[1] a = {-1}> { u = Unsqueeze (ids, a) y = GatherND (other, u) }", 8),
        ("=> (float[8, 4] y) <int64[2] s = {6, 1}> { f = Reshape (ids, s)"
         ' y = ScatterND <reduction = "add"> (other, f, table) }', 8),
        ("=> (float[2, 3, 4] y) <int64 z = {0}> { w = Max (ids, z) y = Gather (table, w) }", None),
        ("=> (float[2, 4] y) <int64[1] k = {1}> { w = GatherElements <axis = 1> (ids, ids)"
         " r = ReduceMax <keepdims = 0> (w, k)"
         " y = Gather (table, r) }", 3),
    ],
)  # fmt: skip
def test_which_inputs_are_indices(text: str, rows: int | None) -> None:
    graph = graph_of(text)
    assert index_faults(graph, {"ids": ids(0, 1, 2, -1, -2, -3)}) == {}
    bound = rows or 100
    found = index_faults(graph, {"ids": ids(0, 1, 2, 0, bound, -bound - 1)})
    assert (found == {}) == (rows is None)
    if rows is not None:
        assert found["ids"].startswith(f"2 of 6 indices are beyond the table, the first of them {rows}: op ")
        assert found["ids"].endswith(f" takes 0 to {rows - 1}")


def test_tokens_that_are_labels_are_indices_too() -> None:
    """An ignored label counts for nothing in the loss, and is looked up all the same."""
    note = {"ids": {"integers_below": 6, "labels": True, "next": True, "ignored": -100}}
    graph = replace(graph_of(LOOKUP), notes={"tofu.inputs": json.dumps(note)})
    assert check_inputs(graph, {"ids": ids(0, 1, 2, 3, 4, 5)}, source="data").keys() == {"ids"}
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        check_inputs(graph, {"ids": ids(0, 1, 2, 3, 4, -100)}, source="data")
    assert "beyond the table, the first of them -100" in caught.value.facts[0]


@pytest.mark.parametrize("workers", [2, 3])
def test_every_plan_refuses_them_alike(plan_of: Callable[..., object], workers: int) -> None:
    plan = plan_of(graph_of(LOOKUP), workers)
    tables = {"table": np.ones((6, 4), np.float32), "other": np.ones((8, 4), np.float32)}
    good = {"ids": ids(0, 1, 2, 3, 4, 5), **tables}
    assert run_with(plan, RunOptions(inputs=good)).results["y"].shape == (2, 3, 4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        run_with(plan, RunOptions(inputs={**good, "ids": ids(0, 1, 2, 3, 4, 6)}))  # type: ignore[arg-type]
    assert caught.value.facts[0].startswith("ids: 1 of 6 indices are beyond the table, the first of them 6: op ")
