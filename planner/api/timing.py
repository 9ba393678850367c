"""``tofu explain --view time``: a plan's iteration, simulated; and for reports, what is known of when things happen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.api.arguments import takes
from planner.api.building import program_of_folder
from planner.api.opened import Opened, opened
from planner.artifacts.plan_folder import PlanFolder
from planner.artifacts.program import Program
from planner.collection import without_collection
from planner.cost.seconds.estimate import summed, timed
from planner.cost.seconds.simulated import Schedule, scheduled
from planner.errors import UsageError
from planner.machine.device_profile import DeviceProfile, load_profile
from planner.machine.routes import part, whole_name
from planner.machine.topology_file import Machine, load_topology, shipped_topology
from planner.options import FolderOptions
from planner.progress import Progress, silent
from planner.results import SimulationResult

_CLOSE = 1e-9
_AGAIN = "plan the model again, with --topology"
_SHOWN = 20
"""Ops and exchanges in which estimate and simulation differ."""


@takes(FolderOptions)
@without_collection()
def simulate(options: FolderOptions) -> SimulationResult:  # noqa: D417 - those are the fields of the options
    """Simulates an iteration of a plan, step by step, and says where its estimate differs.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, or its times are not known.

    Example:
        ::

            found = planner.simulate("plan")
            print(found.simulated_seconds, found.estimate.estimated_seconds)
    """
    progress = options.progress
    progress("reading the plan")
    plan = opened(options.directory)
    refuse_without_topology(plan.folder, "--view time")
    program = program_of_folder(plan, progress)
    times = times_of(plan, program, progress)
    if times.schedule is None:
        raise UsageError(f"--view time: {times.lacking}", hint=times.hint)
    schedule = times.schedule
    differing = schedule.differing()
    return SimulationResult(
        plan=plan.folder.plan,
        directory=plan.folder.path,
        estimate=schedule.estimate,
        simulated_seconds=schedule.simulation.seconds,
        sums=schedule.sums(),
        worker_times=schedule.workers(),
        differing=differing[:_SHOWN],
        differing_count=len(differing),
    )


def refuse_without_topology(folder: PlanFolder, option: str) -> None:
    """Refuses, before its program is read, a plan that has no schedule.

    Raises:
        UsageError: the plan is for no topology.
    """
    if folder.plan.estimate is None:
        raise UsageError(
            f"{option}: the plan in {folder.path} is for no topology, and has no schedule",
            hint="plan it for a machine: tofu plan --topology with a file or a name",
        )


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a plan's events."""

    machine: Machine | None
    schedule: Schedule | None
    lacking: str = ""
    """Why there is no schedule."""
    hint: str = ""
    profile: DeviceProfile | None = None
    """What ops were measured to take, where the plan's times are by that."""


def times_of(plan: Opened, program: Program, progress: Progress = silent) -> Times:
    """The simulated schedule, by the topology and the profile in the plan's folder.

    Args:
        plan: opened.
        program: of the plan.
        progress: told what is being done.

    Raises:
        UsageError: topology or profile cannot be read.
    """
    folder = plan.folder
    stated, decided = folder.plan.estimate, folder.plan
    if stated is None:
        lacking = "the plan is for no topology, so that no time is estimated"
        return Times(None, None, lacking, "plan it with `tofu plan --topology`, with a file or a name")
    try:
        if folder.topology is None:
            full_machine = shipped_topology(whole_name(stated.topology))
        else:
            full_machine = load_topology(folder.topology)
    except UsageError:
        return Times(None, None, f"the plan is for {stated.topology!r}, which does not ship with tofu", _AGAIN)
    machine = part(full_machine, decided.workers) if full_machine.device_count >= decided.workers else full_machine
    measured = None if folder.profile is None else load_profile(folder.profile)
    progress("estimating the schedule")
    parts = timed(plan.graph, plan.ops, decided.strategies, decided.cuts, program, machine, measured)
    # A topology that ships may be another one in this version: then its schedule is not the plan's.
    estimate = summed(parts, plan.ops, decided.strategies, program, measured)
    if not math.isclose(estimate.estimated_seconds, stated.estimated_seconds, rel_tol=_CLOSE):
        lacking = (
            f"with this topology the plan takes {estimate.estimated_seconds:.6g} s, and it states "
            f"{stated.estimated_seconds:.6g} s"
        )
        return Times(machine, None, lacking, _AGAIN)
    progress("simulating an iteration")
    return Times(machine, scheduled(program, parts, estimate), profile=measured)
