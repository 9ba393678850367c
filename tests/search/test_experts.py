"""Expert parallelism divides experts' weights; and the found plan gives experts to workers where that costs less."""

from __future__ import annotations

import pytest

from mixtures import SMALL, mixture
from planner import opdefs
from planner.errors import UnsupportedError
from planner.features.zoo import models as zoo
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.decision import Decision
from planner.search.request import SearchRequest

STANDARD = opdefs.standard()


def planned(graph: Graph, workers: int, strategy: str) -> Decision:
    return decide_with_bodies(graph, STANDARD, SearchRequest(workers, strategy=strategy, effort="quick"))


@pytest.mark.parametrize(("spelling", "along"), [("stacked", ("b0/2", "b0/2")), ("capacity form", ("i_a/2", "i_a/2"))])
def test_experts_are_divided_and_the_found_plan_costs_no_more(spelling: str, along: tuple[str, str]) -> None:
    graph = canonical(mixture(spelling, SMALL)).graph
    by_hand, found = (planned(graph, 2, strategy) for strategy in ("expert", "tofu"))
    assert {str(by_hand.tilings[f"experts.{name}.weight"]) for name in ("up", "down")} == {"S(0)/2"}
    assert tuple(str(by_hand.strategies[op]) for op in ("experts.up", "experts.down")) == along
    assert found.cost <= by_hand.cost


def test_experts_of_a_loop_are_no_dim() -> None:
    with pytest.raises(UnsupportedError, match="no experts to split"):
        planned(canonical(mixture("loop", SMALL)).graph, 2, "expert")


@pytest.mark.slow
def test_tokens_go_to_experts_and_come_back() -> None:
    """Mixtral's layer on eight workers: two all-to-alls forward and two backward, each of 7/8 of the places."""
    graph = canonical(zoo.build("moe-8x7b", batch=8, layers=1, seq=2048)).graph
    found, by_hand = (planned(graph, 8, strategy) for strategy in ("tofu", "expert"))
    assert {str(found.tilings[f"block1.inner.expert.{name}.weight"]) for name in ("gate", "up", "down")} == {
        "S(0)/2 S(0)/2 S(0)/2"
    }
    places = 8 * 8 * 640 * 4096 * 2
    assert list(found.tensor_bytes.values()).count(7 * places // 8) == 4
    assert found.cost <= by_hand.cost
