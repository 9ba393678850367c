"""What plans repeat: forced or by choice, by one op or by all that it stands for."""

import pytest

import opdefs
from planner.algebra.tiling import Tiling
from planner.graph.model import DType, Graph, Op, Tensor
from planner.search.problem import Problem
from planner.search.repetition import overdraws, repeated_by, repeated_by_choice, repeated_once, unsplit


@pytest.mark.parametrize("stands_for", [1, 5])
def test_what_cannot_be_cut_once_is_not_repeated_for_nothing_at_other_cuts(stands_for: int) -> None:
    """Two determinants, on 3 x 2 workers: each is found three times, since two cannot be cut 3 ways, but not six."""
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in (("x", (2, 64, 64)), ("y", (2,)))}
    graph = Graph("det", tensors, (Op("det", "Det", ("x",), ("y",)),), ("x",), ("y",), {})
    problem = Problem(graph, opdefs.standard().bind_all(graph), 6, stands_for={"det": stands_for})
    op, work = problem.variable_of_op["det"], problem.works["det"]
    for text, times in (("R/3 S(0)/2", 0), ("R/3 R/2", 3)):
        strategy = Tiling.parse(text, (3, 2))
        composites = [strategy] * len(problem.variables)
        assert unsplit(problem, composites) == {op}
        once, all_of_them = repeated_once(problem, composites), repeated_by_choice(problem, composites)
        assert once[op] == sum(once) == repeated_by(problem, "det", strategy) == times * work
        assert all_of_them[op] == sum(all_of_them) == stands_for * times * work
        assert overdraws(problem, composites) == (times > 0)
