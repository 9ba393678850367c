"""Problems in which some ops may no longer be repeated: made from one that is there, not anew."""

from dataclasses import replace

import pytest

import opdefs
from planner import zoo
from planner.algebra.tiling import UNCUT, Replicate
from planner.graph.model import DType, Graph, Op, Tensor
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import search_recursively

CUTS = (2, 2)


def problem_of(name: str) -> Problem:
    graph = zoo.build(name)
    ops = tuple(opdefs.standard().bind_all(graph))
    return Problem(graph, ops, 4, any_may_repeat=True, with_partial_sums=True)


def may_be_repeated(problem: Problem) -> set[str]:
    """Ops that may be repeated at the first cut though they can be divided."""
    found = set()
    for name, number in problem.variable_of_op.items():
        options = problem.proposals(problem.variables[number], UNCUT, 2)
        if len(options) > 1 and any(isinstance(option.placements[0], Replicate) for option in options):
            found.add(name)
    return found


@pytest.mark.parametrize("name", ["lenet-5", "gpt-2x64-2h", "rnn-1-1k"])
def test_it_is_the_problem_that_would_be_made_anew(name: str) -> None:
    """What is known of tables is shared, and neither finds another plan for what the other has found."""
    problem = problem_of(name)
    repeated = may_be_repeated(problem)
    every_other = {number for number in problem.variable_of_op.values() if number % 2}
    divided = frozenset(name for name, number in problem.variable_of_op.items() if number in every_other)
    before = search_recursively(problem, CUTS, no_restriction)
    problem.alike(before.composites)
    there = problem.dividing(divided)
    assert there._network is problem._network
    assert (there.eliminated_entries, problem.eliminated_entries > 0) == (0, True)
    assert may_be_repeated(there) == repeated - divided
    assert may_be_repeated(problem) == repeated
    anew = replace(problem_of(name), divided=divided, variables=[], links=[])
    assert there.content == anew.content
    for mine, theirs in zip(there.alike(before.composites), anew.alike(before.composites), strict=True):
        assert list(mine) == list(theirs)
    found, expected = (search_recursively(one, CUTS, no_restriction) for one in (there, anew))
    assert (found.moved_bytes, found.composites) == (expected.moved_bytes, expected.composites)
    assert search_recursively(problem, CUTS, no_restriction) == before
    assert replace(there, variables=[], links=[]).divided == divided


def test_an_op_that_may_not_be_repeated_takes_no_partial_sums_that_would_repeat_it() -> None:
    """So it has a direction less, and there is another order of elimination."""
    shapes = {"x": (100, 100), "w": (100, 100), "y": (100, 100), "a": (2, 8), "b": (8, 2), "c": (8, 2), "d": (2, 8)}
    shapes |= dict.fromkeys(("product", "turned", "other", "sum"), (2, 2))
    ops = (
        Op("large", "MatMul", ("x", "w"), ("y",)),
        Op("first", "MatMul", ("a", "b"), ("product",)),
        Op("turn", "Transpose", ("product",), ("turned",)),
        Op("second", "MatMul", ("d", "c"), ("other",)),
        Op("add", "Add", ("turned", "other"), ("sum",)),
    )
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    graph = Graph("drawn", tensors, ops, ("x", "w", "a", "b", "c", "d"), ("y", "sum"), {})
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 4, any_may_repeat=True, with_partial_sums=True)
    number = problem.variable_of_op["turn"]
    assert problem.spaces[number].may_add_partial_sums
    there = problem.dividing(frozenset(("turn",)))
    assert there._network is not problem._network
    assert not there.spaces[number].may_add_partial_sums
    assert there.spaces[number].directions == problem.spaces[number].directions - 1
    anew = replace(problem, divided=frozenset(("turn",)), variables=[], links=[])
    found, expected = (search_recursively(one, CUTS, no_restriction) for one in (there, anew))
    assert (found.moved_bytes, found.composites) == (expected.moved_bytes, expected.composites)
