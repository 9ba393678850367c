"""Sources of regions that several workers have: the nearest of them on the machine (Tofu, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.counted import may_stop
from planner.machine.device_profile import DeviceProfile
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Machine
from planner.partition.occupancy import fits
from planner.partition.ways import nearest_first
from planner.planning.limit.trial import Trial
from planner.planning.machines import time_of
from planner.stop import Stop


def from_the_nearest(
    trial: Trial,
    machine: Machine,
    limits: Sequence[int] | None,
    profile: DeviceProfile | None = None,
    *,
    stop: Stop | None = None,
) -> Trial:
    """The same plan with sources that are nearer on the machine, if an iteration is then estimated to take less.

    A program is made before its workers have devices, so its sources are those that the cuts part last. Where the
    machine's links are not nested as the cuts are, others are nearer. What moves is the same, and how much; where it
    comes from decides how long a buffer is needed, and so what a worker's memory is.

    Args:
        trial: the plan with its program.
        machine: that it is for.
        limits: the memory there is, in any order; None: enough.
        profile: what ops were measured to take, or None.
        stop: where it is due, the plan is taken as it is; None: it never is.
    """
    stop = Stop() if stop is None else stop
    plan = trial.decided
    before = time_of(trial, machine, profile)
    apart = _apart(Interconnect(machine), before.devices)
    every = range(plan.workers)
    if all(nearest_first(worker, plan.cuts) == nearest_first(worker, plan.cuts, apart[worker]) for worker in every):
        return trial
    nearer = replace(trial, apart=apart)
    with stop.may_leave_out("sources that are nearer on the machine"), may_stop(stop):
        is_faster = time_of(nearer, machine, profile).estimated_seconds < before.estimated_seconds
        return nearer if fits(nearer.partitioned.program.peak_bytes, limits) and is_faster else trial
    return trial


def _apart(interconnect: Interconnect, devices: Sequence[int]) -> list[list[float]]:
    """How far workers are from each other, [reader][source]: the time for which a byte keeps links busy, in all.

    On a route of equal links that is their number: a transfer over two of them leaves less to others than one over one.
    """

    def seconds(reader: int, source: int) -> float:
        if reader == source:
            return 0.0
        return sum(1 / interconnect.port_bytes_per_s[port] for port in interconnect.route(source, reader).ports)

    return [[seconds(reader, source) for source in devices] for reader in devices]
