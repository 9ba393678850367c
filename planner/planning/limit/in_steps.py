"""Ops in steps: which can run so, and a plan made to fit by steps, which moves no byte more.

An op that sums products can run chunk by chunk of one of its variables: of the tensors with that variable a worker then
holds a chunk at a time (``planner.partition.stepping``). Tilings, strategies and bytes stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import numpy as np

from planner.algebra.region import Boxes
from planner.algebra.tiling import Reducer, Tiling
from planner.artifacts.plan import OpStrategy, Steps
from planner.cost.contraction import contraction_of
from planner.cost.residence import Residence
from planner.errors import InfeasibleError
from planner.graph.core.model import Graph
from planner.planning.limit.trial import Trial
from planner.search.decision import Decision
from planner.stop import Stop
from planner.tdl.bind import BoundOp

OpSchedule: TypeAlias = Literal["auto", "whole", "stepped"]
"""``auto``: steps where memory asks; ``whole``: every op at once; ``stepped``: every op that can, in steps."""
TIMES: Final = (1, 2, 4, 8)
"""Chunks of what one owner has."""
_SHARES: Final = (1.0, 0.75, 0.5, 0.0)
"""Ops are taken that run while all workers together hold more than such a share of what there is."""


def steps_of(
    graph: Graph, op: BoundOp, strategy: Tiling, tilings: Mapping[str, Tiling], along: int | None = None
) -> tuple[Steps, ...]:
    """The steps in which an op can run, the fewest first, for each of ``TIMES`` that has so many; () if in none.

    It sums products of two inputs and reads no constant. The variable indexes dims alone (a stencil's do not circulate)
    and is summed over, or indexes the result. Of several that is taken with which a worker holds least. A chunk lies
    within what one owner has, and no worker has less than an element of each.

    Args:
        graph: that the op is of.
        op: the op.
        strategy: its.
        tilings: the plan's, by tensor.
        along: the number of the only variable that is looked at; None: all.
    """
    contraction = contraction_of(op)
    names = [op.op.inputs[slot] for slot in op.read_slots]
    if contraction is None or any(name in graph.constants for name in names):
        return ()
    slots = [operand.position for operand in contraction.operands[:2]]
    ranges = op.ranges(strategy)
    busy = np.array(strategy.busy)
    candidates: list[tuple[int, int, tuple[Steps, ...]]] = []
    for number in step_variables(op):
        if along not in (None, number):
            continue
        extent = int((ranges.hi - ranges.lo)[busy, number].min())
        owners = 1
        for slot in slots:
            dim = _dim_of(op, slot, number)
            if dim is None:
                continue
            name = op.op.inputs[slot]
            starts = sorted(set(tilings[name].boxes(graph.tensors[name].shape).lo[:, dim].tolist()))
            # A chunk lies within one owner's tile: each tile that begins inside of a worker's range adds a chunk.
            for lo, hi in {*zip(ranges.lo[busy, number].tolist(), ranges.hi[busy, number].tolist(), strict=True)}:
                owners = max(owners, 1 + sum(lo < start < hi for start in starts))
        counts = [max(2, owners * times) for times in TIMES]
        steps = tuple(Steps(number, count) for count in counts if count <= extent)
        if steps:
            share = max(2, min(extent, counts[-1]))
            candidates.append((_held(graph, op, ranges, tilings, number, share), number, steps))
    return min(candidates, default=(0, 0, ()))[2]


def step_variables(op: BoundOp) -> tuple[int, ...]:
    """The numbers of the index variables that an op can run in steps along; none if it sums no products."""
    contraction = contraction_of(op)
    if contraction is None or op.op.domain:
        return ()
    slots = [operand.position for operand in contraction.operands[:2]]

    def circulates(number: int) -> bool:
        variable = op.variables[number]
        is_made = number in (op.analysis.outputs[0] or ())
        if variable.obstacle or not (is_made or variable.reducer is Reducer.SUM):
            return False
        reading = [slot for slot in slots if number in op.read_along(slot)]
        return bool(reading) and all(_dim_of(op, slot, number) is not None for slot in reading)

    return tuple(number for number in range(len(op.variables)) if circulates(number))


def _held(graph: Graph, op: BoundOp, ranges: Boxes, tilings: Mapping[str, Tiling], variable: int, count: int) -> int:
    """About what the fullest worker holds for an op in so many steps, in bytes, beside the tiles of its inputs."""
    total = np.zeros(ranges.workers, dtype=np.int64)
    for slot, read in op.reads(ranges).items():
        tensor = graph.tensors[op.op.inputs[slot]]
        tiles = tilings[op.op.inputs[slot]].boxes(tensor.shape)
        missing = np.where(read.boxes.overlap(tiles) == read.boxes.elements, 0, read.boxes.elements)
        total += missing * tensor.dtype.item_bytes // (count if variable in op.read_along(slot) else 1)
    name = op.op.outputs[0]
    tensor, boxes = graph.tensors[name], op.makes(ranges, 0)
    owned = tilings[name].boxes(tensor.shape).elements
    if variable in (op.analysis.outputs[0] or ()):
        total += (boxes.elements // count + 2 * owned) * tensor.dtype.item_bytes
    else:
        total += (boxes.elements + owned) * tensor.dtype.item_bytes
    return int(total.max())


def _dim_of(op: BoundOp, slot: int, variable: int) -> int | None:
    """The dim of an input that a variable alone indexes, where it indexes no other; None if there is no such dim."""
    name = op.variables[variable].name
    reads = [read for read in op.analysis.reads if read.slot == slot]
    if len(reads) != 1 or name in reads[0].once:
        return None
    along = [dim for dim, interval in enumerate(reads[0].dims) if interval is not None and name in interval.along]
    if len(along) != 1:
        return None
    interval = reads[0].dims[along[0]]
    return along[0] if interval is not None and interval.alone == name else None


def choices(decided: Decision, along: int | None = None) -> dict[str, tuple[Steps, ...]]:
    """The steps in which each op can run (``steps_of``); along a variable of this number, or of any."""
    options = {}
    for op in decided.ops:
        steps = steps_of(decided.graph, op, decided.strategies[op.op.name].tiling, decided.tilings, along)
        if steps:
            options[op.op.name] = steps
    return options


def with_steps(
    decided: Decision, options: Mapping[str, tuple[Steps, ...]], names: Collection[str], times: int = 1
) -> Decision:
    """The plan with some ops in steps, with so many chunks of what each owner has, or as many as there can be.

    Args:
        decided: the plan.
        options: in which steps its ops can run (``choices``).
        names: of the ops that are to run in steps.
        times: one of ``TIMES``.
    """
    strategies: dict[str, OpStrategy] = dict(decided.strategies)
    for name in names:
        strategies[name] = replace(strategies[name], steps=options[name][: 1 + TIMES.index(times)][-1])
    return replace(decided, strategies=strategies)


def all_in_steps(decided: Decision) -> Decision:
    """The plan with every op in steps that can run so, in the fewest.

    Raises:
        InfeasibleError: none can.
    """
    options = choices(decided)
    if not options:
        raise InfeasibleError(
            f"--op-schedule stepped: no op of {decided.graph.name} can run in steps",
            facts=("steps are for ops that sum products of two inputs over a variable that indexes both",),
            hint="leave --op-schedule out",
        )
    return with_steps(decided, options, options)


def fitted_by_steps(trial: Trial, limits: Sequence[int], stop: Stop) -> Trial | None:
    """The plan with ops in steps such that it fits, or lacks the least where none does; None if none can run so.

    All are tried in as many steps as may be first: where that does not fit, nothing does. Then those ops are taken that
    run while the workers hold most, more and more of them, each in more and more steps; of a large graph nothing else
    is tried.

    Args:
        trial: a plan that does not fit.
        limits: the memory there is, one entry for each worker, in any order.
        stop: asked whether the search is to end.
    """
    decided = trial.decided
    options = choices(decided)
    if not options or any(strategy.steps is not None for strategy in decided.strategies.values()):
        return None
    leanest = Trial(with_steps(decided, options, sorted(options), TIMES[-1]), is_lean=True, limit_bytes=min(limits))
    if leanest.lacking_by_program(limits) > 0 or not trial.is_exact:
        return leanest
    held = Residence(decided.graph, decided.ops).of(decided)
    at = {op.op.name: int(bytes_) for op, bytes_ in zip(decided.ops, held, strict=True)}
    tried: set[tuple[frozenset[str], int]] = set()
    for times in TIMES:
        for names in _fullest(at, options, sum(limits)):
            if (names, times) in tried or stop.is_due():
                continue
            tried.add((names, times))
            stepped = replace(
                Trial(with_steps(decided, options, sorted(names), times), is_lean=True), limit_bytes=min(limits)
            )
            if stepped.lacking(limits) <= 0:
                return stepped
    return leanest


def _fullest(at: Mapping[str, int], ops: Collection[str], room: int) -> Iterator[frozenset[str]]:
    for share in _SHARES:
        names = frozenset(name for name in ops if at[name] > share * room)
        if names:
            yield names


def is_in_steps(decided: Decision) -> bool:
    """Whether some op of a plan runs in steps."""
    return any(strategy.steps is not None for strategy in decided.strategies.values())
