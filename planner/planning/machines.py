"""Machines to plan for: a number of workers, and the machine that they are on; how long an iteration takes there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.artifacts.asked import ByWorker
from planner.artifacts.estimate import TimeEstimate
from planner.cost.seconds.assignment import usual_devices
from planner.cost.seconds.estimate import Timed, summed, timed
from planner.errors import UsageError
from planner.machine.device_profile import DeviceProfile, load_profile
from planner.machine.kinds import has_several_speeds, is_laid_by_kinds, laid_on_kinds
from planner.machine.routes import Interconnect, level_ways, part
from planner.machine.topology_file import Machine, load_topology
from planner.planning.limit.trial import Trial
from planner.planning.thresholds import Work
from planner.search.model.cuts import cuts_of_levels, prime_factors
from planner.simulation.schedule import simulate
from planner.spent import part as part_of_time
from planner.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Target:
    """The machine and the number of workers to plan for."""

    workers: int
    """How many; at least 1."""
    machine: Machine | None = None
    """The topology, or as much of it as there are to be workers; None: none is given."""
    whole: Machine | None = None
    """The topology with all of its devices."""
    profile: DeviceProfile | None = None
    """What ops were measured to take on it; None: nothing was."""

    @property
    def cuts(self) -> tuple[int, ...]:
        """Ways of each cut, as they are laid on the machine; prime factors without one."""
        return prime_factors(self.workers) if self.machine is None else cuts_on(self.machine)


def cuts_on(machine: Machine) -> tuple[int, ...]:
    """The ways of each cut, outermost first: over the slowest links, and one cut that parts devices of all kinds."""
    if not is_laid_by_kinds(machine):
        return cuts_of_levels(level_ways(machine))
    laid = laid_on_kinds(machine)
    return (*prime_factors(laid.outer), laid.mixed, *prime_factors(laid.inner))


def target_of(gpus: int | None, topology: str | None, profile: Path | None = None) -> Target:
    """The machine and number of workers to plan for.

    Args:
        gpus: how many workers; None: all of the topology's devices.
        topology: a topology file, or the name of one that ships; read once.
        profile: the file of what ops were measured to take.

    Raises:
        UsageError: nothing says how many workers, or more are asked for than there are; there is a profile and no
            topology to estimate a time for; a file cannot be used.
    """
    full_machine = None if topology is None else load_topology(topology)
    if full_machine is None:
        if gpus is None:
            raise UsageError("for how many GPUs?", hint="give gpus, or a topology")
        if profile is not None:
            raise UsageError(
                f"--profile {profile}: times are estimated for a topology, and there is none",
                hint="write --topology with a file or a name",
            )
        return Target(gpus)
    if gpus is not None and gpus < 1:
        raise UsageError(f"{gpus} workers: a plan needs at least 1")
    if gpus is not None and gpus > full_machine.device_count:
        raise UsageError(
            f"topology {topology} has {full_machine.device_count} devices, and {gpus} GPUs are asked for",
            hint=f"write --gpus {full_machine.device_count} or fewer, or --topology with a larger machine",
        )
    machine = full_machine if gpus is None else part(full_machine, gpus)
    return Target(machine.device_count, machine, full_machine, None if profile is None else load_profile(profile))


def memory_of(amount: str | int | None) -> int | None:
    """The bytes that the tensors of a worker may take, as the user wrote them, ``12GiB``; None where nobody says it.

    Raises:
        UsageError: it is no number of bytes, or none at all.
    """
    if amount is None:
        return None
    limit = parse_bytes(amount, "--memory") if isinstance(amount, str) else amount
    if limit <= 0:
        raise UsageError("--memory: must be more than zero")
    return limit


def memory_limits(memory_bytes: int | None, machine: Machine | None, workers: int) -> tuple[int, ...] | None:
    """The memory there is, one entry for each worker: in no order where devices are equally fast, since workers may
    change places there; None: as much as they like.

    Args:
        memory_bytes: as the user says; goes before what the topology says.
        machine: the topology, or a part of it with as many devices as there are workers.
        workers: how many.
    """
    if memory_bytes is not None:
        return (memory_bytes,) * workers
    if machine is None:
        return None
    if has_several_speeds(machine):
        placed = usual_devices(Interconnect(machine), cuts_on(machine))
        return ByWorker(machine.devices[device].memory_bytes for device in placed)
    return tuple(device.memory_bytes for device in machine.devices)


def time_of(trial: Trial, machine: Machine, profile: DeviceProfile | None = None) -> TimeEstimate:
    """The time of an iteration of a plan's program on a machine; of each program it is estimated once.

    Args:
        trial: the plan with its program.
        machine: with a device for each worker.
        profile: what ops were measured to take, or None.
    """
    return _timed(trial, machine, profile)[1]


def simulated_seconds(trial: Trial, machine: Machine, profile: DeviceProfile | None = None) -> float | None:
    """The time of an iteration of a plan's program, simulated step by step; None where that would take seconds.

    Args:
        trial: the plan with its program.
        machine: with a device for each worker.
        profile: what ops were measured to take, or None.
    """
    if not Work.SIMULATION.is_done(len(trial.decided.ops), machine.device_count):
        return None
    parts, _ = _timed(trial, machine, profile)
    return simulate(trial.partitioned.program, parts.segment_seconds, parts.interconnect, parts.devices).seconds


@part_of_time("estimates")
def _timed(trial: Trial, machine: Machine, profile: DeviceProfile | None) -> tuple[Timed, TimeEstimate]:
    """What ops and exchanges of a plan's program take, and what they add up to."""
    for cached_machine, measured, parts, estimate in trial.estimates:
        if cached_machine is machine and measured is profile:
            return parts, estimate
    decided, program = trial.decided, trial.partitioned.program
    parts = timed(decided.graph, decided.ops, decided.strategies, decided.cuts, program, machine, profile)
    estimate = summed(parts, decided.ops, decided.strategies, program, profile)
    trial.estimates.append((machine, profile, parts, estimate))
    return parts, estimate
