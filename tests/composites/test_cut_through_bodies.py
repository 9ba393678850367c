"""Composite ops cut along the dim that they normalise over, run and verified; one kernel wherever that is enough."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fast_suite import spread
from planner import api, opdefs
from planner.features.zoo.models import mlp
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import read_model
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.results import PlanResult
from planner.runtime.run_report import RunResult
from planner.search.decide import decide
from planner.search.request import SearchRequest

MODELS = Path(__file__).parent.parent / "models"
Kinds = dict[str, tuple[int, ...]]


def graph_of(tensors: Kinds, ops: list[Op], outputs: tuple[str, ...], labels: tuple[str, ...] = ()) -> Graph:
    made = {name for op in ops for name in op.outputs}
    known = {
        name: Tensor(name, shape, DType.INT64 if name in labels else DType.FLOAT32) for name, shape in tensors.items()
    }
    return Graph("small", known, tuple(ops), tuple(name for name in tensors if name not in made), outputs, {})


def single(op_type: str, shape: tuple[int, ...], learned: Kinds, **attributes: Attribute) -> Graph:
    op = Op("composite", op_type, ("x", *learned), ("y",), tuple(sorted(attributes.items())))
    return graph_of({"x": shape, **learned, "y": shape}, [op], ("y",))


def vocabulary(rows: int, depth: int, words: int) -> Graph:
    """A projection to a large vocabulary and its loss."""
    ops = [
        Op("project", "MatMul", ("h", "w"), ("scores",)),
        Op("loss_op", "SoftmaxCrossEntropyLoss", ("scores", "labels"), ("loss",)),
    ]
    tensors: Kinds = {
        "h": (rows, depth),
        "w": (depth, words),
        "scores": (rows, words),
        "labels": (rows,),
        "loss": (),
    }
    return graph_of(tensors, ops, ("loss",), labels=("labels",))


def projection(op_type: str, rows: int, depth: int, width: int) -> Graph:
    ops = [
        Op("project", "MatMul", ("h", "w"), ("scores",)),
        Op("composite", op_type, ("scores",), ("p",), (("axis", -1),)),
        Op("mix", "MatMul", ("p", "v"), ("y",)),
    ]
    shapes: Kinds = {
        "h": (rows, depth),
        "w": (depth, width),
        "scores": (rows, width),
        "p": (rows, width),
        "v": (width, depth),
        "y": (rows, depth),
    }
    return graph_of(shapes, ops, ("y",))


@pytest.fixture
def verified(tmp_path: Path) -> Callable[..., tuple[PlanResult, RunResult]]:
    """Plans a graph, runs it and verifies it."""

    def run(graph: Graph, workers: int, **options: object) -> tuple[PlanResult, RunResult]:
        file, directory = tmp_path / "model.onnx", tmp_path / f"plan{workers}"
        write_model(graph, file)
        planned = api.plan(file, gpus=workers, out=directory, **options)  # type: ignore[arg-type]
        result = api.run(directory, steps=1, verify=True)
        assert result.verified, result.difference()
        assert result.moved_bytes == result.predicted_bytes == planned.plan.moved_bytes
        return planned, result

    return run


Verified = Callable[..., tuple[PlanResult, RunResult]]


def test_a_softmax_over_a_million_moves_two_scalars(verified: Verified) -> None:
    """One maximum and one sum, each joined over 4 workers: 2 all-reduces of 4 bytes, 2 * (4 - 1) * 4 bytes each."""
    planned, _ = verified(single("Softmax", (1, 10**6), {}, axis=1), 4)
    assert planned.plan.moved_bytes == 48
    assert str(planned.plan.tilings["x"]) == str(planned.plan.tilings["y"]) == "S(1)/2 S(1)/2"
    assert "composite" not in planned.plan.strategies
    assert planned.plan.excess_bytes < 100, "both scalars are read by all"


NORMALISING = {
    "Softmax": single("Softmax", (1, 301), {}, axis=-1),
    "LogSoftmax": single("LogSoftmax", (1, 301), {}, axis=-1),
    "LayerNormalization": single("LayerNormalization", (1, 302), {"s": (302,), "b": (302,)}, axis=-1),
    "InstanceNormalization": single("InstanceNormalization", (1, 1, 24, 25), {"s": (1,), "b": (1,)}),
    "MeanVarianceNormalization": single("MeanVarianceNormalization", (1, 2, 24, 25), {}),
}


@pytest.mark.parametrize(("op_type", "workers"), spread(NORMALISING, [2, 3, 4, 6], one_of=4))
def test_a_composite_is_cut_along_what_it_normalises_over(verified: Verified, op_type: str, workers: int) -> None:
    graph = NORMALISING[op_type]
    shape = graph.tensors["x"].shape
    planned, _ = verified(graph, workers, pin={"x": f"S({len(shape) - 1})"})
    assert "composite" not in planned.plan.strategies
    largest = 4 * int(np.prod(shape))
    assert 0 < planned.plan.moved_bytes < largest // 4


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_vocabulary_is_split_under_its_loss(verified: Verified, workers: int) -> None:
    planned, _ = verified(vocabulary(3, 8, 6000), workers, pin={"w": "S(1)"})
    assert "loss_op" not in planned.plan.strategies
    assert str(planned.plan.strategies["loss_op/exp"]).startswith("i1")
    assert planned.plan.moved_bytes < 4 * 3 * 6000 // 10, "a tenth of the scores"


@pytest.mark.parametrize("workers", [2, 4])
def test_one_kernel_where_the_rows_are_cut(verified: Verified, workers: int) -> None:
    planned, _ = verified(projection("Softmax", 64, 16, 16), workers)
    strategy = planned.plan.strategies["composite"]
    assert set(str(strategy).split()) == {"i0/2"}
    assert not any("/" in name for name in planned.plan.tilings)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "graph",
    [
        projection("Softmax", 64, 16, 16),
        projection("Softmax", 3, 16, 400),
        projection("LogSoftmax", 5, 40, 10),
        vocabulary(3, 8, 600),
        vocabulary(64, 4, 10),
        single("Softmax", (4, 9), {}, axis=0),
    ],
    ids=["rows", "columns", "small", "vocabulary", "batch", "first"],
)
def test_bodies_never_cost_more_and_the_program_says_the_same(graph: Graph, workers: int) -> None:
    descriptions = opdefs.standard()
    plain = decide(graph, descriptions.bind_all(graph), SearchRequest(workers))
    without = decide_with_bodies(graph, descriptions, SearchRequest(workers), through_bodies=False)
    assert without.graph == graph
    assert without == plain
    found = decide_with_bodies(graph, descriptions, SearchRequest(workers))
    assert found.cost <= plain.cost
    program = partition(found.graph, found.ops, found).program
    assert program.predicted_bytes == found.moved_bytes == sum(found.tensor_bytes.values())
    if found.cost == plain.cost:
        assert found == plain


def test_steps_of_bert_and_resnet_are_cheaper_and_one_of_an_mlp_is_what_it_was() -> None:
    for graph, cheaper in (
        (read_model(MODELS / "bert_step.onnx"), True),
        (read_model(MODELS / "resnet50.onnx"), True),
        (mlp(2, 64, 64), False),
    ):
        descriptions = opdefs.standard()
        plain = decide(graph, descriptions.bind_all(graph), SearchRequest(2))
        found = decide_with_bodies(graph, descriptions, SearchRequest(2))
        assert (found.cost < plain.cost) is cheaper
        assert (found == plain) is not cheaper


def test_explain_shows_the_model_s_op_and_its_body(verified: Verified, tmp_path: Path) -> None:
    verified(single("Softmax", (1, 300), {}, axis=1), 2)
    rows = api.explain(tmp_path / "plan2").ops
    assert (rows[0].name, rows[0].op_type, rows[0].strategy) == ("composite", "Softmax", "through its body")
    assert [row.op_type for row in rows[1:]] == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
    assert [row.name for row in api.explain(tmp_path / "plan2", subject="composite").ops] == ["composite"]
    assert "ReduceSum" in [row.op_type for row in api.explain(tmp_path / "plan2", subject="composite/sum").ops]


def test_a_plan_with_bodies_is_written_twice_with_the_same_bytes(tmp_path: Path) -> None:
    write_model(single("Softmax", (1, 300), {}, axis=1), tmp_path / "m.onnx")
    found = []
    for name in ("one", "two"):
        api.plan(tmp_path / "m.onnx", gpus=3, out=tmp_path / name)
        found.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert found[0] == found[1]
