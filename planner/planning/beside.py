"""Estimates beside a plan for a machine: data parallelism, and other numbers of workers.

Other numbers are one worker, and the powers of two next to the number that is planned for. Of a small graph they are
planned as quickly as can be, of a large one by data parallelism alone: to look beside must not take as long as to plan.
Plans that do not fit into the memory there is are not told of, nor are those of graphs of which it would take
long to make programs: by tables alone such numbers cannot be compared with the plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from planner.cost.tables import CostTables
from planner.errors import TofuError
from planner.machine.routes import part
from planner.machine.topology_file import Machine
from planner.planning.limit.trial import Trial
from planner.planning.machines import memory_limits
from planner.planning.objective import Times
from planner.planning.request import PlanRequest
from planner.results import Beside, OtherCount
from planner.search.decision import Decision
from planner.search.effort import MANY_OPS
from planner.stop import StoppedError
from planner.units import format_seconds

NOTABLY = 0.99
"""An estimate counts as faster only if it is below 99% of the plan's estimate: estimates tell no smaller differences
apart."""

NO_SPEED = (
    "the topology does not say how fast its devices compute, so the plan is for the least cost in bytes and not for "
    "the least time: add compute and memory_bandwidth to its device, or give --profile"
)

OTHER_COUNTS = "other numbers of workers"

LARGE = (
    "on so many devices a plan for the least time takes minutes, so the plan is for the least cost in bytes: write "
    "--objective time"
)

Search = Callable[[Machine, str, CostTables], Decision]
"""Makes a plan for a part of the machine, by the strategy of this name, with these tables."""


def other_counts(workers: int, device_count: int) -> tuple[int, ...]:
    """Numbers of workers to look at beside the one that is planned for, ascending.

    >>> other_counts(7, 8), other_counts(8, 8), other_counts(3, 3), other_counts(1, 1)
    ((1, 4, 8), (1, 4), (1, 2), ())

    Args:
        workers: that is planned for.
        device_count: of the machine.
    """
    below = 1 << max(0, (workers - 1).bit_length() - 1)
    above = 1 << (workers - 1).bit_length()
    return tuple(sorted({count for count in (1, below, above) if count <= device_count and count != workers}))


def other_estimates(request: PlanRequest, ops: int, search: Search) -> Iterator[OtherCount]:
    """Estimates of other numbers of workers, of those with a plan that fits.

    Args:
        request: what was asked for, on a machine.
        ops: of the graph.
        search: makes a plan.
    """
    target, strategy = request.target, request.options.strategy
    assert target.whole is not None, "there are other numbers of workers on a machine"
    for count in other_counts(target.workers, target.whole.device_count):
        machine, tables = part(target.whole, count), CostTables(request.rates)
        times = Times(machine, tables, target.profile)
        if not times.is_exact(ops):
            continue
        if request.stop.leaves_out(OTHER_COUNTS):
            return
        request.options.progress(f"planning for {count} of the machine's devices, to compare with")
        trials: list[Trial] = []
        for name in (strategy,) if strategy != "tofu" else ("data", "tofu"):
            is_enough = bool(trials) and (count == 1 or len(trials[0].decided.ops) > MANY_OPS)
            if is_enough:
                break
            by_time = request.objective == "time" and name == "tofu"
            if request.stop.leaves_out(OTHER_COUNTS):
                return
            try:
                decided = search(machine, name, times.goal.tables if by_time else tables)
            except TofuError:  # it has no plan of this graph, or none that keeps to the rules
                continue
            except StoppedError:
                request.stop.leaves_out(OTHER_COUNTS)
                return
            trials.append(Trial(decided.with_costs(tables) if by_time else decided))
        if trials:
            fitting = times.fastest(trials, memory_limits(request.memory_bytes, machine, count)).fitting
            if fitting is not None:
                yield OtherCount(count, times.seconds(fitting))


def of_data(by_data: Trial | None, times: Times, limits: Sequence[int] | None) -> tuple[float | None, bool]:
    """The estimate of data parallelism, and whether that is of its program.

    Args:
        by_data: its plan, or None.
        times: of the machine.
        limits: the memory there is, or None: enough.

    Returns:
        None for the seconds where there is no plan, or where its program does not fit.
    """
    if by_data is None:
        return None, True
    is_exact = times.is_exact(len(by_data.decided.ops))
    if is_exact and not by_data.fits(limits):
        return None, True
    return times.seconds(by_data), is_exact


def warnings(seconds: float, workers: int, beside: Beside, strategy: str) -> Iterator[str]:
    """Warnings of anything estimated faster than a plan, or as fast on fewer workers, with the way to have it.

    Args:
        seconds: the plan's estimate.
        workers: of the plan.
        beside: what is beside it.
        strategy: by which the plan was asked for; of the literature's, the user knows that others may be faster.
    """
    if strategy == "tofu" and beside.data_seconds is not None and beside.data_seconds < NOTABLY * seconds:
        faster = f"faster, at {format_seconds(beside.data_seconds)}"
        yield f"data parallelism is estimated to be {faster}: write --objective time"
    better = [
        alternative
        for alternative in beside.others
        if alternative.estimated_seconds < NOTABLY * seconds
        or (alternative.workers < workers and NOTABLY * alternative.estimated_seconds <= seconds)
    ]
    if better:
        best = min(better, key=lambda alternative: (alternative.estimated_seconds, alternative.workers))
        who = "1 worker is" if best.workers == 1 else f"{best.workers} workers are"
        how = "faster" if best.estimated_seconds < NOTABLY * seconds else "as fast"
        yield f"{who} estimated to be {how}, at {format_seconds(best.estimated_seconds)}: write --gpus {best.workers}"
