"""How far bytes come, as the tables of time take it, is how far the program's fetches bring them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fast_suite import spread
from partial_plans import all_kinds, partial_plan
from planner import opdefs
from planner.algebra.delivery import made_tiling
from planner.algebra.region import index_space
from planner.cost.seconds.depth import arriving, depths, redistributed
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph, is_used
from planner.graph.reading.from_onnx import read_model
from planner.partition.build import partition
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from planner.tdl.bind import BoundOp

MODELS = Path(__file__).parent.parent / "models"
Moved = NDArray[np.int64]


def as_fetched(graph: Graph, ops: tuple[BoundOp, ...], plan: Decision) -> dict[str, Moved]:
    """By tensor, bytes by receiver and depth."""
    depth = depths(plan.cuts)
    found = {name: np.zeros((plan.workers, len(plan.cuts)), dtype=np.int64) for name in plan.tilings}
    for worker in partition(graph, ops, plan).program.workers:
        for step in worker.steps:
            target = getattr(step, "target", None)
            if target is not None:
                for sender, amount in step.taken_bytes(worker.buffers[target].dtype.item_bytes).items():
                    if sender != worker.worker:
                        found[worker.buffers[target].tensor][worker.worker, depth[worker.worker, sender]] += amount
    return found


def as_counted(graph: Graph, ops: tuple[BoundOp, ...], plan: Decision) -> dict[str, Moved]:
    """The same by the boxes of groups."""
    found = {name: np.zeros((plan.workers, len(plan.cuts)), dtype=np.int64) for name in plan.tilings}
    for bound in ops:
        strategy = plan.strategies[bound.op.name].tiling
        reads = bound.reads(bound.ranges(strategy))
        for slot, first in bound.delivered_slots.items():
            name = bound.op.inputs[slot]
            if slot == first and name not in graph.constants:
                tensor = graph.tensors[name]
                moved = arriving(reads[slot].boxes, plan.tilings[name], index_space(tensor.shape))
                found[name] += moved * tensor.dtype.item_bytes
        for position, name in enumerate(bound.op.outputs):
            if name and is_used(graph, name):
                tensor = graph.tensors[name]
                made = made_tiling(strategy, bound.analysis.outputs[position], bound.reducers(strategy))
                for phase in redistributed(made, plan.tilings[name], index_space(tensor.shape)):
                    found[name] += phase * tensor.dtype.item_bytes
    return found


def check(graph: Graph, ops: tuple[BoundOp, ...], plan: Decision) -> None:
    fetched, counted = as_fetched(graph, ops, plan), as_counted(graph, ops, plan)
    assert sum(int(moved.sum()) for moved in fetched.values()) == plan.moved_bytes > 0
    for name, moved in fetched.items():
        np.testing.assert_array_equal(counted[name], moved, err_msg=name)


@pytest.mark.parametrize(("workers", "seed"), spread([2, 3, 4, 6, 8, 12], range(6), one_of=3))
def test_random_plans_of_an_mlp(random_plan: Callable[[Problem, int, int], Decision], workers: int, seed: int) -> None:
    graph = mlp(2, 12, 16)
    ops = opdefs.standard().bind_all(graph)
    check(graph, ops, random_plan(Problem(graph, ops, workers), workers, seed))


@pytest.mark.parametrize("workers", [4, 6])
@pytest.mark.parametrize("model", ["cnn_bn_grads_core", "mlp_grads_core"])
def test_random_plans_of_models(random_plan: Callable[[Problem, int, int], Decision], model: str, workers: int) -> None:
    graph = read_model(MODELS / f"{model}.onnx")
    ops = opdefs.standard().bind_all(graph)
    check(graph, ops, random_plan(Problem(graph, ops, workers), workers, seed=workers))


@pytest.mark.parametrize(("workers", "seed"), spread([2, 3, 4, 6, 8, 12], range(6), one_of=3))
def test_random_plans_with_partial_tensors(workers: int, seed: int) -> None:
    graph = all_kinds()
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, workers, with_partial_sums=True)
    check(graph, ops, partial_plan(problem, workers, seed))
