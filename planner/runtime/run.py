"""Running a plan: steps, bytes, and whether the numbers are right."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from planner.errors import DifferenceError, UsageError
from planner.graph.model import Graph
from planner.program import Fetch, Program
from planner.runtime.compare import StepComparison, compare_step, difference, worst
from planner.runtime.engine import Engine, InProcessEngine
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.reference import NoReferenceError, Reference
from planner.runtime.state import starting_values
from planner.runtime.supervisor import SupervisedEngine
from planner.runtime.tiles import gather_tiles, load_tiles
from planner.runtime.transport import Transport
from planner.runtime.whole import WholeModel

_LISTED = 20


@dataclass(frozen=True, slots=True)
class FetchBytes:
    """One fetch: what the plan predicts and what the last step moved, which in every step must be the same."""

    worker: int
    fetch: str
    tensor: str
    predicted_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """What is known after each step."""

    step: int
    """Counted from 1."""
    steps: int
    loss: float | None
    moved_bytes: int
    seconds: float
    """Of the workers' iteration alone."""
    comparison: StepComparison | None
    """With verification."""


Progress: TypeAlias = Callable[[StepReport], None]


@dataclass(frozen=True)
class RunResult:
    """What a run did."""

    steps: int
    loss_name: str
    """The tensor that is called the loss; "" if no result is a floating-point scalar."""
    losses: tuple[float, ...]
    """By step; () without a loss. The split run's."""
    predicted_bytes: int
    """Per step, over all workers."""
    moved_bytes: int
    """Per step, over all workers, as counted; the same in every step, or the run would have failed."""
    fetches: tuple[FetchBytes, ...]
    """By worker, in program order."""
    seconds: tuple[float, ...]
    """By step: the workers' iteration alone."""
    verified: bool | None
    """True if every output of every step is accepted; None if nobody asked."""
    max_error: float | None
    """The largest error of any output (see ``compare.py``); None without verification."""
    comparisons: tuple[StepComparison, ...]
    """By step, with verification."""
    no_reference: str
    """Why the split run was held against the whole run and not against float64; "" if it was, or nobody asked."""
    results: Mapping[str, np.ndarray]
    """The last step's outputs, whole: results and next states."""

    def difference(self) -> DifferenceError | None:
        """What to raise if the verification found a difference; None if it did not."""
        return difference(self.comparisons)


def run_plan(
    plan: str | Path | LoadedPlan,
    *,
    steps: int = 1,
    inputs: str | Path | Mapping[str, np.ndarray] | None = None,
    verify: bool = False,
    seed: int = 0,
    loss: str | None = None,
    progress: Progress | None = None,
    transport: Transport | None = None,
) -> RunResult:
    """Runs a plan's workers and counts what they move.

    With verification each step is judged alone: the split run, the whole model and its float64 twin start it from the
    same state, which is the whole model's. Without, the split run goes on from its own next state.

    Args:
        plan: a folder that ``tofu plan`` wrote, or a plan that is loaded already. Worker models that are in memory
            only run in this process, others in a supervised child.
        steps: how many, at least 1.
        inputs: an npz file or arrays (see ``state.check_inputs``); the same data in every step.
        verify: also run the whole model, and compare.
        seed: of inputs that nobody gives (see ``samples.py``).
        loss: the output to be called the loss; else the first result that is a floating-point scalar.
        progress: called after each step.
        transport: in place of the usual one; only where the workers run in this process.

    Raises:
        UsageError: the plan or the inputs cannot be used.
        ModelError: the programs do not fit together, or the whole model cannot be run.
        WorkerError: a worker failed; it is named.
        DifferenceError: a fetch moved other bytes than predicted, or workers that hold the same elements differ.
    """
    if steps < 1:
        raise UsageError(f"--steps is {steps}, and must be at least 1")
    loaded = plan if isinstance(plan, LoadedPlan) else load_plan(Path(plan))
    name = loss_of(loaded.graph, loss)
    values = starting_values(loaded.graph, inputs, seed=seed)
    judge = _Judge(loaded.graph) if verify else None
    with _engine(loaded, transport) as engine:
        return _Run(loaded, engine, judge, name, progress).go(values, steps)


def loss_of(graph: Graph, wanted: str | None = None) -> str:
    """The output that is called the loss; "" if there is none.

    Raises:
        UsageError: the wanted one is no output, or no scalar in floating point.
    """
    next_states = {pair.following for pair in graph.state}
    fit = [
        name
        for name in graph.outputs
        if name not in next_states and graph.tensors[name].elements == 1 and graph.tensors[name].dtype.is_float
    ]
    if wanted is None:
        return fit[0] if fit else ""
    if wanted not in fit:
        raise UsageError(
            f"{wanted!r} cannot be the loss",
            facts=(f"floating-point scalars among the results: {', '.join(fit) or 'none'}",),
        )
    return wanted


