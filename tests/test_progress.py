"""What is told of a search: never another cost than that of a plan of the whole network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner import api, opdefs
from planner.features.zoo import models as zoo
from planner.graph.files.to_onnx import write_model
from planner.progress import in_part, silent, with_best, without_costs
from planner.search.decide import decide
from planner.search.repeats.shortened import shortened
from planner.search.request import SearchRequest

Told = list[tuple[str, int | None, int | None]]


class Teller:
    """Takes note of all that is told."""

    def __init__(self) -> None:
        self.told: Told = []

    def __call__(self, doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        self.told.append((doing, cost, lower))


def test_silence() -> None:
    silent("x", cost=1, lower=1)


def test_a_cost_of_something_else_is_not_told() -> None:
    teller = Teller()
    without_costs(teller)("x", cost=5, lower=4)
    assert teller.told == [("x", None, None)]


def test_a_part_of_the_work_is_told_with_what_is_done_in_it() -> None:
    teller = Teller()
    in_part(teller, "start 2 of 7")("deciding cut 1 of 3", cost=5, lower=4)
    assert teller.told == [("start 2 of 7: deciding cut 1 of 3", 5, 4)]


@pytest.mark.parametrize(
    ("best", "lower_of_best", "cost", "lower", "shown"),
    [
        (None, None, 5, 4, (5, 4)),
        (9, 8, None, None, (9, 8)),
        (9, 8, 10, 7, (9, 8)),
        (9, None, 9, 7, (9, 7)),
        (9, 8, 9, None, (9, 8)),
        (9, 8, 6, None, (6, None)),
    ],
)
def test_the_best_cost_is_told(
    best: int | None, lower_of_best: int | None, cost: int | None, lower: int | None, shown: tuple[int, int | None]
) -> None:
    teller = Teller()
    with_best(teller, best, lower_of_best)("x", cost=cost, lower=lower)
    assert teller.told == [("x", *shown)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Told]]:
    monkeypatch.chdir(tmp_path)

    def planned(name: str, **options: object) -> tuple[int, Told]:
        teller = Teller()
        write_model(zoo.build(name), Path("m.onnx"))
        result = api.plan(Path("m.onnx"), out=Path("plan"), force=True, progress=teller, **options)  # type: ignore[arg-type]
        return result.plan.cost, teller.told

    return planned


def test_costs_fall_to_that_of_the_plan_and_bounds_stay_below(here: Callable[..., tuple[int, Told]]) -> None:
    cost, told = here("lenet-5", gpus=8)
    costs = [known for _, known, _ in told if known is not None]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1] >= cost
    bounds = [lower for _, _, lower in told if lower is not None]
    assert bounds
    assert max(bounds) <= cost
    assert told[0][1] is None, "nothing is known yet"


def test_a_search_for_the_least_time_tells_no_picoseconds(here: Callable[..., tuple[int, Told]]) -> None:
    _, told = here("mlp-5x300", gpus=4, topology="p2.8xlarge")
    by_time = [known for doing, known, _ in told if doing.startswith("planning again, for the least time")]
    assert by_time
    assert set(by_time) == {None}


def test_a_short_network_tells_no_cost() -> None:
    graph = zoo.build("gpt-12x64-2h")
    ops = opdefs.standard().bind_all(graph)
    assert shortened(graph, ops) is not None
    teller = Teller()
    decide(graph, ops, SearchRequest(4, effort="quick", progress=teller))
    assert any(doing.startswith("improving") for doing, _, _ in teller.told)
    assert {cost for _, cost, _ in teller.told} == {None}
