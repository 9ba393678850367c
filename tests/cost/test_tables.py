"""Tables of bytes: asked for together or alone, with these lists or with equal ones."""

import random
from dataclasses import replace

import pytest

from planner import opdefs
from planner.algebra.partial import IMPOSSIBLE
from planner.algebra.tiling import Partial, Replicate, Shard, Tiling
from planner.cost.tables import CostTables, Request
from planner.features.zoo import models as zoo
from planner.graph.core.model import DType
from planner.tdl.bind import BoundOp

WAYS = (2, 3)


def some_tilings(rank: int, draw: random.Random) -> tuple[Tiling, ...]:
    """Of a tensor of so many dims."""
    choices = [Replicate(), Partial(), *(Shard(dim, block) for dim in range(rank) for block in (1, 2))]
    return tuple(Tiling((draw.choice(choices), draw.choice(choices)), WAYS) for _ in range(draw.randint(1, 4)))


def some_strategies(bound: BoundOp, draw: random.Random) -> tuple[Tiling, ...]:
    """Of an op."""
    numbers = [number for number, variable in enumerate(bound.variables) if not variable.obstacle]
    choices = [Replicate(), *(Shard(number) for number in numbers)]
    return tuple(Tiling((draw.choice(choices), draw.choice(choices)), WAYS) for _ in range(draw.randint(1, 4)))


@pytest.mark.parametrize("model", ["lenet-5", "gpt-1x256"])
def test_a_table_is_the_same_whatever_is_asked_for_beside_it(model: str) -> None:
    graph, draw = zoo.build(model), random.Random(model)
    requests = []
    for bound in opdefs.standard().bind_all(graph):
        ports = [(True, slot, bound.op.inputs[slot]) for slot in bound.read_slots]
        ports += [(False, position, name) for position, name in enumerate(bound.op.outputs) if name]
        for is_input, position, name in ports:
            if name not in graph.constants:
                tensor = graph.tensors[name]
                lists = some_tilings(len(tensor.shape), draw), some_strategies(bound, draw)
                requests.append(Request(bound, is_input, position, tensor, *lists))
    tables = CostTables()
    together = tables.bytes_of(requests)
    entries = tables.entries
    for request, table in zip(requests, together, strict=True):
        assert table.shape == (len(request.tilings), len(request.strategies))
        assert (CostTables().bytes_of([request])[0] == table).all()
        assert not table.flags.writeable, "who asks again is given this one"
    assert all(again is table for again, table in zip(tables.bytes_of(requests), together, strict=True))
    assert tables.entries == entries, "nothing is counted twice"
    equal = [one._replace(tilings=(*one.tilings,), strategies=(*one.strategies,)) for one in requests]
    for again, table in zip(tables.bytes_of(equal), together, strict=True):
        assert (again == table).all()


@pytest.mark.parametrize("is_together", [True, False])
def test_bytes_are_those_of_the_dtype(is_together: bool) -> None:
    """One op and one pair of lists; only the element's size is another."""
    graph = zoo.build("mlp-5x300")
    bound = next(one for one in opdefs.standard().bind_all(graph) if one.op.op_type == "Gemm")
    draw, tensor = random.Random(1), graph.tensors[bound.op.inputs[0]]
    lists = some_tilings(2, draw), (Tiling((Shard(0), Shard(1)), WAYS), Tiling((Replicate(), Replicate()), WAYS))
    dtypes = (DType.INT8, DType.FLOAT32, DType.FLOAT64, DType.INT8)
    requests = [Request(bound, True, 0, replace(tensor, dtype=dtype), *lists) for dtype in dtypes]
    tables = CostTables()
    found = tables.bytes_of(requests) if is_together else [tables.bytes_of([one])[0] for one in requests]
    possible = found[0] < IMPOSSIBLE
    assert (found[0][possible] > 0).any()
    for table, dtype in zip(found, dtypes, strict=True):
        assert (table[possible] == dtype.item_bytes * found[0][possible]).all()