def _engine(plan: LoadedPlan, transport: Transport | None) -> Engine:
    if plan.paths and transport is None:
        return SupervisedEngine(plan.paths, plan.program.workers, plan.program.state)
    return InProcessEngine(plan.models, plan.program.state, transport=transport)


class _Judge:
    """The whole model and its float64 twin."""

    def __init__(self, graph: Graph) -> None:
        self.whole = WholeModel(graph)
        self.no_reference = ""
        self._reference: Reference | None = None
        try:
            self._reference = Reference(graph)
        except NoReferenceError as reason:
            self.no_reference = str(reason)

    def exact(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The float64 outputs; None where there are none, and then ``no_reference`` says why."""
        if self._reference is None:
            return None
        try:
            return self._reference.step(values)
        except NoReferenceError as reason:
            self.no_reference, self._reference = str(reason), None
            return None


class _Run:
    def __init__(
        self, plan: LoadedPlan, engine: Engine, judge: _Judge | None, loss: str, progress: Progress | None
    ) -> None:
        self._plan, self._engine, self._judge, self._loss, self._progress = plan, engine, judge, loss, progress
        self._shapes = {name: plan.graph.tensors[name].shape for name in plan.program.outputs}

    def go(self, values: Mapping[str, np.ndarray], steps: int) -> RunResult:
        losses: list[float] = []
        seconds: list[float] = []
        comparisons: list[StepComparison] = []
        outputs: dict[str, np.ndarray] = {}
        fetches: tuple[FetchBytes, ...] = ()
        load_tiles(self._engine, values)
        for step in range(1, steps + 1):
            start = time.perf_counter()
            iteration = self._engine.iterate()
            seconds.append(time.perf_counter() - start)
            fetches = fetch_table(self._plan.program, iteration.moved_bytes)
            check_bytes(fetches)
            moved_bytes = sum(fetch.moved_bytes for fetch in fetches)
            wanted = self._plan.program.outputs if self._judge or step == steps else (self._loss,) * bool(self._loss)
            outputs = gather_tiles(self._engine, wanted, self._shapes)
            if self._loss:
                losses.append(float(outputs[self._loss].reshape(())))
            if self._judge is not None:
                whole = self._judge.whole.step(values)
                comparisons.append(compare_step(step, outputs, whole, self._judge.exact(values)))
                values = {**values, **{pair.current: whole[pair.following] for pair in self._plan.program.state}}
            if step < steps:
                if self._judge is not None:
                    load_tiles(self._engine, values)
                else:
                    self._engine.advance()
            if self._progress is not None:
                loss = losses[-1] if losses else None
                judged = comparisons[-1] if comparisons else None
                self._progress(StepReport(step, steps, loss, moved_bytes, seconds[-1], judged))
        found = tuple(comparisons)
        return RunResult(
            steps=steps,
            loss_name=self._loss,
            losses=tuple(losses),
            predicted_bytes=self._plan.program.predicted_bytes,
            moved_bytes=sum(fetch.moved_bytes for fetch in fetches),
            fetches=fetches,
            seconds=tuple(seconds),
            verified=all(comparison.is_same for comparison in found) if self._judge else None,
            max_error=worst(found) if self._judge else None,
            comparisons=found,
            no_reference=self._judge.no_reference if self._judge else "",
            results=outputs,
        )


def fetch_table(program: Program, moved_bytes: Sequence[Sequence[int]]) -> tuple[FetchBytes, ...]:
    """Every fetch of a program beside what one iteration counted, by worker and fetch."""
    return tuple(
        FetchBytes(worker.worker, step.name, worker.buffers[step.target].tensor, step.predicted_bytes, moved)
        for worker, counted in zip(program.workers, moved_bytes, strict=True)
        for step, moved in zip((step for step in worker.steps if isinstance(step, Fetch)), counted, strict=True)
    )


def check_bytes(fetches: Sequence[FetchBytes]) -> None:
    """The law of this project: every fetch moves what was predicted.

    Raises:
        DifferenceError: fetches moved other bytes; they are named.
    """
    facts = [
        f"worker {fetch.worker}, fetch {fetch.fetch!r} of tensor {fetch.tensor!r}: "
        f"{fetch.predicted_bytes} bytes predicted, {fetch.moved_bytes} moved"
        for fetch in fetches
        if fetch.predicted_bytes != fetch.moved_bytes
    ]
    if facts:
        rest = (f"and {len(facts) - _LISTED} more",) if len(facts) > _LISTED else ()
        raise DifferenceError(
            "the run moved other bytes than the plan predicts",
            facts=(*facts[:_LISTED], *rest),
            hint="this is a bug in tofu, unless somebody edited the plan",
        )
