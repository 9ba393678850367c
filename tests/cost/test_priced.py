"""Tables in which memory has prices: their sums stay within the integers that they are made of."""

from dataclasses import replace
from fractions import Fraction

import pytest

from planner import opdefs
from planner.cost.priced import PricedTables, payable
from planner.cost.residence import Residence
from planner.features.zoo.models import build, mlp
from planner.machine.topology_file import shipped_topology
from planner.planning.machines import cuts_on
from planner.planning.objective import Times
from planner.search import decide as decide_module
from planner.search.decide import decide
from planner.search.repeats.shortened import shortened
from planner.search.request import SearchRequest


def test_charges_of_a_large_graph_are_no_more_than_an_integer_holds() -> None:
    """Terabytes of tensors, at picoseconds for each byte of them."""
    graph, machine = mlp(3, 1 << 21, 1 << 21), shipped_topology("dgx-h100")
    ops = opdefs.standard().bind_all(graph)
    ask = SearchRequest(machine.device_count, cuts_on(machine), effort="quick")
    goal, residence = Times(machine, ask.tables).goal, Residence(graph, ops)
    assert payable(Fraction(1), residence, 8) == 1
    price = payable(goal.highest_price, residence, 8)
    assert price < goal.highest_price
    held = residence.of(decide(graph, ops, ask))
    fullest = int(held.argmax())
    priced = PricedTables(goal.tables, residence, dict.fromkeys((fullest, fullest - 1), price))
    found = decide(graph, ops, replace(ask, tables=priced))  # what it costs is the sum over its tensors and ops
    assert residence.of(found)[fullest] < 0.7 * held[fullest]


@pytest.mark.slow
def test_blocks_far_from_a_moment_that_has_a_price_stand_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build("gpt-10x64", batch=16)
    ops = opdefs.standard().bind_all(graph)
    ask = SearchRequest(2, effort="quick")
    residence = Residence(graph, ops)
    fullest = int(residence.least().argmax())
    priced = PricedTables(ask.tables, residence, {fullest: Fraction(1, 4)})
    short = shortened(graph, ops, priced.of_place)
    assert short is not None
    assert len(short.ops) < 0.8 * len(ops)
    whole = decide(graph, ops, replace(ask, tables=priced))
    monkeypatch.setattr(decide_module, "WHOLE_OPS", len(ops) - 1)
    found = decide(graph, ops, replace(ask, tables=priced))
    assert found.cost == whole.cost
    assert residence.of(found).max() == residence.of(whole).max()
