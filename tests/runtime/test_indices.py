"""Indices beyond their tables are refused before a step is run, whatever the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from planner.errors import UsageError, WorkerError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.options.running import RunOptions
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.run import run_with
from planner.runtime.values.indices import index_faults
from planner.runtime.values.state import check_inputs
from planner.search.user_rules.rules import Rules

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


def test_tokens_beyond_the_vocabulary_are_not_called_labels() -> None:
    """A table may have more rows than the output has classes: its width is rounded up."""
    note = {"ids": {"integers_below": 4, "labels": True, "next": True}}
    graph = replace(graph_of(LOOKUP), notes={"tofu.inputs": json.dumps(note)})
    with pytest.raises(UsageError) as caught:
        check_inputs(graph, {"ids": ids(0, 1, 2, 3, 4, 5)}, source="data")
    assert caught.value.facts == (
        "ids: 2 of 6 token ids are beyond the vocabulary, the first of them 4: ids are 0 to 3",
    )
    assert "vocabulary" in caught.value.hint


@pytest.mark.parametrize("workers", [2, 3])
def test_every_plan_refuses_them_alike(plan_of: Callable[..., object], workers: int) -> None:
    plan = plan_of(graph_of(LOOKUP), workers)
    tables = {"table": np.ones((6, 4), np.float32), "other": np.ones((8, 4), np.float32)}
    good = {"ids": ids(0, 1, 2, 3, 4, 5), **tables}
    assert run_with(plan, RunOptions(inputs=good)).results["y"].shape == (2, 3, 4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        run_with(plan, RunOptions(inputs={**good, "ids": ids(0, 1, 2, 3, 4, 6)}))  # type: ignore[arg-type]
    assert caught.value.facts[0].startswith("ids: 1 of 6 indices are beyond the table, the first of them 6: op ")


@pytest.mark.parametrize(
    ("ids_form", "node", "op"),
    [
        ("int64[2, 3]", "float[2, 3, 4] y) { w = Add (ids, ids) y = Gather (table, w) }", "Gather.y"),
        ("int64[2, 4]", "float[2, 4] y) { w = Add (ids, ids) y = GatherElements (table, w) }", "GatherElements.y"),
        ("int64[2, 1]", "float[2, 4] y) { w = Add (ids, ids) y = GatherND (table, w) }", "GatherND.y"),
        ("int64[6, 1]", 'float[64, 4] y) { w = Add (ids, ids) y = ScatterND <reduction = "add"> (table, w, u) }',
         "ScatterND.y"),
        ("int64[6, 4]", 'float[64, 4] y) { w = Add (ids, ids) y = ScatterElements <reduction = "add"> (table, w, u) }',
         "ScatterElements.y"),
    ],
    ids=["Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements"],
)  # fmt: skip
def test_an_index_that_is_computed_is_refused_by_the_worker(
    plan_of: Callable[..., LoadedPlan], ids_form: str, node: str, op: str
) -> None:
    """In a table that is cut along its rows, too: as the whole model would refuse it."""
    head = f'<ir_version: 10, opset_import: ["" : 21]> g ({ids_form} ids, float[64, 4] table, float[6, 4] u) => ('
    graph = graph_from_proto(onnx.parser.parse_model(head + node), state_pairs=())
    plan = plan_of(graph, 2, rules=Rules({"table": "S(0)", **({"y": "S(0)"} if "Scatter" in op else {})}))
    given = {"table": np.ones((64, 4), np.float32), "u": np.ones((6, 4), np.float32)}
    numbers = np.zeros(graph.tensors["ids"].shape, np.int64)
    for number, is_there in ((31, True), (-32, True), (32, False), (-33, False)):
        numbers.flat[-1] = number
        options = RunOptions(inputs={**given, "ids": numbers})
        if is_there:
            assert run_with(plan, options).results["y"].any()
        else:
            with pytest.raises(WorkerError, match=rf"failed in segment .*{op}"):
                run_with(plan, options)
