"""The neighbourhood that improvement looks at."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.tiling import Placement, Replicate, Shard
from planner.search import improve

placements = st.lists(st.sampled_from([Shard(0), Shard(1), Replicate()]), max_size=6).map(tuple)


@given(placements)
def test_every_order_once_in_the_order_of_permutations(some: tuple[Placement, ...]) -> None:
    found = list(improve._all_orders(some))
    assert found == list(dict.fromkeys(itertools.permutations(some)))
    assert len(found) == improve._count(some)


@given(placements)
def test_near_orders_exchange_neighbours(some: tuple[Placement, ...]) -> None:
    for place, order in enumerate(improve._near_orders(some)):
        assert order[place] == some[place + 1]
        assert order[place + 1] == some[place]
        assert order[:place] + order[place + 2 :] == some[:place] + some[place + 2 :]
