"""A plan beside what one would do without it: the whole model on one device, and data parallelism.

To compare must not take as long as to plan. So programs, which say exactly what memory is needed, are made only where
they are small; of others, what lies there op by op bounds it from below (``planner.cost.residence``).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from planner.algebra.tiling import UNCUT
from planner.artifacts.plan import Plan
from planner.cost.roofline import says_speed
from planner.cost.seconds.measured import compute_times
from planner.cost.tables import CostTables
from planner.counted import phase
from planner.errors import TofuError
from planner.machine.routes import part
from planner.partition.occupancy import fits
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target, memory_limits
from planner.planning.session import Planned, Session
from planner.planning.thresholds import Work
from planner.planning.why.causes import causes
from planner.planning.why.deliveries import Deliveries
from planner.planning.why.scheme import closest_scheme
from planner.reasons import Outlook, Summary
from planner.results import Beside
from planner.search.decision import Decision
from planner.stop import StoppedError

_SHOWN_CAUSES = 3
_ADDED_UP = "its time is as the search's tables add it up"


def summary_of(session: Session, planned: Planned, plan: Plan, beside: Beside | None, directory: Path) -> Summary:
    """The summary of a plan.

    Args:
        session: in which it was found.
        planned: what was found.
        plan: that is complete.
        beside: what was estimated beside it.
        directory: where it is written.
    """
    request = session.request
    phase("summary")
    request.options.progress("comparing with data parallelism and one device")
    decided, limits = planned.trial.decided, request.limits
    by_data = _data_parallel(session, planned)
    plain = by_data.decided if isinstance(by_data, Trial) and not by_data.decided.deliveries else decided
    tables = CostTables(decided.rates)
    return Summary(
        one_device=_one_device(plain, request.target, request.memory_bytes),
        data_parallel=_of_data(by_data, beside, plan.workers, limits),
        this_plan=Outlook(
            plan.workers,
            max(plan.peak_bytes),
            not plan.has_program,
            plan.moved_bytes,
            plan.estimated_seconds,
            _may_fit(not plan.has_program, plan.peak_bytes, limits),
            _ADDED_UP if plan.table_seconds is not None else "",
        ),
        limit_bytes=None if limits is None else min(limits),
        causes=causes(Deliveries(decided, tables))[:_SHOWN_CAUSES],
        commands=_commands(plan, directory),
        scheme=closest_scheme(decided, tables),
    )


def _one_device(plan: Decision, target: Target, memory_bytes: int | None) -> Outlook:
    """The whole model on one device.

    Args:
        plan: a plan of it, of which the graph and ops are taken.
        target: what is planned for.
        memory_bytes: the limit that the user gave, or None.
    """
    tilings, strategies = dict.fromkeys(plan.tilings, UNCUT), dict.fromkeys(plan.strategies, UNCUT)
    undivided = Decision.of(plan.graph, plan.ops, tilings, strategies, CostTables(plan.rates), cuts=())
    is_least, memory = _memory(Trial(undivided))
    machine = None if target.whole is None else part(target.whole, 1)
    limits = memory_limits(memory_bytes, machine, 1)
    seconds = None
    if machine is not None and (target.profile is not None or all(map(says_speed, machine.devices))):
        times = compute_times(machine.devices, target.profile)
        seconds = float(sum(times.seconds(op, UNCUT).max() for op in undivided.ops))
    return Outlook(1, memory, is_least, 0, seconds, _may_fit(is_least, (memory,), limits))


def _data_parallel(session: Session, planned: Planned) -> Trial | str:
    """The plan of data parallelism, or why there is none to compare with."""
    if planned.trial.decided.strategy == "data":
        return planned.trial
    trial = next((plan for plan in planned.literature if plan.decided.strategy == "data"), None)
    if trial is not None:
        return trial
    if not Work.COMPARISON.is_done(len(session.graph.ops), session.request.target.workers):
        return "not planned: the model is large; `tofu plan --strategy data` plans it"
    if session.request.stop.reason() is not None or session.request.stop.stopped_by is not None:
        return "not looked for: the search was stopped"
    try:
        return Trial(session.by_strategy("data"))
    except TofuError as error:
        return f"no plan: {error.what}"
    except StoppedError:
        return "not looked for: the search was stopped"


def _of_data(outcome: Trial | str, beside: Beside | None, workers: int, limits: Sequence[int] | None) -> Outlook:
    if isinstance(outcome, str):
        return Outlook(workers, None, False, None, None, None, outcome)
    is_least, memory = _memory(outcome)
    peaks = (memory,) * workers if is_least else outcome.partitioned.program.peak_bytes
    seconds = None if beside is None else beside.data_seconds
    about = beside is not None and seconds is not None and not beside.is_exact
    remark = _ADDED_UP if about else ""
    moved = outcome.decided.moved_bytes
    return Outlook(workers, memory, is_least, moved, seconds, _may_fit(is_least, peaks, limits), remark)


def _may_fit(is_least: bool, peaks: Sequence[int], limits: Sequence[int] | None) -> bool | None:
    """Whether it fits; what takes at least so much, and that would fit, may not."""
    if limits is None:
        return None
    is_fitting = fits(peaks, limits)
    return None if is_least and is_fitting else is_fitting


def _memory(trial: Trial) -> tuple[bool, int]:
    """Whether it is only the least, and the bytes of the worker that needs most."""
    if Work.OUTLOOK.is_done_for(trial.decided):
        return False, max(trial.partitioned.program.peak_bytes)
    return True, trial.lacking_on_average(0)


def _commands(plan: Plan, directory: Path) -> tuple[str, ...]:
    """Next commands: those that work with the plan's folder alone."""
    folder = shlex.quote(str(directory))
    return f"tofu explain {folder}", f"tofu run {folder} --steps 3 --verify"
