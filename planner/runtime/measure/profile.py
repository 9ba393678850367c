"""The profile of a run: computing, fetching, waiting; by worker and by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.program import Fetch, Program
from planner.records import Positive
from planner.runtime.engine.core.executor import Iteration


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One step of one worker; seconds are means over the measured iterations."""

    worker: int
    step: str
    """Name of the segment or fetch."""
    is_fetch: bool
    ops: tuple[str, ...]
    """The ops that a segment computes a part of."""
    wait_seconds: float
    """Until others had done what it needs."""
    seconds: float
    """What it took after that."""
    predicted_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """One worker's iteration; seconds are means over the measured iterations."""

    worker: int
    compute_seconds: float
    fetch_seconds: float
    wait_seconds: float
    segments: int
    fetches: int
    predicted_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of a run's iterations."""

    told: ClassVar = "iterations iteration_seconds estimate.estimated_seconds estimate fetch_share workers steps"

    iterations: Positive
    """How many were measured; the first of several, in which the runtime still lays out memory, is left out."""
    iteration_seconds: float
    workers: tuple[WorkerProfile, ...]
    steps: tuple[StepProfile, ...]
    """By worker, in program order."""
    estimate: TimeEstimate | None = None
    """What the plan says of an iteration on its topology; None where it is for none."""

    @property
    def fetch_share(self) -> float:
        """Share of the workers' time that they spend in fetches; waiting is not counted."""
        fetching = sum(worker.fetch_seconds for worker in self.workers)
        busy = fetching + sum(worker.compute_seconds for worker in self.workers)
        return fetching / busy if busy else 0.0


def profile_of(program: Program, iterations: Sequence[Iteration], estimate: TimeEstimate | None = None) -> Profile:
    """The profile of iterations that were timed.

    Args:
        program: that ran.
        iterations: at least one.
        estimate: of the plan, to stand beside.
    """
    # The first iteration allocates and warms caches up: it counts only if there is no other.
    measured = iterations[1:] or iterations
    count = len(measured)
    steps: list[StepProfile] = []
    workers: list[WorkerProfile] = []
    for worker in program.workers:
        mine: list[StepProfile] = []
        fetched = iter(measured[-1].moved_bytes[worker.worker])
        for number, step in enumerate(worker.steps):
            waited, took = (
                sum(iteration.timings[worker.worker][number][part] for iteration in measured) / count for part in (0, 1)
            )
            if isinstance(step, Fetch):
                mine.append(
                    StepProfile(worker.worker, step.name, True, (), waited, took, step.predicted_bytes, next(fetched))
                )
            else:
                mine.append(StepProfile(worker.worker, step.name, False, step.ops, waited, took, 0, 0))
        fetches = [step for step in mine if step.is_fetch]
        workers.append(
            WorkerProfile(
                worker=worker.worker,
                compute_seconds=sum(step.seconds for step in mine if not step.is_fetch),
                fetch_seconds=sum(step.seconds for step in fetches),
                wait_seconds=sum(step.wait_seconds for step in mine),
                segments=len(mine) - len(fetches),
                fetches=len(fetches),
                predicted_bytes=sum(step.predicted_bytes for step in fetches),
                moved_bytes=sum(step.moved_bytes for step in fetches),
            )
        )
        steps.extend(mine)
    seconds = sum(iteration.seconds for iteration in measured) / count
    return Profile(count, seconds, tuple(workers), tuple(steps), estimate)
