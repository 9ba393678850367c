"""Excess: the price of duplicated, uneven and idle work, in bytes of a link.

A plan costs the bytes that it moves and the excess of its ops. What a worker does for an op takes u = max(touched
bytes / 8, operations / 128), so many bytes of its link could have come meanwhile. An op waits for its slowest part, so

    excess = max(0, workers * max over the workers of u(part) - u(whole op)),

which is 0 where all have an even share and nothing is done twice. It is summed over the workers, as moved bytes are.
Where a strategy states shares, devices are taken to be as fast in proportion. The rates are ``planner.machine.rates``'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes
from planner.algebra.tiling import UNCUT, Tiling
from planner.cost.kernels import is_alias
from planner.cost.roofline import amounts, computes_in
from planner.machine.rates import Rates
from planner.tdl.bind import BoundOp


def excess(op: BoundOp, strategies: Sequence[Tiling], rates: Rates, whole_op_bytes: float) -> NDArray[np.int64]:
    """The excess of each strategy of an op, in whole bytes, shape [strategies].

    Args:
        op: the op.
        strategies: for the same number of workers.
        rates: of the devices.
        whole_op_bytes: how long one device computes the op, ``computing``.
    """
    if is_alias(op.op):
        return np.zeros(len(strategies), dtype=np.int64)
    parts = [op.unlike_ranges(strategy) for strategy in strategies]
    counts = [ranges.workers for ranges in parts]
    together = Boxes(np.concatenate([boxes.lo for boxes in parts]), np.concatenate([boxes.hi for boxes in parts]))
    slowest = np.maximum.reduceat(_times(op, together, rates), np.cumsum([0, *counts[:-1]]))
    for number, strategy in enumerate(strategies):
        worth = strategy.worth
        if worth is not None:
            slowest[number] = (_times(op, op.ranges(strategy), rates) / worth).max()
    workers = math.prod(strategies[0].ways)
    if op.lane is not None:
        # While a worker does this lane's op, others do those of theirs: what counts is how many a worker has.
        slowest = slowest * [op.lane.most_of_a_worker(strategy) / op.lane.count for strategy in strategies]
    excess_bytes: NDArray[np.int64] = np.rint(np.maximum(0.0, workers * slowest - whole_op_bytes)).astype(np.int64)
    return excess_bytes


def repeated(op: BoundOp, strategy: Tiling, rates: Rates, whole_op_bytes: float) -> int:
    """The work of all workers together for an op beyond the op once.

    What its excess is more than that is time in which workers wait for the slowest one.

    Args:
        op: the op.
        strategy: its.
        rates: of the devices.
        whole_op_bytes: how long one device computes the op, ``computing``.
    """
    done = float(_times(op, op.ranges(strategy), rates).sum())
    return max(0, round(done - whole_op_bytes))


def computing(op: BoundOp, rates: Rates) -> float:
    """The time of one device for a whole op, in bytes of its link."""
    if is_alias(op.op):
        return 0.0
    return float(_times(op, op.ranges(UNCUT), rates)[0])


def _times(op: BoundOp, ranges: Boxes, rates: Rates) -> NDArray[np.float64]:
    """How long parts take, in bytes of a link, shape [parts]."""
    operations, touched = amounts(op, ranges, op.reads(ranges))
    if computes_in((*op.node.input_dtypes, *op.node.output_dtypes)) is None:
        operations = np.zeros_like(operations)
    times: NDArray[np.float64] = np.maximum(operations / rates.operations, touched / rates.touched_bytes)
    return times
