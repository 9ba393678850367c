"""Ops that cannot be split at some cut: named where that costs something, and only where nothing else can be done."""

import pytest

from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.model.problem import Problem
from planner.search.model.unsplit import unsplit


def problem_of(shapes: dict[str, tuple[int, ...]], ops: tuple[Op, ...], workers: int) -> Problem:
    made = {name for op in ops for name in op.outputs}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    inputs = tuple(name for name in shapes if name not in made)
    graph = Graph("drawn", tensors, ops, inputs, tuple(sorted(made)), {})
    return Problem(graph, opdefs.standard().bind_all(graph), workers)


def named(problem: Problem, ways: tuple[int, ...], **strategies: str) -> set[str]:
    """The ops that are named where ops are divided like this, and all tensors are everywhere."""
    composites = [Tiling.parse("R", ways)] * len(problem.variables)
    for name, text in strategies.items():
        composites[problem.variable_of_op[name]] = Tiling.parse(text, ways)
    found = unsplit(problem, composites)
    return {name for name, number in problem.variable_of_op.items() if number in found}


@pytest.mark.parametrize("text", ["R/3 S(0)/2", "R/3 R/2"])
def test_two_of_something_cannot_be_cut_three_ways(text: str) -> None:
    problem = problem_of({"x": (2, 64, 64), "y": (2,)}, (Op("det", "Det", ("x",), ("y",)),), 6)
    assert named(problem, (3, 2), det=text) == {"det"}


def test_what_is_repeated_though_it_could_be_split_is_not_named() -> None:
    """Three could be cut 3 ways, and 2 ways; by choice they are not."""
    problem = problem_of({"x": (6, 64, 64), "y": (6,)}, (Op("det", "Det", ("x",), ("y",)),), 6)
    for text in ("S(0)/3 S(0)/2", "R/3 S(0)/2", "S(0)/3 R/2", "R/3 R/2"):
        assert named(problem, (3, 2), det=text) == set(), text


def test_a_later_cut_may_have_nothing_left_to_split() -> None:
    """Two halves of two: the second cut finds one in each half."""
    problem = problem_of({"x": (2, 64, 64), "y": (2,)}, (Op("det", "Det", ("x",), ("y",)),), 4)
    assert named(problem, (2, 2), det="S(0)/2 R/2") == {"det"}
    assert named(problem, (2, 2), det="R/2 S(0)/2") == set(), "by choice at the first cut, split at the second"


@pytest.mark.parametrize("size", [64, 4096])
def test_what_is_negligible_is_not_named(size: int) -> None:
    """Beside a large product that all repeat, a small determinant is a thousandth and less of what the plan costs."""
    shapes = {"x": (1, 64, 64), "y": (1,), "a": (size, size), "b": (size, size), "c": (size, size)}
    ops = (Op("det", "Det", ("x",), ("y",)), Op("product", "MatMul", ("a", "b"), ("c",)))
    problem = problem_of(shapes, ops, 2)
    assert named(problem, (2,), det="R", product="R") == ({"det"} if size == 64 else set())
