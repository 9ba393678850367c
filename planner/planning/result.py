"""The result of ``tofu plan``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from planner.artifacts.plan import Plan
from planner.artifacts.program import Fetch, Segment
from planner.graph.core.notes import MICRO_BATCHES, without_micro_batch
from planner.graph.reading.values import values_of
from planner.partition.collectives import collectives, counted
from planner.partition.segments import Partitioned
from planner.planning.another_effort import another_effort
from planner.planning.folder import Destination
from planner.planning.machines import simulated_seconds
from planner.planning.session import Planned, Session
from planner.planning.why.summary import summary_of
from planner.results import Beside, MicroBatches, PlanResult
from planner.spent import Spent


def result_of(
    session: Session,
    planned: Planned,
    plan: Plan,
    beside: Beside | None,
    destination: Destination,
    started: float,
    spent: Spent,
) -> PlanResult:
    """The plan, and what was found on the way to it and beside it.

    Args:
        session: in which it was found.
        planned: what was found.
        plan: that is complete.
        beside: what else is estimated (``Session.beside``).
        destination: where it was written.
        started: when, by ``time.perf_counter``.
        spent: what the parts took.
    """
    request, decided, graph = session.request, planned.trial.decided, session.graph
    return PlanResult(
        plan=plan,
        directory=destination.directory,
        has_models=destination.has_models,
        search_seconds=spent.seconds["search"] + spent.seconds["bound"],
        total_seconds=time.perf_counter() - started,
        part_seconds=spent.seconds,
        ops=len(session.whole.ops),
        state_bytes=sum(graph.tensors[pair.current].size_bytes for pair in graph.state),
        **(_of_program(planned.trial.partitioned) if plan.has_program else {}),
        prices=planned.prices,
        values=values_of(session.whole.notes),
        micro_batches=_micro_batches(session.whole.notes, plan),
        objective=request.objective,
        found_by=decided.strategy,
        beside=beside,
        simulated_seconds=_simulated(session, planned) if plan.estimate is not None else None,
        left_out=(*planned.left_out, *request.stop.left_out),
        summary=summary_of(session, planned, plan, beside, destination.directory),
        another_effort=another_effort(decided, request),
    )


def _micro_batches(notes: Mapping[str, str], plan: Plan) -> MicroBatches | None:
    """What they move; the file's note is not simply believed."""
    count = notes.get(MICRO_BATCHES, "")
    moved = sum(amount for name, amount in plan.tensor_bytes.items() if name != without_micro_batch(name))
    return MicroBatches(int(count), moved, plan.moved_bytes - moved) if re.fullmatch("[0-9]{1,9}", count) else None


def _simulated(session: Session, planned: Planned) -> float | None:
    target = session.request.target
    assert target.machine is not None, "there is an estimate"
    return simulated_seconds(planned.trial, target.machine, target.profile)


def _of_program(partitioned: Partitioned) -> dict[str, Any]:
    """What a plan's program is like, by field of the result."""
    program = partitioned.program
    steps = [step for worker in program.workers for step in worker.steps]
    return {
        "fetches": sum(isinstance(step, Fetch) for step in steps),
        "segments": sum(isinstance(step, Segment) for step in steps),
        "functions": len(partitioned.bodies),
        "arena_bytes": tuple(worker.arena_bytes for worker in program.workers),
        "workspace_bytes": tuple(worker.workspace_bytes for worker in program.workers),
        "collectives": counted(collectives(program)),
    }
