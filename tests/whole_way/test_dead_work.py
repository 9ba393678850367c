"""Work whose result nobody reads: a worker may have it, and must not stumble over it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fast_suite import chosen
from planner import api, opdefs
from planner.artifacts.program import Segment
from planner.errors import InfeasibleError, UsageError
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.reading.from_onnx import read_model
from planner.graph.step.roles import with_state
from planner.partition.build import partition
from planner.search.decide import decide
from planner.search.moves import fusion as improve
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

MODELS = Path(__file__).parent.parent / "models"


def graph_of(tensors: dict[str, tuple[int, ...]], ops: list[Op], output: str, dtype: DType = DType.FLOAT32) -> Graph:
    made = {name for op in ops for name in op.outputs}
    every = {name: Tensor(name, shape, dtype) for name, shape in tensors.items()}
    return Graph("g", every, tuple(ops), tuple(name for name in tensors if name not in made), (output,), {})


@pytest.mark.parametrize("workers", chosen([3, 4, 5, 7, 8], fast=[3, 7]))
def test_bert_reads_one_row_which_some_workers_do_not_have(plan_of: Callable[..., Any], workers: int) -> None:
    planned = plan_of(MODELS / "bert.raw.onnx", workers)
    program = planned.load().program
    assert all(step.outputs for worker in program.workers for step in worker.steps if isinstance(step, Segment))
    result = api.run(planned.directory, verify=True)
    assert result.verified
    assert result.predicted_bytes == result.moved_bytes


@pytest.mark.parametrize("is_there", [True, False])
def test_constants_of_work_that_nobody_reads_are_left_out(plan_of: Callable[..., Any], is_there: bool) -> None:
    """One row is read of a sum with a constant: the other workers need neither their rows nor their parts of it."""
    tensors = {"x": (8, 16, 128), "s": (8, 16, 128), "y": (8, 128)}
    ops = [
        Op("sum", "Add", ("x", "table"), ("s",)),
        Op("first", "Gather", ("s", "zero"), ("y",), (("axis", 1),)),
    ]
    graph = graph_of(tensors, ops, "y")
    constants = {"table": Tensor("table", (16, 128), DType.FLOAT32), "zero": Tensor("zero", (), DType.INT64)}
    table = np.arange(16 * 128, dtype=np.float32).reshape(16, 128) if is_there else None
    graph = replace(graph, tensors=graph.tensors | constants, constants={"table": table, "zero": np.array(0)})
    ops_of = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops_of, SearchRequest(4, rules=Rules({"x": "S(1)", "s": "S(1)"})))
    found = partition(graph, ops_of, plan)
    of_table = [[one for one in worker.buffers.values() if one.tensor == "table"] for worker in found.program.workers]
    assert [len(buffers) for buffers in of_table] == [1, 0, 0, 0]
    assert [worker.fixed or worker.loaded[1:] for worker in found.program.workers[1:]] == [()] * 3
    assert [len(values) for values in found.fixed] == [int(is_there), 0, 0, 0]
    if is_there:
        planned = plan_of(graph, 4, pin={"x": "S(1)", "s": "S(1)"})
        assert api.run(planned.directory, verify=True).verified


def test_replicas_that_nobody_turns_to(plan_of: Callable[..., Any]) -> None:
    model = graph_of({"x": (2, 64), "y": (2, 64)}, [Op("softmax", "Softmax", ("x",), ("y",), (("axis", 1),))], "y")
    planned = plan_of(model, 8, pin={"y": "S(1)/2 S(0)/2 S(1)/2"})
    assert api.run(planned.directory, verify=True).verified


def test_names_of_our_own_do_not_meet_those_of_the_model(plan_of: Callable[..., Any]) -> None:
    tensors = {"x": (8, 8), "w": (8, 8), "y": (8, 8), "y@made": (8, 8), "y@reduced": (8, 8), "z": (8, 8)}
    ops = [
        Op("first", "MatMul", ("x", "w"), ("y",)),
        Op("second", "Relu", ("y",), ("y@made",)),
        Op("third", "Add", ("y@made", "y"), ("y@reduced",)),
        Op("fourth", "Relu", ("y@reduced",), ("z",)),
    ]
    planned = plan_of(graph_of(tensors, ops, "z"), 4, pin={"x": "S(1)", "w": "S(0)", "y": "S(0)"})
    assert api.run(planned.directory, verify=True).verified


def test_equal_shapes_of_other_dtypes_are_not_taken_for_each_other(plan_of: Callable[..., Any]) -> None:
    """A mean of floats can be cut along its reduction, a mean of integers rounds and cannot."""
    floats = graph_of({"x": (8, 1), "y": (1, 1)}, [Op("mean", "ReduceMean", ("x", "axes"), ("y",))], "y")
    axes = Tensor("axes", (1,), DType.INT64)
    both = replace(
        floats,
        tensors={
            **floats.tensors,
            "axes": axes,
            "i": Tensor("i", (8, 1), DType.INT32),
            "j": Tensor("j", (1, 1), DType.INT32),
        },
        ops=(*floats.ops, Op("round", "ReduceMean", ("i", "axes"), ("j",))),
        inputs=("x", "i"),
        outputs=("y", "j"),
        constants={"axes": np.array([0])},
    )
    plan_of(both, 4)


def test_a_next_state_that_no_op_makes_is_refused_by_name() -> None:
    graph = graph_of({"w": (4,), "x": (4,), "y": (4,)}, [Op("sum", "Add", ("w", "x"), ("y",))], "y")
    graph = replace(graph, outputs=("y", "w"))
    with pytest.raises(UsageError, match="cannot be paired") as caught:
        with_state(graph, [("w", "w")])
    assert "'w'" in str(caught.value)
    assert StatePair("w", "w") not in graph.state


def test_a_graph_too_entangled_to_be_improved_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read_model(MODELS / "bert_step.onnx")
    ops = opdefs.standard().bind_all(graph)
    monkeypatch.setattr(improve, "MOVE_ENTRIES", 64)
    assert decide(graph, ops, SearchRequest(4)).moved_bytes > 0


def test_a_plan_that_does_not_fit_the_devices_is_refused(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    small.write_text(
        "name: small\n"
        "device: {memory: 1KiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 1GB/s}\n"
        "levels: [{name: bus, ways: 2, bandwidth: 1GB/s, latency: 1us}]\n"
    )
    model = graph_of({"x": (64, 64), "y": (64, 64)}, [Op("relu", "Relu", ("x",), ("y",))], "y")
    with pytest.raises(InfeasibleError, match="no plan fits: every plan takes 16"):
        plan_of(model, 2, topology=str(small))
    assert not (tmp_path / "plan2").exists()
