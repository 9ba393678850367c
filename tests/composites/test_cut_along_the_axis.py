"""Operators cut along the dim that they search or run along: an expert's bytes, and ONNX Runtime's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fast_suite import spread
from planner import api, opdefs
from planner.artifacts.worker_model import WorkerModel
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.decompositions import expand
from planner.graph.reading.from_onnx import graph_from_proto
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.runtime.plan_files import LoadedPlan
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from run_plan import run_plan
from stock_runtime import run

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '
Arrays = Mapping[str, np.ndarray]
STANDARD = opdefs.standard()


def one_op(
    op_type: str, x: np.ndarray, outputs: Mapping[str, tuple[tuple[int, ...], DType]], constants: Arrays | None = None,
    *, opset: int = 21, **attributes: Attribute,
) -> Graph:  # fmt: skip
    """A graph of one op, which reads ``x`` and constants."""
    every = {"x": x, **(constants or {})}
    tensors = {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in every.items()}
    tensors |= {name: Tensor(name, shape, dtype) for name, (shape, dtype) in outputs.items()}
    op = Op("op", op_type, tuple(every), tuple(outputs), tuple(sorted(attributes.items())))
    known = dict(constants or {})
    return Graph("one", tensors, (op,), ("x",), tuple(outputs), known, frozenset(known), opset=opset)


def small(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Whole numbers, of which many are equal."""
    return np.random.default_rng(7).integers(-9, 10, shape).astype(dtype)


@dataclass(frozen=True)
class Ran:
    """A plan that has run, with what came out."""

    decided: Decision
    results: Arrays

    @property
    def op_types(self) -> set[str]:
        return {op.op_type for op in self.decided.graph.ops}


def planned_and_run(graph: Graph, workers: int, x: np.ndarray, pins: Mapping[str, str]) -> Ran:
    """Plans a graph and runs the plan in this process; moves what is predicted."""
    decided = decide_with_bodies(graph, STANDARD, SearchRequest(workers, rules=Rules(pins)))
    partitioned = partition(decided.graph, decided.ops, decided)
    program = partitioned.program
    assert program.predicted_bytes == decided.moved_bytes
    models = tuple(
        WorkerModel(worker, partitioned.bodies, fixed, "")
        for worker, fixed in zip(program.workers, partitioned.fixed, strict=True)
    )
    return Ran(decided, run_plan(LoadedPlan(graph, program, models), inputs={"x": x}).results)


def assert_stock(graph: Graph, ran: Ran, x: np.ndarray) -> None:
    """Bit by bit what ONNX Runtime makes of the whole op."""
    wanted = run(graph, {"x": x})
    for name in graph.outputs:
        np.testing.assert_array_equal(ran.results[name], wanted[name])


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_hardmax_moves_maxima_and_places(workers: int) -> None:
    """Of each row a maximum of 4 bytes and a place of 8, each joined from all workers and brought to all."""
    x = small(3, 50)
    graph = one_op("Hardmax", x, {"y": (x.shape, DType.FLOAT32)}, axis=-1)
    ran = planned_and_run(graph, workers, x, {"x": "S(1)", "y": "S(1)"})
    assert ran.decided.moved_bytes == 2 * (workers - 1) * 3 * (4 + 8)
    assert_stock(graph, ran, x)


@pytest.mark.parametrize(("shape", "axis"), [((40,), 0), ((2, 37, 3), 1)])
def test_hardmax_along_any_axis(shape: tuple[int, ...], axis: int) -> None:
    """A row without a number (NaN everywhere) has no maximum: ONNX Runtime's are zeros."""
    x = small(*shape)
    if len(shape) > 1:
        x[0, :, 0], x[1, :, 1] = np.nan, -np.inf
    graph = one_op("Hardmax", x, {"y": (shape, DType.FLOAT32)}, axis=axis)
    ran = planned_and_run(graph, 3, x, dict.fromkeys("xy", f"S({axis})"))
    assert "Hardmax" not in ran.op_types
    assert_stock(graph, ran, x)


