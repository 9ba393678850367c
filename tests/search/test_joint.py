"""The joint problem at a price on repeated work."""

import pytest

import opdefs
from planner import zoo
from planner.cost.compute import REPLICATED_SHARE_LIMIT
from planner.search.certify import certify, every_composite
from planner.search.effort import EFFORTS
from planner.search.improve import improve
from planner.search.joint import Joint, Joints
from planner.search.order import find_order
from planner.search.pricing import Pricing
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.search.work_prices import FREE, Price

CUTS = (2, 2, 2)
EFFORT = EFFORTS["normal"]


@pytest.fixture(scope="module")
def priced() -> tuple[Problem, Found, Pricing]:
    """A plan within the budget, of a graph whose best plans repeat more than allowed."""
    graph = zoo.build("lenet-5")
    problem = Problem(graph, opdefs.standard().bind_all(graph), 8, replication_budget=10 * REPLICATED_SHARE_LIMIT)
    pricing = Pricing(problem, CUTS, no_restriction)
    pricing.note(improve(problem, CUTS, no_restriction, search_recursively(problem, CUTS, no_restriction)))
    pricing.search()
    found = pricing.best()
    assert found is not None
    return problem, found, pricing


def joints_of(problem: Problem, found: Found) -> Joints:
    choices = every_composite(problem, CUTS, no_restriction, found, EFFORT)
    assert choices is not None
    order = find_order(choices.sizes.tolist(), problem.scopes, problem.content, most_neighbours=2, most_entries=1 << 24)
    return Joints(problem, choices, order, EFFORT)


def alone(joints: Joints, price: Price, found: Found) -> Joint:
    """The bound begun at this price and no other."""
    joint = joints.at(price)
    joints.begin(joint, found)
    return joint


@pytest.mark.parametrize("times", [0.25, 1.0, 4.0])
def test_the_price_is_changed_where_another_bounds_plans_better(
    priced: tuple[Problem, Found, Pricing], times: float
) -> None:
    problem, found, pricing = priced
    joints = joints_of(problem, found)
    price = Price(pricing.price.bytes_per_work * times)
    best = joints.bounded(joints.at(price), found)
    assert alone(joints, price, found).lower <= best.lower <= found.moved_bytes
    if times != 1.0:
        assert best.price != price
        assert alone(joints, price, found).lower < best.lower


def test_nothing_stays_nothing(priced: tuple[Problem, Found, Pricing]) -> None:
    problem, found, _ = priced
    joints = joints_of(problem, found)
    assert joints.bounded(joints.at(FREE), found).price == FREE


def test_a_bound_with_a_price_is_no_plan_s_cost(priced: tuple[Problem, Found, Pricing]) -> None:
    """What is solved exactly without passes is no less than what passes say at any price."""
    problem, found, pricing = priced
    exact = certify(problem, CUTS, no_restriction, found, EFFORT, pricing=pricing)
    assert exact.lower_bytes is not None
    joints = joints_of(problem, found)
    for times in (0.5, 1.0, 2.0):
        assert alone(joints, Price(pricing.price.bytes_per_work * times), found).lower <= exact.moved_bytes
