"""Recomputation over the whole way: the same bits as without, the bytes that are predicted, and the memory planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner import api, opdefs
from planner.artifacts.program import Segment
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.limit.in_steps import all_in_steps
from planner.planning.limit.least_memory import EveryPlan
from same_bits import Case, Compared, compared, each_op_as_it_stands, loaded, read

MODELS = Path(__file__).parent.parent / "models"
SMALL: dict[str, Callable[[], Graph]] = {
    "lenet": lambda: zoo.build("lenet-5", batch=4),
    "gpt": lambda: gpt("g", GptShape(1, 16, 2, 4), batch=4),
    "cnn": lambda: read(str(MODELS / "cnn_bn_grads_core.onnx")),
}
FILES = (
    file
    for folder in ("", "fresh", "exports")
    for file in (MODELS / folder).glob("*.onnx")
    if not file.name.startswith(("resnet50", "t5")) and not file.name.endswith((".raw.onnx", ".optimized.onnx"))
)
COMMITTED = [*sorted(str(file.relative_to(MODELS)) for file in FILES), "ort_training_cnn"]


def same(case: Case, again: tuple[str, ...]) -> Compared:
    """Compares two runs, and says of what the runtime has fused otherwise that it is equal without."""
    assert again
    found = compared(case, again)
    found.check()
    if found.differing:
        with each_op_as_it_stands():
            literal = compared(case, again)
        assert not literal.differing, literal.differing
    return found


@pytest.mark.parametrize("name", SMALL)
def test_the_same_bits(name: str) -> None:
    case = Case.of(SMALL[name](), 2)
    found = same(case, case.again("*"))
    assert not found.differing


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMITTED)
def test_the_same_bits_of_committed_models(name: str) -> None:
    case = Case.of(read(str(MODELS / name)), 2)
    same(case, case.again("*"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_the_same_bits_of_blocks(workers: int) -> None:
    case = Case.of(gpt("g", GptShape(8, 16, 2, 8), batch=8), workers)
    assert not same(case, case.again("all")).differing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exports/llama.onnx", "ort_training_cnn"])
def test_the_same_bits_of_what_auto_offers(name: str) -> None:
    case = Case.of(read(str(MODELS / name)), 2)
    same(case, case.of_chain())


@pytest.mark.slow
def test_a_deep_network_runs_in_half_of_the_least_memory(tmp_path: Path) -> None:
    """Half of what every plan takes at least that computes nothing again."""
    graph, model = gpt("g", GptShape(24, 16, 2, 64), batch=8), tmp_path / "g.onnx"
    write_model(graph, model)
    limit = EveryPlan(canonical(graph).graph, opdefs.standard()).least(2).total_bytes // 2 // 2
    plan = api.plan(model, gpus=2, memory=limit, effort="quick", out=tmp_path / "p").plan
    assert plan.recomputed is not None
    assert max(plan.peak_bytes) <= limit
    ran = api.run(tmp_path / "p", steps=1, random_weights=True, verify=True)
    assert ran.verified, ran.difference()
    assert ran.moved_bytes == ran.predicted_bytes


@pytest.mark.slow
def test_the_same_bits_of_ops_in_steps() -> None:
    """A copy of an op in steps is one in steps."""
    case = Case.of(gpt("g", GptShape(1, 16, 2, 4), batch=4), 2)
    case = replace(case, plan=all_in_steps(case.plan))
    again = case.again("*")
    assert any(strategy.steps for name, strategy in case.with_copies(again).strategies.items() if ".again" in name)
    same(case, again)


def test_blocks_are_computed_again_in_less_memory() -> None:
    case = Case.of(gpt("g", GptShape(8, 16, 2, 8), batch=8), 1)
    plans = (case.plan, case.with_copies(case.again("all")))
    plain, again = (max(loaded(case.graph, plan).program.peak_bytes) for plan in plans)
    assert again < 0.6 * plain


def test_a_copy_runs_in_another_segment_than_its_original() -> None:
    """A runtime would make one of two equal nodes, and keep what they make; here memory would let them be in one."""
    case = Case.of(mlp(3, 128, 2), 1)
    plan = case.with_copies(case.again("*"))
    (worker,) = loaded(case.graph, plan).program.workers
    ops = [step.ops for step in worker.steps if isinstance(step, Segment)]
    assert plan.graph.copies == {"x1_op.again": "x1_op", "x2_op.again": "x2_op"}
    assert plan.graph.copies.keys() <= {name for names in ops for name in names}
    assert not [name for names in ops for name in names if plan.graph.copies.get(name) in names]
