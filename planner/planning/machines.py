"""What commands need of a topology: how many workers, how much memory, how long an iteration takes."""

from __future__ import annotations

from pathlib import Path

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.plan import Plan
from planner.artifacts.program import Program
from planner.cost.seconds.estimate import estimate
from planner.errors import UsageError
from planner.machine.device_profile import DeviceProfile, load_profile
from planner.machine.routes import part
from planner.machine.topology_file import Machine, load_topology
from planner.planning.bodies import Decided
from planner.units import parse_bytes


def machine_and_workers(gpus: int | None, topology: str | None) -> tuple[Machine | None, int]:
    """The topology, if there is one, or as much of it as there are to be workers; and their number.

    Raises:
        UsageError: neither says how many, or more are asked for than there are; the topology cannot be used.
    """
    machine = load_topology(topology) if topology is not None else None
    if machine is None:
        if gpus is None:
            raise UsageError("for how many GPUs?", hint="give gpus, or a topology")
        return None, gpus
    if gpus is None:
        return machine, machine.device_count
    if gpus < 1:
        raise UsageError(f"{gpus} workers: a plan needs at least 1")
    if gpus > machine.device_count:
        raise UsageError(
            f"topology {topology} has {machine.device_count} devices, and {gpus} GPUs are asked for",
            hint=f"write --gpus {machine.device_count} or fewer, or --topology with a larger machine",
        )
    return part(machine, gpus), gpus


def memory_limits(memory: str | None, machine: Machine | None, workers: int) -> tuple[int, ...] | None:
    """The memory there is, one entry for each worker, in no order; None: as much as they like.

    Args:
        memory: as the user wrote it, ``12GiB``; goes before what the topology says.
        machine: the topology.
        workers: how many.

    Raises:
        UsageError: it is no number of bytes, or none at all.
    """
    if memory is not None:
        limit = parse_bytes(memory, "--memory")
        if not limit:
            raise UsageError("--memory: must be more than zero")
        return (limit,) * workers
    if machine is None:
        return None
    return tuple(device.memory_bytes for device in machine.devices)


def profile_for(path: Path | None, machine: Machine | None) -> DeviceProfile | None:
    """What ops were measured to take, if a profile is given.

    Args:
        path: of the profile's file.
        machine: the topology.

    Raises:
        UsageError: there is no topology to estimate a time for; the file cannot be used.
    """
    if path is None:
        return None
    if machine is None:
        raise UsageError(
            f"--profile {path}: times are estimated for a topology, and there is none",
            hint="write --topology with a file or a name",
        )
    return load_profile(path)


def time_of(
    decided: Decided, plan: Plan, program: Program, machine: Machine | None, profile: DeviceProfile | None = None
) -> TimeEstimate | None:
    """How long an iteration takes on the topology; None where there is none."""
    if machine is None:
        return None
    return estimate(decided.graph, decided.ops, plan.strategies, plan.cuts, program, machine, profile)
