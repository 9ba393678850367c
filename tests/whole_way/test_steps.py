"""Ops in steps: what they compute, what they move, and the limits on memory that they meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fast_suite import chosen, spread
from planner import api, opdefs
from planner.algebra.region import Boxes
from planner.artifacts.plan import Plan, Steps, digest
from planner.errors import InfeasibleError, ModelError
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.features.zoo.models.convolutional import cnn
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.residual import _bottleneck
from planner.features.zoo.models.step import training_step
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import to_model, write_model
from planner.partition import stepping
from planner.partition.build import complete_plan, partition, told_by_program
from planner.planning.limit.in_steps import choices
from planner.records import plain_record
from planner.runtime.engine.core.transport import NumpyTransport
from planner.runtime.run_report import RunResult
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from run_plan import run_plan
from written_plans import write_plan


def small_resnet() -> Graph:
    """Two bottlenecks, the second of half as many rows and columns."""
    model = Forward("resnet-small")
    x = model.input("x", 24, 8, 12, 12)
    for number, stride in enumerate((1, 2)):
        x = _bottleneck(model, f"block{number}", x, 8, stride)
    x = model.linear("fc", model.global_average_pool("pool", x), 16)
    return training_step(model, x, loss="softmax_cross_entropy", optimizer="sgd")


MODELS: dict[str, Callable[[], Graph]] = {
    "mlp": lambda: mlp(3, 64, 96),
    "cnn": lambda: cnn(3, 16, 8, batch=8),
    "lenet-5": lambda: zoo.build("lenet-5", batch=24),
    "gpt": lambda: gpt("g", GptShape(1, 64, 4, 16), batch=4),
    "resnet": small_resnet,
    "lstm": lambda: rnn(1, 64, batch=12, steps=3),
}


def one_op(op_type: str, *shapes: tuple[int, ...], made: tuple[int, ...], **attributes: Attribute) -> Graph:
    names = "abc"[: len(shapes)]
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in zip(names, shapes, strict=True)}
    tensors["y"] = Tensor("y", made, DType.FLOAT32)
    op = Op("op", op_type, tuple(names), ("y",), tuple(sorted(attributes.items())))
    return Graph("one", tensors, (op,), tuple(names), ("y",), {})


def convolution(batch: int, inputs: int, outputs: int, image: int) -> Graph:
    shapes = ((batch, inputs, image, image), (outputs, inputs, 3, 3))
    return one_op("Conv", *shapes, made=(batch, outputs, image, image), pads=(1, 1, 1, 1))


def run(folder: Path, transport: NumpyTransport | None = None) -> RunResult:
    """With a transport in this process, which is quicker."""
    found = run_plan(folder, steps=2, verify=True, transport=transport)
    assert found.verified, found.difference()
    assert all(fetch.predicted_bytes == fetch.moved_bytes for fetch in found.fetches)
    return found


# Whole models


@pytest.mark.parametrize(
    ("model", "workers"),
    chosen(product(MODELS, [2, 3, 4, 6, 8]), fast=[("mlp", 6), ("gpt", 2)]),
)
def test_models_in_steps_are_right_and_move_what_they_move_at_once(model: str, workers: int, tmp_path: Path) -> None:
    write_model(MODELS[model](), tmp_path / "m.onnx")
    whole, stepped = (
        api.plan(tmp_path / "m.onnx", gpus=workers, effort="quick", op_schedule=how, out=tmp_path / how).plan
        for how in ("whole", "stepped")
    )
    in_steps = [str(strategy) for strategy in stepped.strategies.values() if strategy.steps is not None]
    assert len(in_steps) >= 6
    assert all(" steps along " in text for text in in_steps)
    assert not any(strategy.steps for strategy in whole.strategies.values())
    assert stepped.moved_bytes == whole.moved_bytes
    assert Plan.from_json(stepped.to_json()) == stepped
    assert run(tmp_path / "stepped").moved_bytes == stepped.moved_bytes


def test_two_runs_have_the_same_bits(tmp_path: Path) -> None:
    write_model(MODELS["mlp"](), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=4, op_schedule="stepped", out=tmp_path / "plan")
    for name in ("one", "two"):
        api.run(tmp_path / "plan", steps=1, result=tmp_path / f"{name}.npz")
    one, two = np.load(tmp_path / "one.npz"), np.load(tmp_path / "two.npz")
    assert sorted(one) == sorted(two) != []
    assert all(np.array_equal(one[name], two[name]) for name in one)


# Single ops


CASES: dict[str, Graph] = {
    "MatMul": one_op("MatMul", (8, 12), (12, 8), made=(8, 8)),
    "stacks": one_op("MatMul", (4, 8, 12), (4, 12, 6), made=(4, 8, 6)),
    "Gemm": one_op("Gemm", (12, 8), (6, 12), (6,), made=(8, 6), transA=1, transB=1),
    "Einsum": one_op("Einsum", (6, 8, 4), (6, 4, 10), made=(8, 6, 10), equation="bij,bjk->ibk"),
    "Conv": convolution(4, 8, 6, 5),
    "Conv with a bias": one_op("Conv", (4, 8, 9), (6, 8, 3), (6,), made=(4, 6, 7)),
    "ConvTranspose": one_op("ConvTranspose", (4, 8, 5), (8, 6, 3), made=(4, 6, 7)),
}


@pytest.mark.parametrize(("name", "workers"), spread(list(CASES), [2, 3, 4], one_of=2))
def test_an_op_stepped_along_each_of_its_variables_is_the_whole(name: str, workers: int, tmp_path: Path) -> None:
    graph = CASES[name]
    ops = opdefs.standard().bind_all(graph)
    plain = decide(graph, ops, SearchRequest(workers, partitioned_inputs=True))
    [op] = ops
    tried = []
    for number in range(len(op.variables)):
        known = choices(plain, along=number)
        if known:
            counts = {steps.count for steps in known["op"][:2]}
            for count in sorted(counts):
                folder = tmp_path / f"{number}.{count}"
                run(written(graph, with_steps(plain, Steps(number, count)), folder), NumpyTransport())
                tried.append(folder)
    assert len(tried) >= 3


def with_steps(decided: Decision, steps: Steps) -> Decision:
    return replace(decided, strategies={"op": replace(decided.strategies["op"], steps=steps)})


def written(graph: Graph, decided: Decision, folder: Path) -> Path:
    content = to_model(graph).SerializeToString(deterministic=True)
    partitioned = partition(graph, decided.ops, decided)
    plan = complete_plan(decided, graph.name, digest(content), **told_by_program(partitioned.program))
    write_plan(folder, graph, content, plan, partitioned)
    return folder


def test_a_chunk_that_is_added_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk is the first one again: tables and bytes do not see it where nothing moves, the judge does."""
    split = stepping._split

    def twice(ranges: Boxes, variable: int, count: int) -> list[Boxes]:
        pieces = split(ranges, variable, count)
        return [pieces[0], pieces[0], *pieces[2:]]

    write_model(one_op("MatMul", (8, 12), (12, 8), made=(8, 8)), tmp_path / "m.onnx")
    monkeypatch.setattr(stepping, "_split", twice)
    api.plan(tmp_path / "m.onnx", gpus=2, pin={"a": "R", "b": "R"}, op_schedule="stepped", out=tmp_path / "plan")
    assert not api.run(tmp_path / "plan", steps=1, verify=True).verified


