"""The simulated schedule of a plan: its spans by op and exchange, and where the estimate differs from it.

The estimate is the closed form of the schedule in which everybody waits for everybody after each op and each exchange
(ICML'18, section 5.1, equation 1). A simulation lets each worker go on when what it waits for is there. What its
longest path takes, op by op and exchange by exchange, adds up to the iteration; beside that stands what the estimate
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.program import Fetch, Program
from planner.cost.seconds.estimate import Timed
from planner.simulation.schedule import Simulation, simulate

Kind: TypeAlias = Literal["compute", "transfer", "synchronisation"]

NOTABLY: Final = 0.1
"""Of the estimate: where a simulation differs by more, that is said."""


@dataclass(frozen=True, slots=True)
class Span:
    """An op's part, or a fetch, on a worker."""

    name: str
    """Of the op, or of the fetch."""
    kind: Kind
    """In which of the estimate's three sums it is."""
    worker: int
    number: int
    """Of the step."""
    start_seconds: float
    """From the beginning of the iteration."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Differing:
    """An op or an exchange."""

    told: ClassVar = "name kind estimated_seconds simulated_seconds"

    name: str
    kind: Kind
    estimated_seconds: float
    """As the estimate counts it, by itself."""
    simulated_seconds: float
    """On the longest path of the simulation; 0 where nobody waits for it."""


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """The times of a worker in a simulated iteration."""

    told: ClassVar = "compute_seconds fetch_seconds wait_seconds"

    compute_seconds: float
    fetch_seconds: float
    wait_seconds: float
    """For others, before a step and at the end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A simulated iteration, beside its estimate."""

    program: Program
    parts: Timed
    estimate: TimeEstimate
    simulation: Simulation

    def spans(self) -> Iterator[Span]:
        """The spans of time, worker by worker in the order of the program; the ops of a segment follow each other."""
        for worker in self.program.workers:
            for number, step in enumerate(worker.steps):
                ran = self.simulation.steps[worker.worker][number]
                if isinstance(step, Fetch):
                    if ran.end_seconds > ran.start_seconds:
                        kind = self._kind(worker.buffers[step.target].tensor)
                        took = ran.end_seconds - ran.start_seconds
                        yield Span(step.name, kind, worker.worker, number, ran.start_seconds, took)
                    continue
                alone = [float(self.parts.op_seconds[op][worker.worker]) for op in step.ops]
                # An op in steps has a share of its time in each of its segments.
                share = self.parts.segment_seconds[worker.worker, number] / (sum(alone) or 1.0)
                start_seconds = ran.start_seconds
                for op, seconds in zip(step.ops, alone, strict=True):
                    if seconds > 0:
                        yield Span(op, "compute", worker.worker, number, start_seconds, seconds * share)
                        start_seconds += seconds * share

    def workers(self) -> tuple[WorkerTimes, ...]:
        """The times of each worker."""
        totals = [[0.0, 0.0] for _ in self.program.workers]
        for span in self.spans():
            totals[span.worker][span.kind != "compute"] += span.seconds
        end = self.simulation.seconds
        return tuple(WorkerTimes(compute, fetch, max(0.0, end - compute - fetch)) for compute, fetch in totals)

    def on_the_path(self) -> dict[tuple[str, Kind], float]:
        """The time of each op and exchange on the longest path; together the iteration."""
        path = set(self.simulation.path())
        path_seconds: dict[tuple[str, Kind], float] = {}
        for span in self.spans():
            if (span.worker, span.number) in path:
                key = (span.name, span.kind)
                path_seconds[key] = path_seconds.get(key, 0.0) + span.seconds
        return path_seconds

    def differing(self) -> tuple[Differing, ...]:
        """Ops and exchanges in which the two differ by more than a tenth, those first in which they differ most.

        A difference of less than a thousandth of the iteration is none.
        """
        path = self.on_the_path()
        counted: dict[tuple[str, Kind], float] = {
            (name, "compute"): float(seconds.max()) for name, seconds in self.parts.op_seconds.items()
        }
        for exchange, time in self.parts.exchanges:
            counted[exchange.name, self._kind(exchange.tensor)] = time.seconds
        least = max(self.estimate.estimated_seconds, self.simulation.seconds) / 1000
        rows = [Differing(*key, counted.get(key, 0.0), path.get(key, 0.0)) for key in {**counted, **path}]
        return tuple(
            sorted(
                (row for row in rows if _differs(row.estimated_seconds, row.simulated_seconds, least)),
                key=lambda row: (-abs(row.simulated_seconds - row.estimated_seconds), row.name),
            )
        )

    def sums(self) -> tuple[Differing, ...]:
        """The three sums of the estimate, beside what they take of the longest path."""
        path, estimate = self.on_the_path(), self.estimate
        stated: Sequence[tuple[Kind, float]] = (
            ("compute", estimate.compute_seconds),
            ("transfer", estimate.transfer_seconds),
            ("synchronisation", estimate.synchronisation_seconds),
        )
        return tuple(
            Differing(kind, kind, seconds, sum(amount for (_, path_kind), amount in path.items() if path_kind == kind))
            for kind, seconds in stated
        )

    def _kind(self, tensor: str) -> Kind:
        return "synchronisation" if tensor in self.parts.update else "transfer"


def scheduled(program: Program, parts: Timed, estimate: TimeEstimate) -> Schedule:
    """Simulates an iteration as the engines run it, step after step on each worker.

    Args:
        program: of the plan.
        parts: of the program's estimate.
        estimate: that they add up to.
    """
    simulation = simulate(program, parts.segment_seconds, parts.interconnect, parts.devices)
    return Schedule(program, parts, estimate, simulation)


def differs(estimated_seconds: float, simulated_seconds: float) -> bool:
    """Whether an estimate and a simulation of it differ by more than a tenth of the estimate."""
    return _differs(estimated_seconds, simulated_seconds, 0.0)


def _differs(estimated: float, simulated: float, least: float) -> bool:
    return abs(simulated - estimated) > max(NOTABLY * estimated, least)
