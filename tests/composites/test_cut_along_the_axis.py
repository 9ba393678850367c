"""Operators cut along the dim that they search or run along: an expert's bytes, and ONNX Runtime's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from planner import opdefs
from planner.artifacts.worker_model import WorkerModel
from planner.graph.model import Attribute, DType, Graph, Op, Tensor
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.run import run_plan
from planner.search.decided import Decided
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from stock_runtime import run

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

    decided: Decided
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