def test_a_chunk_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = stepping._split
    monkeypatch.setattr(stepping, "_split", lambda *arguments: split(*arguments)[:-1])
    graph = CASES["MatMul"]
    plain = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(4, partitioned_inputs=True))
    with pytest.raises(AssertionError):
        partition(graph, plain.ops, with_steps(plain, choices(plain)["op"][:2][-1]))


# Limits on memory


@pytest.mark.parametrize(
    ("graph", "workers", "memory", "moved"),
    [
        pytest.param(one_op("MatMul", *((4096, 4096),) * 2, made=(4096, 4096)), 8, "40MiB", 201_326_592, id="product"),
        pytest.param(convolution(64, 512, 512, 14), 8, "12MiB", 54_001_664, id="512 features"),
        pytest.param(convolution(256, 2048, 2048, 6), 8, "60MiB", 301_989_888, id="2048 features"),
        pytest.param(
            one_op("MatMul", *((4096, 4096),) * 2, made=(4096, 4096)), 64, "8MiB", 603_979_776,
            id="on 64", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_limits_that_are_met_in_steps_alone(
    graph: Graph, workers: int, memory: str, moved: int, tmp_path: Path
) -> None:
    """The plan that moves least without a limit, in less memory than any plan takes whose ops run at once."""
    write_model(graph, tmp_path / "m.onnx")

    def planned(how: str) -> Plan:
        found = api.plan(
            tmp_path / "m.onnx", gpus=workers, inputs="partitioned", memory=memory, op_schedule=how, out=tmp_path / how
        )  # type: ignore[arg-type]
        return found.plan

    with pytest.raises(InfeasibleError, match="fits"):
        planned("whole")
    plan = planned("auto")
    assert plan.moved_bytes == moved
    assert max(plan.peak_bytes) <= float(memory[:-3]) * 2**20
    assert plan.certified_gap == 0


@pytest.mark.parametrize(
    ("graph", "memory"),
    [(one_op("MatMul", *((256, 256),) * 2, made=(256, 256)), "180KiB"), (convolution(16, 64, 64, 6), "140KiB")],
)
def test_such_plans_run_within_their_limits(graph: Graph, memory: str, tmp_path: Path) -> None:
    write_model(graph, tmp_path / "m.onnx")
    plan = api.plan(tmp_path / "m.onnx", gpus=8, inputs="partitioned", memory=memory, out=tmp_path / "plan").plan
    assert any(strategy.steps is not None for strategy in plan.strategies.values())
    assert max(plan.peak_bytes) <= float(memory[:-3]) * 2**10
    found = run(tmp_path / "plan")
    assert found.moved_bytes == plan.moved_bytes
    assert max(found.arena_bytes) <= max(plan.peak_bytes)


# What is said, and refused


def test_steps_are_told(tmp_path: Path) -> None:
    write_model(CASES["MatMul"], tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=4, inputs="partitioned", op_schedule="stepped", out=tmp_path / "plan")
    [row] = api.explain(tmp_path / "plan", subject="op").ops
    assert " in 2 steps along " in row.strategy
    assert plain_record(api.explain(tmp_path / "plan"))["steps"] == [{"op": "op", "variable": "m", "count": 2}]


@pytest.mark.slow
def test_the_memory_that_is_told_is_that_of_the_programs(tmp_path: Path) -> None:
    """Of a model of one op: what its plan takes at once and in the steps that are told, to a few bytes beside."""
    graph = one_op("MatMul", *((256, 256),) * 2, made=(256, 256))
    write_model(graph, tmp_path / "m.onnx")
    plain = api.plan(tmp_path / "m.onnx", gpus=8, inputs="partitioned", out=tmp_path / "plan").plan
    [told] = api.explain(tmp_path / "plan", subject="op").memory
    assert told.at_once_bytes == max(plain.peak_bytes)
    assert told.in_steps_bytes is not None
    assert told.in_steps_bytes < 0.7 * told.at_once_bytes
    assert not told.is_stepped
    limit = f"{told.in_steps_bytes}B"
    stepped = api.plan(tmp_path / "m.onnx", gpus=8, inputs="partitioned", memory=limit, out=tmp_path / "stepped").plan
    assert max(stepped.peak_bytes) <= told.in_steps_bytes
    [told] = api.explain(tmp_path / "stepped", subject="op").memory
    assert told.is_stepped
    assert told.in_steps_bytes == max(stepped.peak_bytes)
    assert api.explain(tmp_path / "stepped", subject="a").memory == ()


def test_a_plan_without_steps_says_nothing_of_them(tmp_path: Path) -> None:
    write_model(CASES["MatMul"], tmp_path / "m.onnx")
    for how in ("auto", "whole"):
        api.plan(tmp_path / "m.onnx", gpus=4, op_schedule=how, out=tmp_path / how)  # type: ignore[arg-type]
    assert "steps" not in (tmp_path / "auto" / "plan.json").read_text()
    assert (tmp_path / "auto" / "plan.json").read_bytes() == (tmp_path / "whole" / "plan.json").read_bytes()


def test_a_model_without_products_is_refused(tmp_path: Path) -> None:
    write_model(one_op("Relu", (16, 16), made=(16, 16)), tmp_path / "m.onnx")
    with pytest.raises(InfeasibleError, match="--op-schedule stepped: no op of one"):
        api.plan(tmp_path / "m.onnx", gpus=4, op_schedule="stepped", out=tmp_path / "plan")
    with pytest.raises(InfeasibleError, match="--strategy distcnn: no op of one"):
        api.plan(tmp_path / "m.onnx", gpus=4, strategy="distcnn", out=tmp_path / "plan")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [('"count":', '"count": 1, "was":', "at least 2"), ('"variable": "', '"variable": "x', "not")],
)
def test_steps_that_cannot_be_read_are_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    write_model(CASES["MatMul"], tmp_path / "m.onnx")
    plan = api.plan(tmp_path / "m.onnx", gpus=4, op_schedule="stepped", out=tmp_path / "plan").plan
    text = plan.to_json()
    assert old in text
    with pytest.raises(ModelError, match=why):
        Plan.from_json(text.replace(old, new))
