"""Of parts that differ only in where they lie, one is asked whether it has a local op: all would have said the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fast_suite import chosen
from planner import opdefs
from planner.algebra.tiling import Shard, Tiling
from planner.features.ops.cases.case import bind_case, by_type, make
from planner.features.ops.cases.examples import all_cases
from planner.tdl import bind
from planner.tdl.bind import BoundOp
from planner.tdl.local import NotLocalError

CASES = by_type(all_cases())
DESCRIPTIONS = opdefs.standard()
WAYS = ((3,), (8,), (2, 3))
SHARES = {"first": slice(0, 3), "others": slice(3, None)}
"""Of the cases of an op type: those that the fast tests try, and the rest."""
SAMPLES = [(op_type, share) for op_type, share in product(sorted(CASES), SHARES) if CASES[op_type][SHARES[share]]]


def lacks_a_local_op(bound: BoundOp, strategy: Tiling) -> bool:
    """Asks every worker that has a part."""
    ranges = bound.ranges(strategy)
    reads = bound.reads(ranges)
    for worker in np.flatnonzero(ranges.elements).tolist():
        try:
            bound.local_op(bound.part(ranges, reads, worker))
        except NotLocalError:
            return True
    return False


@pytest.mark.parametrize("block", [1, 3])
def test_parts_of_groups_are_not_alike_for_being_as_long(block: int) -> None:
    """24 channels in 3 groups: parts of 4 and 5 lie in a group, or across two of them."""
    case = make("Conv", (2, 24, 9), (48, 8, 3), (48,), group=3, pads=(1, 1))
    strategy = Tiling((Shard(1), Shard(1, block)), (5, 4))
    bound = bind_case(case, DESCRIPTIONS)[0]
    assert bound.is_local(strategy) != lacks_a_local_op(bound, strategy)
    assert lacks_a_local_op(bound, strategy)


def is_ever_split(op_type: str, share: str) -> bool:
    bound = (bind_case(case, DESCRIPTIONS)[0] for case in CASES[op_type][SHARES[share]])
    return any(not variable.obstacle for one in bound for variable in one.variables)


def test_nearly_all_types_are_split() -> None:
    assert sum(is_ever_split(op_type, "first") for op_type in CASES) > 0.9 * len(CASES)


@pytest.mark.parametrize(("op_type", "share"), chosen(SAMPLES, fast=[(op_type, "first") for op_type in CASES]))
def test_one_part_stands_for_those_that_lie_elsewhere(
    op_type: str, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bind, "_FEW", 0)
    compared = 0
    for case in CASES[op_type][SHARES[share]]:
        bound = bind_case(case, DESCRIPTIONS)[0]
        choices = [
            Shard(number, block)
            for number, variable in enumerate(bound.variables)
            if not variable.obstacle
            for block in (1, *variable.blocks)
        ]
        for ways in WAYS:
            for placements in product(choices, repeat=len(ways)):
                strategy = Tiling(placements, ways)
                said = bound.veto(bound.ranges(strategy))
                assert bool(said) == lacks_a_local_op(bound, strategy), (str(case), str(strategy), said)
                assert bound.is_local(strategy) == (not said), (str(case), str(strategy), said)
                compared += 1
    assert compared or not is_ever_split(op_type, share)
