"""What workers need of an input, dim by dim, against what the description says of whole regions."""

import random

import pytest

from planner import opdefs
from planner.algebra.counts import Counts
from planner.algebra.divisions import Divisions
from planner.algebra.movements import counted, read
from planner.algebra.tiling import UNCUT, Placement, Replicate, Shard, Tiling
from planner.algebra.ways import Ways
from planner.cost.accesses import Regions
from planner.cost.tables import CostTables
from planner.features.zoo import models as zoo
from planner.tdl.bind import BoundOp


def strategies(bound: BoundOp, ways: tuple[int, ...], draw: random.Random) -> list[Tiling]:
    """Some ways to divide an op; a part may be empty."""
    dims = [number for number, variable in enumerate(bound.variables) if not variable.obstacle]
    found = []
    for _ in range(8):
        tiling = UNCUT
        for count in ways:
            options: list[Placement] = [Replicate(), *map(Shard, dims)]
            tiling = tiling.extend(draw.choice(options), count)
        found.append(tiling)
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("model", ["lenet-5", "rnn-1-1k", "gpt-1x256"])
def test_regions_are_found_dim_by_dim(model: str) -> None:
    graph = zoo.build(model)
    draw = random.Random(model)
    ways = (2, 3, 2)
    tables, seen, halos = CostTables(), set(), 0
    for bound in opdefs.standard().bind_all(graph):
        if bound.content in seen:
            continue
        seen.add(bound.content)
        for slot in bound.read_slots:
            access = tables._access(bound, True, slot)
            if isinstance(access, Regions) and access._dim_by_dim is not None:
                some = strategies(bound, ways, draw)
                divisions = Divisions(access.shape, Counts(Ways(ways)))
                one, other = access.needed(divisions, some), access._regions(divisions, some)
                for missing in counted([read(divisions, one, other), read(divisions, other, one)]):
                    assert not missing.diagonal().any()
                halos += sum(access._dim_by_dim.number(divisions, strategy) is not None for strategy in some)
    assert halos, "something is read otherwise than by the op's variables alone"
