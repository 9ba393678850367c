"""What the tables say a plan moves is what its program moves, tensor by tensor, for plans good and bad."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deliveries import all_deliveries
from fast_suite import by_night, spread
from partial_plans import all_kinds, partial_plan, separate_gpt, two_products
from planner import opdefs
from planner.artifacts.program import Fetch, Program, Segment
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.graph.step.deliveries import with_deliveries
from planner.partition.build import partition
from planner.search.decision import Decision
from planner.search.model.problem import Problem

MODELS = Path(__file__).parent.parent / "models"
FAMILIES = (
    *("mlp-5x300", "cnn-5x512-24", "lenet-5", "alexnet", "vgg-16", "inception-v3"),
    *("resnet-50", "wresnet-101-6", "rnn-4-8k", "gpt-2x1024", "gpt2"),
)
"""Of every family of the zoo: ``tests/tools/random_plans.py`` looks at all of it."""


def check_program(program: Program) -> None:
    """Every buffer is filled before it is read, every fetch is covered by its pieces, nothing is copied twice."""
    filled = [{*worker.loaded, *worker.fixed} for worker in program.workers]
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Segment):
                filled[worker.worker].update(step.outputs)
            else:
                filled[worker.worker].add(step.target)
    for worker in program.workers:
        ready = {*worker.loaded, *worker.fixed}
        for step in worker.steps:
            if isinstance(step, Segment):
                assert set(step.inputs) <= ready, step.name
                ready.update(step.outputs)
                continue
            assert isinstance(step, Fetch)
            target = worker.buffers[step.target].region
            assert sum(piece.region.elements for piece in step.pieces) == target.elements
            for position, piece in enumerate(step.pieces):
                assert target.contains(piece.region)
                for other in step.pieces[position + 1 :]:
                    assert piece.region.intersect(other.region).is_empty
                for source in piece.sources:
                    assert source.buffer in filled[source.worker]
                    assert program.workers[source.worker].buffers[source.buffer].region.contains(piece.region)
                    if source.worker == worker.worker:
                        assert source.buffer in ready
            ready.add(step.target)
        assert set(worker.collected) <= ready


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8])
def test_random_plans_of_an_mlp(random_plan: Callable[[Problem, int, int], Decision], workers: int, seed: int) -> None:
    graph = mlp(2, 12, 16)
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed)
    program = partition(graph, ops, plan).program
    check_program(program)
    assert program.predicted_bytes == plan.moved_bytes > 0


@pytest.mark.parametrize(
    ("model", "workers", "seed"), spread(["lenet-5", "mlp-2x12"], [2, 3, 4, 6], range(3), one_of=4)
)
def test_random_plans_with_shared_deliveries(
    random_plan: Callable[[Problem, int, int], Decision], model: str, workers: int, seed: int
) -> None:
    """Every tensor of several readers is delivered to all of them, and again to the last two: halos, too."""
    whole = zoo.build(model, batch=8)
    graph = with_deliveries(whole, all_deliveries(whole))
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed)
    program = partition(graph, ops, plan).program
    check_program(program)
    assert program.predicted_bytes == plan.moved_bytes > 0


@pytest.mark.parametrize(
    ("model", "workers"),
    spread(["cnn_bn_grads_core", "bert_step", "mlp_grads_core", "resnet50"], [3, 2, 6, 4], one_of=4),
)
def test_random_plans_of_models(random_plan: Callable[[Problem, int, int], Decision], model: str, workers: int) -> None:
    graph = read_model(MODELS / f"{model}.onnx")
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed=workers)
    program = partition(graph, ops, plan).program
    check_program(program)
    assert program.predicted_bytes == plan.moved_bytes > 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("make", [two_products, all_kinds])
def test_random_plans_with_partial_tensors(make: Callable[[], Graph], workers: int, seed: int) -> None:
    graph = make()
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, workers, with_partial_sums=True)
    plan = partial_plan(problem, workers, seed)
    program = partition(graph, ops, plan).program
    check_program(program)
    assert program.predicted_bytes == plan.moved_bytes > 0


@pytest.mark.parametrize("workers", [2, 4, 6])
def test_random_plans_of_a_transformer_with_partial_tensors(workers: int) -> None:
    graph = separate_gpt(1, 24, 4, 12, 2)
    ops = opdefs.standard().bind_all(graph)
    plan = partial_plan(Problem(graph, ops, workers, with_partial_sums=True), workers, workers)
    assert any(tiling.has_partial for tiling in plan.tilings.values())
    program = partition(graph, ops, plan).program
    check_program(program)
    assert program.predicted_bytes == plan.moved_bytes > 0


@pytest.mark.parametrize(
    ("model", "workers"),
    by_night(FAMILIES, [3, 4], one_of=2, night=[("wresnet-101-6", 4), ("inception-v3", 4)]),
)
def test_random_plans_of_the_zoo(
    random_plan: Callable[[Problem, int, int], Decision], model: str, workers: int
) -> None:
    graph = zoo.build(model)
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed=workers)
    assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes > 0