ENDS = [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(("workers", "ends"), spread([2, 3, 4], ENDS, one_of=3))
def test_running_sums_move_totals_of_blocks(workers: int, ends: tuple[int, int]) -> None:
    """Of each row a total from every worker, of 4 bytes, to the one that adds them up, and what is before it back."""
    x, (exclusive, reverse) = small(12, 48), ends
    attributes = {"exclusive": exclusive, "reverse": reverse}
    graph = one_op("CumSum", x, {"y": (x.shape, DType.FLOAT32)}, {"axis": np.array(1)}, **attributes)
    ran = planned_and_run(graph, workers, x, dict.fromkeys("xy", "S(1)"))
    assert ran.decided.moved_bytes == 2 * (workers - 1) * 12 * 4
    assert_stock(graph, ran, x)


def test_running_sums_of_planes_move_totals_of_blocks() -> None:
    """Of many more rows than there are positions, too."""
    x = small(120, 36).reshape(3, 40, 36).swapaxes(1, 2).copy()
    graph = one_op("CumSum", x, {"y": (x.shape, DType.FLOAT32)}, {"axis": np.array(1)})
    ran = planned_and_run(graph, 4, x, dict.fromkeys("xy", "S(1)"))
    assert ran.decided.moved_bytes == 2 * (4 - 1) * 120 * 4
    assert_stock(graph, ran, x)


def test_running_sums_of_what_does_not_divide_move_what_lies_elsewhere() -> None:
    """Tiles of 13, 13, 12 and 12, blocks of 13 but for the last: beside the totals, an element of each row and back."""
    x = small(12, 50)
    graph = one_op("CumSum", x, {"y": (x.shape, DType.FLOAT32)}, {"axis": np.array(-1, np.int32)})
    ran = planned_and_run(graph, 4, x, dict.fromkeys("xy", "S(1)"))
    assert ran.decided.moved_bytes == 2 * (4 - 1) * 12 * 4 + 2 * 12 * 4
    assert_stock(graph, ran, x)


CUMULATIVE = [
    ("CumSum", "int64", 11, (35,), 0),
    ("CumSum", "int32", 14, (2, 37, 3), 1),
    ("CumSum", "float32", 21, (67, 2), -2),
    ("CumProd", "int64", 26, (3, 41), 1),
]


@pytest.mark.parametrize(("case", "reverse"), spread(CUMULATIVE, [0, 1], one_of=2))
def test_what_runs_along_any_axis(case: tuple[Any, ...], reverse: int) -> None:
    """Whole numbers, which add up to the same in any order, and what is none (NaN): it reaches what comes after it."""
    op_type, dtype, opset, shape, axis = case
    x = small(*shape, dtype=dtype)
    if dtype == "float32":
        x[20, 0], x[50, 1] = np.nan, np.inf
    graph = one_op(op_type, x, {"y": (shape, DType(dtype))}, {"axis": np.array(axis)}, opset=opset, reverse=reverse)
    ran = planned_and_run(graph, 3, x, dict.fromkeys("xy", f"S({axis % len(shape)})"))
    assert "op" not in ran.decided.strategies
    assert_stock(graph, ran, x)


def test_running_sums_of_blocks_are_as_near_as_others() -> None:
    x = np.random.default_rng(2).normal(size=(2, 900)).astype(np.float32)
    graph = one_op("CumSum", x, {"y": (x.shape, DType.FLOAT32)}, {"axis": np.array(1)})
    ran = planned_and_run(graph, 3, x, dict.fromkeys("xy", "S(1)"))
    right = np.cumsum(x.astype(np.float64), axis=1)
    whole = np.abs(run(graph, {"x": x})["y"] - right).max()
    assert "op" not in ran.decided.strategies
    assert np.abs(ran.results["y"] - right).max() <= max(4 * whole, 64 * np.finfo(np.float32).eps)


def ranking(x: np.ndarray, k: int, axis: int = -1, *, opset: int = 21, **attributes: Attribute) -> Graph:
    made = tuple(k if dim == axis % x.ndim else size for dim, size in enumerate(x.shape))
    outputs = {"values": (made, DType(x.dtype.name)), "places": (made, DType.INT64)}
    return one_op("TopK", x, outputs, {"k": np.array([k])}, opset=opset, axis=axis, **attributes)


@pytest.mark.parametrize(("workers", "largest"), spread([2, 3, 4], [0, 1], one_of=2))
def test_what_ranks_first_is_found_among_each_worker_s_own(workers: int, largest: int) -> None:
    """Of each row k candidates from every worker, values of 4 bytes and places of 8, to whoever ranks them."""
    x = small(12, 96)
    graph = ranking(x, 5, largest=largest)
    ran = planned_and_run(graph, workers, x, {"x": "S(1)"})
    assert ran.decided.moved_bytes == (workers - 1) * 12 * 5 * (4 + 8)
    assert_stock(graph, ran, x)


RANKED = [
    ("float32", 11, (50,), 0, {"largest": 1}),
    ("float32", 21, (3, 110), 1, {"largest": 0}),
    ("float64", 21, (2, 97, 3), 1, {"largest": 1, "sorted": 1}),
    ("int64", 14, (140, 2), 0, {}),
    ("int32", 24, (3, 170), -1, {"largest": 0}),
    ("uint8", 24, (3, 470), -1, {"largest": 1}),
]


@pytest.mark.parametrize(("case", "k"), spread(RANKED, [1, 6], one_of=2))
def test_what_ranks_first_along_any_axis(case: tuple[Any, ...], k: int) -> None:
    """Of equal ones the first; what fills up the last block is never found, not even among numbers that equal it."""
    dtype, opset, shape, axis, attributes = case
    x = small(*shape, dtype="int32" if dtype == "uint8" else dtype).clip(0 if dtype == "uint8" else None).astype(dtype)
    if dtype == "float32":
        x[..., 3:] = np.inf if attributes["largest"] == 0 else -np.inf
    graph = ranking(x, k, axis, opset=opset, **attributes)
    ran = planned_and_run(graph, 3, x, {"x": f"S({axis % len(shape)})"})
    assert "op" not in ran.decided.strategies
    assert_stock(graph, ran, x)


def test_what_is_ranked_whole() -> None:
    """An order that is left open is the runtime's own; of many candidates nothing is saved."""
    x = small(4, 96)
    assert expand(ranking(x, 24), workers=4).bodies == ()
    assert expand(ranking(x, 5, opset=10), workers=4).bodies == ()
    assert expand(ranking(x, 5, sorted=0), workers=4).bodies == ()
    assert len(expand(ranking(x, 1, sorted=0), workers=4).bodies) == 1


def pooling(x: np.ndarray, made: tuple[int, ...], **attributes: Attribute) -> Graph:
    outputs = {"y": ((*x.shape[:2], *made), DType(x.dtype.name)), "places": ((*x.shape[:2], *made), DType.INT64)}
    return one_op("MaxPool", x, outputs, **attributes)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_places_of_pools_cut_by_rows_move_the_rows_between(workers: int) -> None:
    """A window of three rows: over each border a row of 10 columns of two images, either way; places do not move."""
    x = small(1, 2, 24, 10)
    graph = pooling(x, (24, 10), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    ran = planned_and_run(graph, workers, x, dict.fromkeys(("x", "y", "places"), "S(2)"))
    assert ran.decided.moved_bytes == 2 * (workers - 1) * 2 * 10 * 4
    assert_stock(graph, ran, x)


TILINGS = ["S(0)/2 S(2)/2", "S(1)/2 S(3)/2", "S(3)/2 S(2)/2"]


@pytest.mark.parametrize(("tiling", "storage_order"), spread(TILINGS, [0, 1], one_of=2))
def test_places_count_in_the_whole_however_it_is_cut(tiling: str, storage_order: int) -> None:
    """Also where all is equal, or nothing is a number."""
    x = small(2, 3, 9, 11)
    x[0, 1], x[1, 2, 4:, :5], x[1, 0, 2] = -np.inf, np.nan, 5
    stated = {"kernel_shape": (2, 3), "strides": (2, 2), "pads": (1, 0, 0, 2), "dilations": (2, 1)}
    graph = pooling(x, (4, 6), storage_order=storage_order, **stated)
    ran = planned_and_run(graph, 4, x, {"y": tiling, "places": tiling})
    assert_stock(graph, ran, x)


def test_places_under_wide_padding_are_those_of_elements() -> None:
    """Padding of as many elements as a dilated kernel has, which the runtime refuses, is put there first."""
    x = np.array([[[3, 1, 4, 1, 5, 9, 2, 6, 5]]], np.float32)
    graph = pooling(x, (9,), kernel_shape=(2,), dilations=(4,), auto_pad="SAME_UPPER")
    ran = planned_and_run(graph, 3, x, {"y": "S(2)"})
    # Each window has two elements, 2 before and 2 after its own place.
    seen = [[place for place in (own - 2, own + 2) if 0 <= place < 9] for own in range(9)]
    places = [max(window, key=lambda place: (x[0, 0, place], -place)) for window in seen]
    np.testing.assert_array_equal(ran.results["places"][0, 0], places)
    np.testing.assert_array_equal(ran.results["y"][0, 0], x[0, 0, places])


ROUTED = """g (float[512, 32] x, float[32, 8] w) => (int64[512] y, float[512] place)
<int64 axis = {0}, int64[1] last = {1}> {
    scores = MatMul (x, w)  chosen = Hardmax (scores)  running = CumSum (chosen, axis)  own = Mul (running, chosen)
    place = ReduceSum <keepdims = 0> (own, last)  y = ArgMax <axis = 1, keepdims = 0> (scores)
}"""
RANKED_WORDS = """g (float[8, 64] x, float[64, 4000] w) => (float[8, 40] y, int64[8, 40] i) <int64[1] k = {40}> {
    scores = MatMul (x, w)  y, i = TopK (scores, k)
}"""


@pytest.mark.parametrize(
    ("text", "moved"), [(ROUTED, 2 * 3 * 8 * 4), (RANKED_WORDS, 3 * 8 * 40 * (4 + 8))], ids=["routed", "ranked"]
)
def test_nobody_has_to_pin_anything(text: str, moved: int) -> None:
    """Tokens numbered in order for each of 8 experts: totals; words of a beam: 40 candidates from each worker."""
    graph = graph_from_proto(onnx.parser.parse_model(HEAD + text), state_pairs=())
    decided = decide_with_bodies(graph, STANDARD, SearchRequest(4))
    assert decided.moved_bytes == moved
    assert decided.certified_gap == 0


TRAINED = {
    "CumSum": """g (float[2, 60] x) => (float[2, 60] y) <float[60] w = {}, int64 axis = {{1}}> {{
        h = Mul (x, w)  y = CumSum (h, axis)
    }}""",
    "MaxPool": """g (float[2, 60] x) => (float[2, 1, 30] y) <float[60] w = {}, int64[3] shape = {{2, 1, 60}}> {{
        h = Mul (x, w)  image = Reshape (h, shape)
        y, places = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 0]> (image)
    }}""",
    "TopK": """g (float[2, 60] x) => (float[2, 3] y) <float[60] w = {}, int64[1] k = {{3}}> {{
        h = Mul (x, w)  y, places = TopK (h, k)
    }}""",
}


@pytest.mark.slow
@pytest.mark.parametrize("op_type", TRAINED)
def test_a_gradient_passes_what_is_cut_along_its_axis(op_type: str, tmp_path: Path) -> None:
    text = TRAINED[op_type].format("{" + ", ".join(str(number / 60) for number in range(60)) + "}")
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(HEAD + text).SerializeToString())
    api.grad(tmp_path / "m.onnx", loss="mse", optimizer="sgd", output=tmp_path / "t.onnx", verify=True)
    planned = api.plan(tmp_path / "t.onnx", gpus=3, pin={"x": "S(1)", "w": "S(0)"}, out=tmp_path / "plan")
    kinds = {row.op_type for row in api.explain(tmp_path / "plan").ops if row.strategy == "through its body"}
    assert (op_type in kinds) is (op_type != "MaxPool")
    ran = api.run(tmp_path / "plan", steps=3, verify=True)
    assert ran.verified, ran.difference()
    assert ran.moved_bytes == planned.plan.moved_bytes
