"""Limits on memory, against what strategies of the literature take: none is refused that one of them keeps to."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from planner import opdefs
from planner.errors import InfeasibleError
from planner.features.zoo import models as zoo
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.limit.trial import Trial
from planner.planning.machines import target_of
from planner.planning.objective import LITERATURE, of_the_literature
from planner.planning.request import ModelSource, PlanRequest
from planner.planning.session import Session

STANDARD = opdefs.standard()


def product(size: int) -> Graph:
    tensors = {name: Tensor(name, (size, size), DType.FLOAT32) for name in "abc"}
    return Graph("product", tensors, (Op("product", "MatMul", ("a", "b"), ("c",)),), ("a", "b"), ("c",), {})


def session(graph: Graph, workers: int, inputs: str, limit: int | None = None, strategy: str = "tofu") -> Session:
    source = ModelSource(Path("model.onnx"), ReadOptions(), STANDARD, None, make=lambda: graph)
    limits = None if limit is None else (limit,) * workers
    target = target_of(workers, None, None)
    options = PlanOptions(
        model=source.model,
        memory=limit,
        strategy=strategy,
        inputs=inputs,
        recompute="none",  # type: ignore[arg-type]
    )
    return Session(PlanRequest(options, source, target, limits))


def peak(trial: Trial) -> int:
    return max(trial.partitioned.program.peak_bytes)


def kept_or_stated(graph: Graph, workers: int, inputs: str, limit: int, strategy: str = "tofu") -> tuple[bool, int]:
    """Whether there is a plan, and what it takes; else the least that the refusal states."""
    try:
        return True, peak(session(graph, workers, inputs, limit, strategy).planned().trial)
    except InfeasibleError as error:
        return False, int(re.findall(r"--memory (\d+)B", error.hint)[0])


@pytest.mark.parametrize("inputs", ["free", "partitioned"])
@pytest.mark.parametrize(
    ("size", "workers", "limit"),
    [
        (256, 4, 5 << 16),
        pytest.param(4096, 8, 36 << 20, marks=pytest.mark.slow),
        pytest.param(4096, 8, 33 << 20, marks=pytest.mark.nightly),
        *(pytest.param(4096, 64, limit, marks=pytest.mark.nightly) for limit in (6 << 20, 5 << 20, 9 << 19)),
    ],
)
def test_a_product_keeps_to_what_a_grid_in_steps_keeps_to(size: int, workers: int, limit: int, inputs: str) -> None:
    is_kept, takes = kept_or_stated(product(size), workers, inputs, limit)
    assert is_kept
    assert takes <= limit


MODELS = {
    "product": lambda: product(256),
    "mlp": lambda: zoo.build("mlp-3x64", batch=32),
    "lenet": lambda: zoo.build("lenet-5", batch=8),
    "gpt": lambda: zoo.build("gpt-1x32-4h-lm", batch=2),
    "cnn": lambda: zoo.build("cnn-3x64-12", batch=4),
}


@pytest.mark.parametrize(
    ("model", "seed"),
    [
        ("product", 0),
        pytest.param("mlp", 0, marks=pytest.mark.slow),
        *(pytest.param(model, seed, marks=pytest.mark.nightly) for model in MODELS for seed in range(1, 9)),
    ],
)
def test_the_stated_least_is_not_above_what_strategies_reach(model: str, seed: int) -> None:
    """Between what every plan takes at least and what the plan without a limit takes, nearer to the former."""
    random, graph = Random(f"{model} {seed}"), MODELS[model]()
    workers, inputs = random.choice((2, 4, 8)), random.choice(("free", "partitioned"))
    free = session(graph, workers, inputs)
    least = EveryPlan(graph, STANDARD).least(workers).total_bytes // workers
    limit = round(least + (peak(free.planned().trial) - least) * random.random() ** 2)
    is_kept, takes = kept_or_stated(graph, workers, inputs, limit)
    plans = dict(of_the_literature(LITERATURE, free.by_strategy))
    reached = {name: peak(found) for name, found in plans.items() if isinstance(found, Trial)}
    assert reached
    reached["distcnn within the limit"] = kept_or_stated(graph, workers, inputs, limit, "distcnn")[1]
    if is_kept:
        assert takes <= limit
    else:
        assert takes <= min(reached.values()), reached
        assert limit < min(reached.values())
