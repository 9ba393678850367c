"""What is found once for all workers of a kind is what is found for each of them."""

from collections.abc import Callable

import pytest

from planner import opdefs
from planner.features.zoo.models import mlp
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.partition import build
from planner.partition.alike import Kinds, kinds_of
from planner.partition.build import partition
from planner.partition.lower import Lowering
from planner.partition.lowered import Lowered
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest

GRAPHS: dict[str, Callable[[], Graph]] = {
    "mlp": lambda: mlp(3, 30, 12),
    "gpt": lambda: gpt("gpt", GptShape(1, 32, 4, 16), batch=6),
}


def apart(graph: Graph, lowered: Lowered) -> Kinds:
    """Every worker as a kind of its own."""
    kinds = kinds_of(graph, lowered)
    every = range(len(kinds.of))
    return Kinds(
        tuple(every),
        tuple(kinds.reads[kinds.of[worker]] for worker in every),
        tuple(kinds.is_over[kinds.of[worker]] for worker in every),
    )


@pytest.mark.parametrize(
    ("name", "workers", "seed"),
    [
        ("mlp", 4, 0),
        ("mlp", 6, 1),
        pytest.param("gpt", 4, 2, marks=pytest.mark.slow),
        pytest.param("gpt", 3, 5, marks=pytest.mark.slow),
    ],
)
def test_workers_of_a_kind_have_the_program_that_each_would_have(
    name: str,
    workers: int,
    seed: int,
    random_plan: Callable[[Problem, int, int], Decision],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = GRAPHS[name]()
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed)
    found = partition(graph, ops, plan)
    monkeypatch.setattr(build, "kinds_of", apart)
    alone = partition(graph, ops, plan)
    assert found.program == alone.program
    assert found.bodies == alone.bodies


def test_workers_on_equal_parts_are_of_one_kind() -> None:
    """On data that is cut evenly all workers do the same; where a batch of 6 is cut in 4, there are two sizes."""
    kinds = {}
    for batch in (8, 6):
        graph = mlp(2, 16, batch)
        ops = opdefs.standard().bind_all(graph)
        ask = SearchRequest(4, strategy="data")
        lowered = Lowering(graph, decide(graph, ops, ask)).run(ops)
        kinds[batch] = kinds_of(graph, lowered).of
    assert kinds == {8: (0, 0, 0, 0), 6: (0, 1, 0, 1)}
