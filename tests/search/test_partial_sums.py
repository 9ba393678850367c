"""Sums of partial results in the search: what may be partial, what that saves, and that it is the best."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opdefs
from integer_programme import least_of_all
from partial_plans import all_kinds, plan_of, sums, two_products
from planner.algebra.tiling import UNCUT, Replicate, Shard, Tiling
from planner.cost.tables import Candidates
from planner.graph.model import Graph
from planner.partition.build import partition
from planner.partition.lower import Lowering
from planner.search.certify import certify
from planner.search.partial_sums import find_partial_sums, impossible_entry
from planner.search.problem import Problem, SearchVariable
from planner.search.recurse import search_recursively

DESCRIPTIONS = opdefs.standard()


def candidates(graph: Graph, cheap: bool = True) -> set[str]:
    ops = DESCRIPTIONS.bind_all(graph)
    found = find_partial_sums(graph, ops, {op.name for op in graph.ops} if cheap else set())
    assert found.ops == {op.name for op in graph.ops if set(op.inputs) - set(graph.constants) <= found.tensors}
    return set(found.tensors)


def test_what_may_be_partial() -> None:
    assert candidates(two_products()) == {"p", "q"}
    every = {"p", "q", "qt", "r", "rs", "n", "v", "s1", "s2", "s3", "mean"}
    assert candidates(all_kinds()) == every
    assert candidates(all_kinds(), cheap=False) == set(), "p is read together with what is only moved"


def test_every_entry_is_what_the_program_moves_or_cannot_be_lowered() -> None:
    graph = two_products(4, 6, 3)
    ops = DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, 3, with_partial_sums=True)
    limit = impossible_entry(graph, 3, [link.name for link in problem.links], problem.tables)
    held = {"a": "S(1)", "b": "S(0)", "c": "S(1)", "d": "S(0)"}
    fixed = {problem.variable_of_tensor[name]: (Tiling.parse(text, (3,)),) for name, text in held.items()}

    def keep(variable: SearchVariable, options: Candidates) -> Candidates:
        return fixed.get(variable.number, options)

    options = [keep(variable, problem.extensions(variable, UNCUT, 3)) for variable in problem.variables]
    moved, impossible = [], 0
    for composites in itertools.product(*options):
        plan = plan_of(problem, composites)
        if plan.moved_bytes < limit:
            assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes
            moved.append(plan.moved_bytes)
        else:
            with pytest.raises(AssertionError, match=r"cannot read|is made as"):
                Lowering(graph, plan).run(ops)
            impossible += 1
    # Tilings of p, q and y, strategies of both products and of the sum; or p, q, sum and products all partial.
    assert len(moved) == 3 * 3 * 3 * 3 * 3 * 2 + 3
    assert len(moved) + impossible == 4 * 4 * 3 * 3 * 3 * 3
    found = search_recursively(problem, (3,), keep)
    assert found.moved_bytes == min(moved)
    assert {name for name in "pqy" if found.composites[problem.variable_of_tensor[name]].has_partial} == {"p", "q"}
    whole = Problem(graph, ops, 3)
    assert search_recursively(whole, (3,), keep).moved_bytes == 2 * min(moved)


def check(graph: Graph, cuts: tuple[int, ...], divide: Sequence[int]) -> bool:
    """Holds a search against the integer programme; whether its plan has something partial.

    Args:
        graph: sums of products.
        cuts: the ways of each cut.
        divide: by cut how products are divided: 0 rows, 1 columns, 2 the inner dim. Their inputs lie so already.
    """
    workers, ops = int(np.prod(cuts)), DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, workers, replication_budget=1.0, with_partial_sums=True)
    left = {problem.variable_of_tensor[name] for name in graph.inputs if name.startswith("a")}
    right = {problem.variable_of_tensor[name] for name in graph.inputs if name.startswith("b")}

    def keep(variable: SearchVariable, options: Candidates) -> Candidates:
        along = divide[len(options[0].ways) - 1]
        if variable.op is not None and variable.op.op.op_type == "MatMul":
            dim = {0: 0, 1: 1, 2: 2}
        elif variable.number in left | right:
            dim = {0: 0, 2: 1} if variable.number in left else {1: 1, 2: 0}
        else:
            return options
        wanted = [one for one in options if one.placements[-1] == (Shard(dim[along]) if along in dim else Replicate())]
        return tuple(wanted) or options[-1:]

    found = certify(problem, cuts, keep, search_recursively(problem, cuts, keep))
    assert found.lower_bytes == found.moved_bytes
    assert found.moved_bytes == least_of_all(problem, cuts, keep)
    plan = plan_of(problem, found.composites)
    assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes == found.moved_bytes
    return any(tiling.has_partial for tiling in plan.tilings.values())


def sampled(count: int, cuts: Sequence[tuple[int, ...]]) -> Counter[bool]:
    seen = Counter[bool]()

    @settings(max_examples=count, deadline=None)
    @given(sums(), st.sampled_from(cuts), st.lists(st.sampled_from([2, 2, 2, 1, 0]), min_size=3, max_size=3))
    def run(graph: Graph, cuts: tuple[int, ...], divide: list[int]) -> None:
        seen[check(graph, cuts, divide)] += 1

    run()
    return seen


def test_plans_are_as_good_as_an_integer_programme_finds() -> None:
    assert sampled(40, [(2,), (3,), (2, 2)])[True] > 10


@pytest.mark.slow
def test_many_plans() -> None:
    assert sampled(250, [(2,), (3,), (4,), (2, 2), (3, 2), (2, 3), (2, 2, 2)])[True] > 50
