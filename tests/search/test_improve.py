"""The neighbourhood that improvement looks at."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import opdefs
from planner.algebra.tiling import UNCUT, Placement, Replicate, Shard, Tiling
from planner.features.zoo.models import build
from planner.progress import silent
from planner.search.model.problem import Problem, SearchVariable, no_restriction
from planner.search.moves import fusion as improve
from planner.search.moves.recursion import search_recursively

placements = st.lists(st.sampled_from([Shard(0), Shard(1), Replicate()]), max_size=6).map(tuple)


@given(placements)
def test_every_order_once_in_the_order_of_permutations(some: tuple[Placement, ...]) -> None:
    found = list(improve._all_orders(some))
    assert found == list(dict.fromkeys(itertools.permutations(some)))
    assert len(found) == len(set(found))


@given(placements)
def test_near_orders_exchange_neighbours(some: tuple[Placement, ...]) -> None:
    found = list(improve._near_orders(some))
    assert len(found) == max(0, len(some) - 1)
    for place, order in enumerate(found):
        assert order[place] == some[place + 1]
        assert order[place + 1] == some[place]
        assert order[:place] + order[place + 2 :] == some[:place] + some[place + 2 :]


def reached(problem: Problem, variable: SearchVariable, composite: Tiling) -> bool:
    """Goes from proposal to proposal."""
    prefix = UNCUT
    for depth, ways in enumerate(composite.ways, start=1):
        options = problem.proposals(variable, prefix, ways)
        prefix = composite.outermost(depth)
        if prefix not in options:
            return False
    return True


def test_a_composite_can_be_what_proposals_lead_to() -> None:
    graph = build("lenet-5", batch=6)
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 12, partitioned_inputs=True)
    ways, outcomes = (2, 3, 2), set()
    for variable in {problem.spaces[one.number]: one for one in problem.variables}.values():
        rank = len(variable.op.extents if variable.op else graph.tensors[variable.tensors[0]].shape)
        choices = [*map(Shard, range(rank)), *(Shard(dim, 5) for dim in range(rank)), Replicate()]
        for some in itertools.product(choices, repeat=len(ways)):
            composite = Tiling(some, ways)
            outcomes.add(found := problem.spaces[variable.number].can_be(composite))
            assert found == reached(problem, variable, composite), (variable.tensors, str(composite))
    assert outcomes == {True, False}


def test_what_is_too_entangled_for_all_changes_together_is_changed_in_one_way_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until no kind of change makes the plan better: the placements of each cut, and orders."""
    graph, cuts = build("mlp-5x300"), (2, 2, 2, 2)
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 16)
    start = search_recursively(problem, cuts, no_restriction)
    together = improve.improve(problem, cuts, no_restriction, start)
    monkeypatch.setattr(improve, "MOVE_ENTRIES", 500)
    apart = improve.improve(problem, cuts, no_restriction, start)
    assert together.cost <= apart.cost < start.cost
    near = improve.Neighbourhood(problem, cuts, no_restriction)
    assert len(near.kinds) == len(cuts) + 1
    assert all(improve._better(problem, near, kind, apart, None) is apart for kind in near.kinds)


def test_what_no_kind_of_change_makes_better_is_improved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of change at once, for all variables but few: never worse than one kind after the other."""
    graph, cuts = build("mlp-5x300"), (2, 2, 2)
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 8)
    start = search_recursively(problem, cuts, no_restriction)
    together = improve.improve(problem, cuts, no_restriction, start)
    monkeypatch.setattr(improve, "MOVE_ENTRIES", 200)
    near = improve.Neighbourhood(problem, cuts, no_restriction)
    one_by_one = improve._one_by_one(problem, near, near.kinds, start, silent, None)
    problem.decided_apart = 1
    in_parts = improve.improve(problem, cuts, no_restriction, start)
    assert together.cost <= in_parts.cost <= one_by_one.cost
    assert problem.cost(in_parts.tilings) == in_parts.cost


def test_the_last_cut_of_a_recursive_plan_is_settled() -> None:
    """To place it otherwise, all else as it is, makes no plan better."""
    graph, cuts = build("mlp-5x300"), (2, 2, 2, 2)
    problem = Problem(graph, tuple(opdefs.standard().bind_all(graph)), 16)
    start = search_recursively(problem, cuts, no_restriction)
    near = improve.Neighbourhood(problem, cuts, no_restriction)
    *others, last = near.kinds
    assert improve._better(problem, near, last, start, None) is start
    assert any(improve._better(problem, near, kind, start, None) is not start for kind in others)
