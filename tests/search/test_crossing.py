"""Plans put together from several, and plans mended that repeat too much work."""

from dataclasses import replace

import numpy as np
import pytest

import opdefs
from planner import zoo
from planner.algebra.tiling import Replicate, Shard, Tiling
from planner.cost.compute import REPLICATED_SHARE_LIMIT, repeated_work
from planner.errors import InfeasibleError
from planner.graph.model import DType, Graph, Op, Tensor
from planner.search import baselines, budget
from planner.search.budget import within_budget
from planner.search.crossing import crossed
from planner.search.improve import improve
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.search.repetition import overdraws

CUTS = (2, 2, 2)


def problem_of(name: str) -> Problem:
    graph = zoo.build(name)
    return Problem(graph, opdefs.standard().bind_all(graph), 8)


def starts(problem: Problem) -> list[Found]:
    restrictions = (baselines.data_parallel(problem), baselines.model_parallel(problem), baselines.first_dim(problem))
    return [search_recursively(problem, CUTS, restriction) for restriction in restrictions]


def moved(problem: Problem, found: Found) -> int:
    return sum(amount for _, amount in problem.bytes_by_tensor(found.composites))


@pytest.mark.parametrize("name", ["alexnet", "lenet-5", "vgg-16", "rnn-1-1k"])
def test_the_best_of_several_plans_is_made_of_them(name: str) -> None:
    problem = problem_of(name)
    plans = starts(problem)
    found = crossed(problem, plans)
    assert moved(problem, found) == found.moved_bytes < min(plan.moved_bytes for plan in plans)
    for variable, composite in enumerate(found.composites):
        assert composite in {plan.composites[variable] for plan in plans}


def test_one_plan_crossed_is_itself() -> None:
    problem = problem_of("lenet-5")
    found = search_recursively(problem, CUTS, no_restriction)
    assert crossed(problem, [found]) == found


def share(problem: Problem, found: Found) -> float:
    works = (
        (problem.works[bound.op.name], bound, found.composites[problem.variable_of_op[bound.op.name]])
        for bound in problem.ops
    )
    repeated = repeated_work(works)
    return repeated / sum(problem.works.values())


def test_a_plan_that_repeats_too_much_is_mended() -> None:
    problem = problem_of("cnn-5x2048-6")
    # A budget a hundred times the limit stands for one that was drawn up too generously.
    generous = replace(problem, replication_budget=100 * REPLICATED_SHARE_LIMIT, variables=[], links=[])
    found = improve(generous, CUTS, no_restriction, search_recursively(generous, CUTS, no_restriction))
    assert overdraws(generous, found.composites)
    mended = within_budget(problem, CUTS, no_restriction, found)
    assert not overdraws(problem, mended.composites)
    assert share(problem, mended) <= REPLICATED_SHARE_LIMIT < share(problem, found)
    assert found.moved_bytes <= mended.moved_bytes == moved(problem, mended)


def test_a_plan_that_cannot_be_mended_is_improved_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("cnn-5x2048-6")
    found = search_recursively(problem, CUTS, no_restriction)
    monkeypatch.setattr(budget, "overdraws", lambda problem, composites: True)

    def refused(*_: object) -> Found:
        raise InfeasibleError("what is to be partial cannot be")

    monkeypatch.setattr(budget, "_mended", refused)
    kept = within_budget(problem, CUTS, no_restriction, found)
    assert kept.moved_bytes == improve(problem, CUTS, no_restriction, found).moved_bytes < found.moved_bytes


def test_the_ways_to_divide_an_op_do_not_grow_with_the_cuts_for_ever() -> None:
    """An op of four dims of 64 that all of 1,024 workers repeat: 4**10 ways, of which few are offered."""
    shape = (64, 64, 64, 64)
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name in ("x", "y")}
    graph = Graph("relu", tensors, (Op("relu", "Relu", ("x",), ("y",)),), ("x",), ("y",), {})
    problem = Problem(graph, opdefs.standard().bind_all(graph), 1024)
    op = problem.variables[problem.variable_of_op["relu"]]
    for cuts in (1, 2, 3, 10):
        repeated = Tiling((Replicate(),) * cuts, (2,) * cuts)
        ways = budget._divided(problem, op, repeated)
        assert len(set(ways)) == len(ways) == min(4**cuts, 64)
        assert all(isinstance(placement, Shard) for way in ways for placement in way.placements)


def test_a_plan_within_the_budget_stays_as_it_is() -> None:
    problem = problem_of("mlp-5x300")
    found = search_recursively(problem, CUTS, no_restriction)
    assert within_budget(problem, CUTS, no_restriction, found) is found


def test_groups_of_equal_variables() -> None:
    problem = problem_of("rnn-1-1k")
    found = search_recursively(problem, CUTS, no_restriction)
    firsts, group = problem.alike(found.composites)
    for variable, number in enumerate(np.asarray(group).tolist()):
        first = firsts[number]
        assert problem.content[variable] == problem.content[first]
        assert found.composites[variable] == found.composites[first]


def test_what_repetition_saves_is_a_matter_of_the_neighbours() -> None:
    """Two equal ops are repeated: to divide one is free, and the other's input would have to be divided otherwise."""
    tensors = {name: Tensor(name, (64, 64), DType.FLOAT32) for name in ("x", "y", "a", "b")}
    ops = (Op("free", "Relu", ("x",), ("y",)), Op("dear", "Relu", ("a",), ("b",)))
    graph = Graph("two", tensors, ops, ("x", "a"), ("y", "b"), {})
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 2)
    rows, columns, everywhere = (Tiling((one,), (2,)) for one in (Shard(0), Shard(1), Replicate()))
    placed = {"x": rows, "y": rows, "a": rows, "b": columns}
    composites = tuple(placed[one.tensors[0]] if one.op is None else everywhere for one in problem.variables)
    links = {
        number: [link for link in problem.links if link.op == number] for number in problem.variable_of_op.values()
    }
    saved = budget._saved(problem, composites, links)
    half = 64 * 64 * 4 // 2
    by_name = {name: saved[number] for name, number in problem.variable_of_op.items()}
    assert by_name == {"free": -2 * half, "dear": -half}, "what is repeated reads all; what is divided, half of a half"
