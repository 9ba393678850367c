"""The chain of sets: what is computed again first, and what it saves."""

from __future__ import annotations

import random
from itertools import pairwise

from planner import opdefs
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.features.zoo.models import build
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import Activations, recomputed
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.recomputation.chain import chain_of_sets


def sets_by_work(graph: Graph) -> tuple[frozenset[str], ...]:
    """The chain where only an op's own work counts."""
    tables = CostTables()
    return chain_of_sets(graph, {op.op.name: tables.computing(op) for op in opdefs.standard().bind_all(graph)})


def taken(graph: Graph, again: frozenset[str]) -> tuple[int, int]:
    """Bytes that every plan takes at least with some activations computed again, and the work of all ops."""
    copied, tables = recomputed(graph, again), CostTables()
    ops = opdefs.standard().bind_all(copied)
    return int(Residence(copied, ops).least().max()), sum(map(tables.computing, ops))


def test_each_set_has_more_work_and_the_last_takes_the_least() -> None:
    graph = canonical(gpt("g", GptShape(6, 64, 4, 64), batch=4)).graph
    sets = sets_by_work(graph)
    known = frozenset(Activations(graph).all)
    assert sets[0] == frozenset()
    assert all(one <= known for one in sets)
    measured = [taken(graph, one) for one in (sets[0], sets[len(sets) // 2], sets[-1])]
    assert all(one[1] <= other[1] for one, other in pairwise(measured))
    assert measured[-1][0] == min(least for least, _ in measured) < measured[0][0] / 2


def test_cheap_ops_come_first_and_equal_blocks_one_after_the_other() -> None:
    graph = canonical(gpt("g", GptShape(6, 64, 4, 64), batch=4)).graph
    sets = sets_by_work(graph)
    first = {name: next(at for at, one in enumerate(sets) if name in one) for name in sets[-1]}
    norms = [first[f"block{number}.norm1.y"] for number in range(1, 6)]
    softmax = [first[f"block{number}.attention.softmax.y"] for number in range(1, 6)]
    assert norms == sorted(norms)
    assert max(norms) < min(softmax)


def test_what_lies_between_blocks_is_kept() -> None:
    graph = canonical(gpt("g", GptShape(6, 64, 4, 64), batch=4)).graph
    last = sets_by_work(graph)[-1]
    assert [name for name in Activations(graph).held if name not in last and ".add2." in name]


def test_a_network_without_equal_blocks_has_a_chain() -> None:
    graph = canonical(build("alexnet", batch=64)).graph
    sets = sets_by_work(graph)
    least, _ = taken(graph, sets[0])
    assert taken(graph, sets[-1])[0] < least


def test_what_is_said_of_all_sets_is_true_of_each() -> None:
    """No set of the chain, and none that is drawn, leads to less than what is said of them all."""
    graph = canonical(gpt("g", GptShape(2, 32, 4, 32), batch=4)).graph
    activations, descriptions, source = Activations(graph), opdefs.standard(), random.Random(0)
    said = EveryPlan(graph, descriptions, activations.all).by_moment.max()
    drawn = [activations.closed([name for name in activations.held if source.random() < 0.5]) for _ in range(3)]
    each = [
        EveryPlan(recomputed(graph, one), descriptions).by_moment.max() for one in (*sets_by_work(graph)[1::8], *drawn)
    ]
    assert 0 < said <= min(each)
    assert min(each) < EveryPlan(graph, descriptions).by_moment.max()
