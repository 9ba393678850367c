"""What repeated, uneven and idle work costs: the formula by hand, and what must hold of it whatever the op."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.algebra.region import Boxes
from planner.algebra.tiling import UNCUT, Only, Partial, Placement, Replicate, Shard, Tiling
from planner.cost.excess import computing as exactly
from planner.cost.tables import CostTables
from planner.errors import UsageError
from planner.features.ops.cases.case import Case, Given, Known, bind_case, by_type, make
from planner.features.ops.cases.examples import all_cases
from planner.machine.rates import Rates
from planner.tdl.bind import BoundOp
from planner.tdl.expr import VarKind

DESCRIPTIONS = opdefs.standard()
RATES = Rates()
MEMORY_ONLY = Rates(operations=1e18)
OPERATIONS_ONLY = Rates(touched_bytes=1e18)


def bound(case: Case) -> BoundOp:
    return bind_case(case, DESCRIPTIONS)[0]


def charges(op: BoundOp, *strategies: Tiling, rates: Rates = RATES) -> list[int]:
    return CostTables(rates).charges(op, strategies).tolist()


def charge(op: BoundOp, text: str, ways: tuple[int, ...], rates: Rates = RATES) -> int:
    return charges(op, Tiling.parse(text, ways), rates=rates)[0]


def computing(op: BoundOp, rates: Rates = RATES) -> float:
    return exactly(op, rates)


def repeated(op: BoundOp, strategy: Tiling, rates: Rates = RATES) -> int:
    return CostTables(rates).repeated(op, strategy)


# By hand


def test_the_rates_are_those_that_are_documented() -> None:
    assert (RATES.touched_bytes, RATES.operations) == (8, 128)


@pytest.mark.parametrize("text", ["S(0)/2 S(0)/2", "S(0)/2 S(1)/2", "S(2)/4"])
def test_a_product_whose_parts_compute_as_long_is_free_when_evenly_divided(text: str) -> None:
    """1024 x 1024 x 1024: each of four workers computes a quarter of 2**24, and touches less meanwhile."""
    product = bound(make("MatMul", (1024, 1024), (1024, 1024)))
    assert computing(product) == 2 * 1024**3 / 128 == 2**24
    assert charge(product, text, (4,) if text.count("/") == 1 else (2, 2)) == 0


def test_a_small_product_is_as_long_as_what_it_touches() -> None:
    """4 x 6 by 6 x 10: 24 + 60 + 40 elements of 4 bytes at 8 bytes each; each of two workers reads all of B."""
    product = bound(make("MatMul", (4, 6), (6, 10)))
    assert computing(product) == 4 * (24 + 60 + 40) / 8 == 62
    assert charge(product, "S(0)", (2,)) == 2 * 4 * (12 + 60 + 20) // 8 - 62 == 30
    assert charge(product, "S(1)", (2,)) == 2 * 4 * (24 + 30 + 20) // 8 - 62 == 12
    assert charge(product, "S(2)", (2,)) == 2 * 4 * (12 + 30 + 40) // 8 - 62 == 20


def test_an_op_waits_for_its_slowest_worker() -> None:
    """Four rows on three workers: two of them at one, so that all three take as long as six rows."""
    product = bound(make("MatMul", (4, 512), (512, 512)))
    assert charge(product, "S(0)", (3,), OPERATIONS_ONLY) == (3 * 2 - 4) * 2 * 512 * 512 // 128
    strategy = Tiling.parse("S(0)", (3,))
    assert repeated(product, strategy, OPERATIONS_ONLY) == 0, "no row is computed twice"


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_to_repeat_all_of_an_op_costs_it_once_for_each_other_worker(workers: int) -> None:
    product = bound(make("MatMul", (32, 64), (64, 128)))
    alone = max(4 * (32 * 64 + 64 * 128 + 32 * 128) / 8, 2 * 32 * 64 * 128 / 128)
    assert computing(product) == alone
    assert charge(product, "R", (workers,)) == (workers - 1) * alone
    assert repeated(product, Tiling.parse("R", (workers,))) == (workers - 1) * alone


def test_idle_workers_are_waited_for_by_nobody_and_paid_for() -> None:
    """One of four does all: the others have a quarter each that they do not do; nothing is done twice."""
    product = bound(make("MatMul", (32, 64), (64, 128)))
    strategy = Tiling((Only(2),), (4,))
    assert charges(product, strategy)[0] == 3 * computing(product)
    assert repeated(product, strategy) == 0


def test_to_add_contributions_everywhere_is_to_touch_as_much_everywhere() -> None:
    op = bound(make("Add", (8, 12), (8, 12)))
    alone = 3 * 8 * 12 * 4 // 8
    assert computing(op) == alone
    assert charges(op, Tiling((Partial(),), (3,)))[0] == 2 * alone


def test_a_halo_is_read_twice_and_not_computed_twice() -> None:
    """3 x 3 over 8 rows with a border of zeros: each half reads a row of the other, 5 of 8."""
    conv = bound(make("Conv", (1, 2, 8, 5), (3, 2, 3, 3), pads=(1, 1, 1, 1)))
    whole = 4 * (2 * 8 * 5 + 3 * 2 * 9 + 3 * 8 * 5)
    half = 4 * (2 * 5 * 5 + 3 * 2 * 9 + 3 * 4 * 5)
    assert computing(conv, MEMORY_ONLY) == whole / 8
    assert charge(conv, "S(2)", (2,), MEMORY_ONLY) == (2 * half - whole) // 8 > 0
    assert charge(conv, "S(2)", (2,), OPERATIONS_ONLY) == 0
    # Of four, two within the image read a row on both sides: they are what is waited for.
    inner = 4 * (2 * 4 * 5 + 3 * 2 * 9 + 3 * 2 * 5)
    assert charge(conv, "S(2)", (4,), MEMORY_ONLY) == (4 * inner - whole) // 8
    outer = 4 * (2 * 3 * 5 + 3 * 2 * 9 + 3 * 2 * 5)
    twice = repeated(conv, Tiling.parse("S(2)", (4,)), MEMORY_ONLY)
    assert twice == (2 * inner + 2 * outer - whole) // 8 < (4 * inner - whole) // 8


def test_a_lookup_touches_what_it_picks() -> None:
    """Four rows of a hundred: as many elements as are made, and the positions."""
    lookup = bound(make("Gather", (100, 5), Known(np.array([3, 7, 7, 99]), constant=False)))
    each = 5 * 4 + 8 + 5 * 4
    assert computing(lookup, MEMORY_ONLY) == 4 * each / 8
    assert charge(lookup, "S(0)", (4,), MEMORY_ONLY) == 0, "one row each, though all of the table may be asked for"
    assert charge(lookup, "S(1)", (5,), MEMORY_ONLY) == (5 * (4 * 4 + 4 * 8 + 4 * 4) - 4 * each) // 8 > 0
    # Each of five with a fifth of the table looks for all positions and makes all rows, mostly of zeros.
    assert charge(lookup, "S(2)", (5,), MEMORY_ONLY) == 4 * 4 * each // 8


def test_a_lookup_in_a_small_table_touches_no_more_than_there_is() -> None:
    lookup = bound(make("Gather", (2, 5), Known(np.array([0, 1, 1, 0]), constant=False)))
    assert computing(lookup, MEMORY_ONLY) == (2 * 5 * 4 + 4 * 8 + 4 * 5 * 4) / 8
    assert charge(lookup, "S(0)", (2,), MEMORY_ONLY) == (2 * 5 * 4) // 8, "each of two reads all of the table"


def test_a_scatter_touches_all_that_it_copies() -> None:
    """Four rows are added to a hundred: what is not changed is copied nevertheless, and all rows to add are read."""
    positions = Known(np.array([[3], [7], [7], [99]]), constant=False)
    scatter = bound(make("ScatterND", (100, 5), positions, (4, 5), reduction="add"))
    assert computing(scatter, MEMORY_ONLY) == (4 * 100 * 5 + 8 * 4 + 4 * 4 * 5 + 4 * 100 * 5) / 8
    assert charge(scatter, "S(0)", (2,), MEMORY_ONLY) == (8 * 4 + 4 * 4 * 5) // 8, "both read what is to be added"
    many = Known(np.arange(20).reshape(5, 4) % 6, constant=False)
    wide = bound(make("ScatterElements", (5, 6), many, (5, 4), axis=1, reduction="add"))
    assert computing(wide, MEMORY_ONLY) == (4 * 30 + 8 * 20 + 4 * 20 + 4 * 30) / 8


VIEWS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def test_another_view_of_elements_takes_no_time() -> None:
    cases = by_type(all_cases())
    assert set(cases) >= VIEWS
    for op_type in VIEWS:
        op = bound(cases[op_type][0])
        assert computing(op) == 0
        strategy = Tiling.parse("R", (4,))
        assert charges(op, strategy)[0] == repeated(op, strategy) == 0


def test_a_transpose_is_no_view() -> None:
    op = bound(make("Transpose", (8, 6), perm=(1, 0)))
    assert charge(op, "R", (4,)) == 3 * (2 * 48 * 4) // 8


def test_work_on_integers_is_bound_by_memory() -> None:
    whole, floats = (bound(make("Add", *(Given((8, 6), dtype, 0, 5),) * 2)) for dtype in ("int32", "float32"))
    assert charge(whole, "R", (4,), OPERATIONS_ONLY) == 0
    assert charge(floats, "R", (4,), Rates(touched_bytes=1e18, operations=1)) == 3 * 48
    assert charge(whole, "R", (4,)) == charge(floats, "R", (4,)) == 3 * (3 * 48 * 4) // 8


@pytest.mark.parametrize("value", ["0B/s", "-1GB/s", "nanGB/s", "infGB/s", "1e999GB/s", "8", "", "8FLOP/s"])
def test_rates_are_positive_and_finite_and_have_units(value: str) -> None:
    for name, others in (("link", "memory=8GB/s,compute=1TFLOP/s"), ("memory", "link=8GB/s,compute=1TFLOP/s")):
        with pytest.raises(UsageError, match=f"--rates {name}"):
            Rates.parse(f"{name}={value},{others}")
    speed = "8B/s" if value == "8FLOP/s" else value.replace("B/s", "FLOP/s")
    with pytest.raises(UsageError, match="--rates compute"):
        Rates.parse(f"compute={speed},memory=8GB/s,link=1GB/s")


def test_rates_are_what_is_done_in_the_time_of_a_byte() -> None:
    assert Rates.parse("link=450GB/s, memory=3.6TB/s,compute=57.6TFLOP/s") == RATES
    with pytest.raises(UsageError, match="memory and compute missing"):
        Rates.parse("link=450GB/s")
    with pytest.raises(UsageError, match="link is given twice"):
        Rates.parse("link=450GB/s,link=450GB/s")
    with pytest.raises(UsageError, match="'memry=1GB/s' is none of") as caught:
        Rates.parse("memry=1GB/s")
    assert "memory" in str(caught.value)


def test_slower_devices_pay_more_for_the_same_work() -> None:
    product = bound(make("MatMul", (32, 64), (64, 128)))
    assert charge(product, "R", (2,), Rates(touched_bytes=4)) == 2 * charge(product, "R", (2,))
    assert charge(product, "R", (2,), Rates(1e18, 1)) == 128 * charge(product, "R", (2,), Rates(1e18, 128)) > 0


def test_tables_charge_by_their_rates_and_keep_views_apart() -> None:
    """An Identity and a Relu have one content: what they read is laid out alike."""
    relu, view = bound(make("Relu", (8, 6))), bound(make("Identity", (8, 6)))
    strategies = (Tiling.parse("R", (2,)), Tiling.parse("S(0)", (2,)))
    tables = CostTables(Rates(touched_bytes=4))
    assert tables.charges(view, strategies).tolist() == [0, 0]
    assert tables.charges(relu, strategies).tolist() == [2 * 48 * 4 // 4, 0]
    assert tables.computing(relu) == tables.repeated(relu, strategies[0]) == 2 * 48 * 4 // 4
    assert tables.computing(view) == tables.repeated(view, strategies[0]) == 0
    assert tables.charge_kind(relu) != tables.charge_kind(view)


# Whatever the op and the strategy

OPS = [bound(case) for cases in by_type(all_cases()).values() for case in cases]
EXECUTED = [
    op
    for op in OPS
    if op.op.op_type not in VIEWS
    and not any(variable.is_matched and variable.kind is VarKind.REDUCTION for variable in op.variables)
]
"""What is neither a view nor a lookup: these touch all that they may read."""
WAYS = ((2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2), (5, 3))


def strategy_of(op: BoundOp, ways: tuple[int, ...]) -> st.SearchStrategy[Tiling]:
    """Any strategy of an op: its dims in blocks or not, repeated, or at one group alone."""
    dims = [
        Shard(number, block)
        for number, variable in enumerate(op.variables)
        if not variable.obstacle
        for block in (1, *variable.blocks)
    ]
    choices: list[Placement] = [*dims, *dims, Replicate(), Only(0), Only(1)]
    return st.tuples(*[st.sampled_from(choices)] * len(ways)).map(lambda placements: Tiling(placements, ways))


@st.composite
def divided(draw: st.DrawFn, ops: Sequence[BoundOp]) -> tuple[BoundOp, Tiling]:
    """Any op, of any of its cases, and any strategy of it."""
    op = draw(st.sampled_from(ops))
    return op, draw(strategy_of(op, draw(st.sampled_from(WAYS))))


def parts_by_worker(op: BoundOp, strategy: Tiling) -> list[tuple[float, float]]:
    """Operations and touched bytes of each worker, who is looked at alone."""
    found = []
    dtypes = op.node.output_dtypes
    is_float = any(one is not None and one.is_float for one in (*op.node.input_dtypes, *dtypes))
    for region in op.ranges(strategy):
        alone = Boxes(np.array([region.lo]), np.array([region.hi]))
        touched = 0
        for slot, read in op.reads(alone).items():
            dtype = op.node.input_dtypes[slot]
            assert dtype is not None
            touched += int(read.boxes.elements[0]) * dtype.item_bytes
        for position, dtype in enumerate(dtypes):
            if dtype is not None and op.analysis.outputs[position] is not None:
                touched += int(op.makes(alone, position).elements[0]) * dtype.item_bytes
        operations = float(op.operations(alone)[0]) if is_float else 0.0
        found.append((operations, float(touched)))
    return found


def longest(op: BoundOp, strategy: Tiling) -> float:
    """Of all workers, in bytes of a link."""
    return max(max(operations / 128, touched / 8) for operations, touched in parts_by_worker(op, strategy))


@examples(300)
@given(divided(EXECUTED))
def test_it_is_as_long_as_the_slowest_of_all_workers(sample: tuple[BoundOp, Tiling]) -> None:
    """Parts that are alike but for where they lie are not left out here."""
    op, strategy = sample
    wanted = max(0.0, prod(strategy.ways) * longest(op, strategy) - longest(op, UNCUT))
    assert charges(op, strategy) == [round(wanted)], (str(op.op), str(strategy))


@examples(300)
@given(divided(EXECUTED))
def test_it_is_what_is_repeated_and_what_is_waited_for(sample: tuple[BoundOp, Tiling]) -> None:
    op, strategy = sample
    total, twice = charges(op, strategy)[0], repeated(op, strategy)
    done = sum(max(operations / 128, touched / 8) for operations, touched in parts_by_worker(op, strategy))
    alone = longest(op, UNCUT)
    assert 0 <= twice <= total
    if done >= alone:  # parts of a hull are together less than it where they leave out what lies between them
        assert twice == pytest.approx(done - alone, abs=1)
        assert total - twice == pytest.approx(prod(strategy.ways) * longest(op, strategy) - done, abs=1)


@examples(300)
@given(divided(EXECUTED))
def test_who_repeats_all_of_an_op_waits_for_nobody(sample: tuple[BoundOp, Tiling]) -> None:
    op, strategy = sample
    everywhere = Tiling((Replicate(),) * len(strategy.ways), strategy.ways)
    total = charges(op, everywhere)[0]
    assert total == repeated(op, everywhere) == round((prod(strategy.ways) - 1) * longest(op, UNCUT))


@examples(300)
@given(divided(OPS), st.randoms(use_true_random=False))
def test_equal_parts_in_another_order_of_cuts_cost_as_much(sample: tuple[BoundOp, Tiling], random: Random) -> None:
    """Which cut divides which dim only says who has which part, if those along each dim stay in their order."""
    op, strategy = sample
    cuts = list(zip(strategy.placements, strategy.ways, strict=True))
    # A part is empty if it is empty along one dim: ``Only`` counts as along the first.
    keys = [getattr(placement, "dim", 0 if isinstance(placement, Only) else -1) for placement, _ in cuts]
    left = {key: [cut for cut, own in zip(cuts, keys, strict=True) if own == key] for key in keys}
    random.shuffle(keys)
    placements, ways = zip(*(left[key].pop(0) for key in keys), strict=True)
    there = Tiling(placements, ways)
    assert prod(there.ways) == prod(strategy.ways)
    assert charges(op, there) == charges(op, strategy), (str(strategy), str(there))
    assert abs(repeated(op, there) - repeated(op, strategy)) <= 1


@examples(100)
@given(divided(OPS), st.data())
def test_of_many_strategies_each_costs_what_it_costs_alone(sample: tuple[BoundOp, Tiling], data: st.DataObject) -> None:
    op, first = sample
    strategies = [first, *(data.draw(strategy_of(op, first.ways)) for _ in range(4))]
    alone = [charges(op, one)[0] for one in strategies]
    assert charges(op, *strategies) == alone
