"""Tables in which memory has prices: their sums stay within the integers that they are made of."""

from dataclasses import replace
from fractions import Fraction

from planner import opdefs
from planner.cost.priced import PricedTables, payable
from planner.cost.residence import Residence
from planner.machine.routes import level_ways
from planner.machine.topology_file import shipped_topology
from planner.planning.objective import Times
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.zoo import mlp


def test_charges_of_a_large_graph_are_no_more_than_an_integer_holds() -> None:
    """Terabytes of tensors, at picoseconds for each byte of them."""
    graph, machine = mlp(3, 1 << 21, 1 << 21), shipped_topology("dgx-h100")
    ops = opdefs.standard().bind_all(graph)
    ask = SearchRequest(machine.device_count, level_ways(machine), effort="quick")
    goal, residence = Times(machine, ask.tables).goal, Residence(graph, ops)
    assert payable(Fraction(1), residence, 8) == 1
    price = payable(goal.highest_price, residence, 8)
    assert price < goal.highest_price
    held = residence.of(decide(graph, ops, ask))
    fullest = int(held.argmax())
    priced = PricedTables(goal.tables, residence, dict.fromkeys((fullest, fullest - 1), price))
    found = decide(graph, ops, replace(ask, tables=priced))  # what it costs is the sum over its tensors and ops
    assert residence.of(found)[fullest] < 0.7 * held[fullest]
