"""SoyBean's dynamic programme over levels."""

import pytest

from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.errors import InfeasibleError
from planner.features.zoo import models as zoo
from planner.search.decide import decide
from planner.search.literature import levels
from planner.search.literature.levels import levels_of
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest


@pytest.mark.parametrize("model", ["mlp-3x24", "lenet-5"])
@pytest.mark.parametrize("workers", [2, 3])
def test_one_cut_is_exact(model: str, workers: int) -> None:
    """With one cut every order of elimination finds the same least cost."""
    graph = zoo.build(model, batch=36)
    ops = opdefs.standard().bind_all(graph)
    by_levels = decide(graph, ops, SearchRequest(workers, strategy="soybean-levels"))
    assert by_levels.cost == decide(graph, ops, SearchRequest(workers, strategy="soybean")).cost


def test_neighbours_are_in_adjacent_levels() -> None:
    graph = zoo.build("alexnet", batch=8)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 2)
    options = [problem.extensions(variable, Tiling((), ()), 2) for variable in problem.variables]
    sizes = [len(values) for values in options]
    levels = levels_of(sizes, problem.factors(options))
    level = {variable: number for number, variables in enumerate(levels.core) for variable in variables}
    assert sorted(levels.sequence) == list(range(len(problem.variables)))
    assert len(levels.core) > 3
    for link in problem.links:
        if link.tensor in level and link.op in level:
            assert abs(level[link.tensor] - level[link.op]) <= 1


def test_wide_levels_are_refused() -> None:
    graph = zoo.build("gpt-2x64")
    ops = opdefs.standard().bind_all(graph)
    with pytest.raises(InfeasibleError, match="states at level"):
        decide(graph, ops, SearchRequest(2, strategy="soybean-levels"))


def test_a_large_graph_is_refused_by_counted_work(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = zoo.build("mlp-2x24", batch=36)
    ask = SearchRequest(2, strategy="soybean-levels")
    bound = opdefs.standard().bind_all(graph)
    decide(graph, bound, ask)
    monkeypatch.setattr(levels, "LEVEL_STEPS", 100)
    with pytest.raises(InfeasibleError, match="to eliminate one by one"):
        decide(graph, bound, ask)
