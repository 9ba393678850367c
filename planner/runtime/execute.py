"""The iterations of a run, one after the other: what each reads, what is made of it, and what is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.errors import DivergedError
from planner.graph.core.model import Graph
from planner.runtime.accuracy import share_of
from planner.runtime.engine.core.executor import Iteration
from planner.runtime.evaluation import Evaluator, NextState, begin_from, keep_next_state
from planner.runtime.judge.compare import worst
from planner.runtime.measure.fetch_bytes import FetchBytes, check_bytes, fetch_table
from planner.runtime.measure.profile import profile_of
from planner.runtime.prepare import Prepared
from planner.runtime.run_log import RunLog
from planner.runtime.run_report import Evaluation, RunResult, StepReport
from planner.runtime.values import schedule
from planner.runtime.values.checkpoint import Passed, write_checkpoint
from planner.runtime.values.checkpoints import remove_older
from planner.runtime.values.export import export_weights
from planner.runtime.values.state import not_finite, part_of
from planner.runtime.values.tiles import gather_tiles, hand_out_tiles, load_tiles
from planner.units import format_loss


class Iterations:
    """The iterations of a run, which its user calls steps: each is executed, judged, told and kept."""

    def __init__(self, run: Prepared) -> None:
        start = run.start
        plan, options = self._plan, self._options = start.plan, start.options
        self._loss, self._first, self._last, self._feed = start.loss, start.first, start.last, start.feed
        self._rates = start.rates
        self._values, self._engine, self._accuracy = run.values, run.engine, run.accuracy
        self._verification = run.verification
        logits = () if run.accuracy is None else (run.accuracy.logits,)
        self._iteration_outputs = (*((start.loss,) * bool(start.loss)), *logits)
        """The outputs that are read after every step."""
        self._evaluator: Evaluator | None = None
        if run.held_out is not None:
            self._evaluator = Evaluator(
                run.held_out,
                plan.graph,
                run.engine,
                self._held_out_iteration,
                start.loss,
                run.accuracy,
                options.progress,
            )
        self._shapes = {name: plan.graph.tensors[name].shape for name in plan.program.outputs}
        self._checkpoint: Path | None = None
        # On GPUs atomic additions come in any order: workers that hold an element may differ in its last bits.
        self._nearly_same: list[str] | None = None if options.device == "cpu" else []
        self._log: RunLog | None = None
        self._fresh: Mapping[str, np.ndarray] = {}
        """The inputs that the step has been given anew."""
        self._losses: list[float] = []
        self._accuracies: list[float] = []
        self._evaluations: list[Evaluation] = []
        self._labels: np.ndarray | None = None
        """The labels of the step, where its accuracy is counted."""
        self._next_state: NextState | None = None
        """The next state, while the workers hold what came of held-out data."""
        self._seconds: list[float] = []
        self._iterations: list[Iteration] = []
        """With a profile: what the engine measured in each step."""
        self._moved_bytes: tuple[tuple[int, ...], ...] = ()
        """Of the last step: of each worker, those of its fetches."""
        self._fetches: tuple[FetchBytes, ...] = ()
        """The same as a table, which a step that moves the same does not make anew."""

    def go(self) -> RunResult:
        """Runs from the first step to the last one, or to the one in which somebody interrupts the run.

        Raises:
            DivergedError: a loss, or a state that was to be kept, is not finite, and that is not allowed.
        """
        options, reports, first, values = self._options, self._engine.reports, self._first, self._values
        if options.log is not None and reports:
            self._log = RunLog(options.log, first)
        if self._accuracy is not None:
            self._labels = values.whole(self._accuracy.labels.name)
        options.progress("filling the workers' tiles")
        self._engine.fill(values.tile)
        if options.stop is not None:
            options.stop.can_end = True
        outputs: dict[str, np.ndarray] = {}
        step, is_interrupted, advances = first, False, False
        for step in range(first, self._last + 1):
            self._load(step)
            self._iterate(advances=advances)
            is_interrupted = self._is_interrupted() and step < self._last
            is_last = is_interrupted or step == self._last
            is_everything = options.verify or (is_last and options.wants_results)
            outputs = self._outputs(self._plan.program.outputs if is_everything else self._iteration_outputs)
            if self._loss and reports:
                self._losses.append(float(outputs[self._loss].reshape(())))
            if self._accuracy is not None and self._labels is not None and reports:
                self._accuracies.append(share_of(*self._accuracy.count(outputs[self._accuracy.logits], self._labels)))
            if self._verification is not None:
                self._verification.judge(step, self._last, outputs, options.progress)
            self._next_state = None
            unsound: tuple[str, ...] = ()
            if self._evaluator is not None and not is_interrupted and self._ends_epoch(step):
                unsound = self._evaluate(step, self._evaluator)
            if reports:
                self._tell(step)
            if options.checkpoint_dir is not None and (is_last or unsound or self._is_due(step)):
                options.progress(f"writing a checkpoint of step {step}")
                self._save(options.checkpoint_dir, step)
            if unsound:
                raise self._diverged(f"the held-out loss is not finite after step {step}", unsound, "held-out data")
            if is_last:
                break
            if options.verify:
                self._hand_out_right_state()
            # After an evaluation the workers hold the next state already: it was put back from what was kept.
            advances = not options.verify and self._next_state is None
        return self._result(step, outputs, is_interrupted=is_interrupted)

    def close(self) -> None:
        """Gives up the log, so that another run may have it."""
        if self._log is not None:
            self._log.close()

    def _load(self, number: int) -> None:
        """Gives the workers the inputs that are others than in the step before."""
        options = self._options
        fresh = {} if self._feed is None else dict(self._feed.batch(number, is_last=number == self._last))
        if self._rates is not None:
            tensor = self._plan.graph.tensors[schedule.INPUT]
            fresh[schedule.INPUT] = np.full(tensor.shape, self._rates.rate(number), tensor.dtype.array_dtype)
        self._fresh = fresh
        if fresh:
            load_tiles(self._engine, fresh, fresh.keys())
            if self._verification is not None:
                self._verification.inputs.update(fresh)
        if self._accuracy is not None:
            self._labels = fresh.get(self._accuracy.labels.name, self._labels)
        epoch = "" if self._feed is None else f", epoch {self._feed.epoch(number)} of {self._feed.epoch(self._last)}"
        loss = f", loss {format_loss(self._losses[-1])}" if self._losses else ""
        accuracy = f", accuracy {self._accuracies[-1]:.4f}" if self._accuracies else ""
        after = f" after step {number - 1}" if loss or accuracy else ""
        options.progress(f"step {number} of {self._last}{epoch}{loss}{accuracy}{after}")

    def _iterate(self, *, advances: bool) -> None:
        start = time.perf_counter()
        iteration = self._engine.iterate(timed=self._options.profile, advances=advances, wanted=self._iteration_outputs)
        self._seconds.append(time.perf_counter() - start)
        if self._options.profile:
            self._iterations.append(iteration)
        if self._engine.reports and iteration.moved_bytes != self._moved_bytes:
            self._moved_bytes = iteration.moved_bytes
            self._fetches = fetch_table(self._plan.program, iteration.moved_bytes)
            check_bytes(self._fetches)

    def _is_interrupted(self) -> bool:
        """Whether the run is to end after this step; all ranks hear the same."""
        stop = self._options.stop
        is_asked = stop is not None and stop.is_interrupted
        return bool(self._engine.spread(is_asked, "to end a step", is_patient=True))

    def _outputs(self, wanted: Sequence[str]) -> dict[str, np.ndarray]:
        """Whole outputs after a step, where the engine reports."""
        filled = tuple(name for name in wanted if self._plan.graph.tensors[name].elements)
        outputs = gather_tiles(self._engine, filled, self._shapes, nearly_same=self._nearly_same)
        return outputs | {name: _nothing(self._plan.graph, name) for name in wanted if name not in filled}

    def _held_out_iteration(self) -> dict[str, np.ndarray]:
        """A step on held-out data, which the workers have been given, and what comes of it."""
        self._engine.iterate(wanted=self._iteration_outputs)
        return self._outputs(self._iteration_outputs)

    def _ends_epoch(self, number: int) -> bool:
        """Whether held-out data are due: after the last step of an epoch, and of the run."""
        return number == self._last or (self._feed is not None and number % self._feed.per_epoch == 0)

    def _hand_out_right_state(self) -> None:
        """With verification the whole model's state goes on, which is where the engine reports."""
        values = {} if self._verification is None else self._verification.inputs
        hand_out_tiles(self._engine, values, list(self._plan.states))

    def _evaluate(self, number: int, evaluator: Evaluator) -> tuple[str, ...]:
        """Evaluates after a step; what to say where the loss is not finite and that is not allowed, on all ranks."""
        self._next_state = tiles = keep_next_state(self._engine, self._plan.program.state)

        def begin() -> None:
            if self._options.verify:
                self._hand_out_right_state()
            else:
                begin_from(self._engine, tiles, self._plan.program.state)

        # What a feed gives is read again; what is the same in every step is put back.
        self._evaluations.append(evaluator.evaluate(number, begin, self._values.tile))
        unsound = () if self._allows_nan else evaluator.unsound
        return tuple(self._engine.spread(unsound, "to end an evaluation", is_patient=True))

    @property
    def _allows_nan(self) -> bool:
        """Whether a loss may be anything: with verification alone nothing is kept, and the judge says what is right."""
        options = self._options
        return options.allow_nan or (options.verify and options.checkpoint_dir is None)

    def _tell(self, number: int) -> None:
        """Tells of a step that is done, before anything is kept of it.

        Raises:
            DivergedError: its loss is not finite, and that is not allowed.
        """
        options = self._options
        report = StepReport(
            step=number,
            steps=self._last,
            loss=self._losses[-1] if self._losses else None,
            moved_bytes=sum(map(sum, self._moved_bytes)),
            seconds=self._seconds[-1],
            comparison=None if self._verification is None else self._verification.comparisons[-1],
            accuracy=self._accuracies[-1] if self._accuracies else None,
            evaluation=self._evaluations[-1] if self._next_state is not None else None,
            epoch=None if self._feed is None else self._feed.epoch(number),
            epochs=None if self._feed is None else self._feed.epoch(self._last),
            learning_rate=self._rate(number),
        )
        if self._log is not None:
            self._log.write(report)
        if options.on_step is not None:
            options.on_step(report)
        if report.loss is not None and not math.isfinite(report.loss) and not self._allows_nan:
            facts = not_finite(
                self._plan.graph,
                self._data_of,
                lambda name, place: "" if self._feed is None else self._feed.origin(number, name, place),
            )
            raise self._diverged(f"the loss is {report.loss} in step {number}", (f"output {self._loss!r}", *facts))

    def _rate(self, number: int) -> float | None:
        """The learning rate of a step; None: the model has no such input."""
        if self._rates is not None:
            return self._rates.rate(number)
        rate = self._data_of(schedule.INPUT) if schedule.INPUT in self._plan.graph.inputs else np.empty(0)
        return float(str(rate.reshape(()))) if rate.size == 1 else None  # float32 0.01 is 0.01

    def _data_of(self, name: str) -> np.ndarray:
        """A data input as the step has read it."""
        return self._fresh[name] if name in self._fresh else self._values.whole(name)

    def _diverged(self, fault: str, facts: tuple[str, ...], data: str = "data of this step") -> DivergedError:
        checkpoint = () if self._checkpoint is None else (f"the last checkpoint is {self._checkpoint}",)
        return DivergedError(
            fault,
            facts=(*facts, *checkpoint),
            hint=f"look at the learning rate and at the {data}; --allow-nan goes on regardless",
        )

    def _is_due(self, number: int) -> bool:
        every = self._options.checkpoint_every
        return every is not None and number % every == 0

    def _save(self, directory: Path, number: int) -> None:
        """Writes the state from which the next step starts: with verification, the whole model's.

        Raises:
            DivergedError: a state is not finite, and that is not allowed; nothing is written or replaced.
        """
        program, graph, options = self._plan.program, self._plan.graph, self._options
        current = {pair.following: pair.current for pair in program.state}
        self._engine.pull(current.keys())

        def tile_of(worker: int, name: str) -> np.ndarray:
            buffer = program.workers[worker].buffers[name]
            if self._verification is not None:
                tile = part_of(self._verification.inputs[current[buffer.tensor]], buffer.region)
            elif self._next_state is not None:
                tile = self._next_state[buffer.tensor, buffer.region]
            else:
                tile = self._engine.array(worker, name)
            tensor = graph.tensors[current[buffer.tensor]]
            if not options.allow_nan and tensor.dtype.is_float and not np.isfinite(tile).all():
                begun = graph.initial.get(tensor.name)
                if begun is None or np.isfinite(begun).all():
                    fault = f"state {tensor.name!r} is not finite after step {number}"
                    raise self._diverged(fault, (f"on worker {worker}",))
            return tile

        # With verification, rank 0 alone has the state from which all go on.
        if options.verify and not self._engine.reports:
            return
        self._checkpoint = write_checkpoint(
            directory,
            number,
            options.seed,
            self._plan.model_digest,
            program.workers,
            program.state,
            self._plan.states,
            tile_of,
            None if options.verify else self._engine,
            None if self._feed is None else Passed.of(self._feed),
            None if self._rates is None else self._rates.text,
        )
        if options.keep is not None and self._engine.reports:
            remove_older(directory, number, options.keep, self._plan.model_digest)

    def _result(self, last: int, outputs: Mapping[str, np.ndarray], *, is_interrupted: bool) -> RunResult:
        options, program, verification = self._options, self._plan.program, self._verification
        reports = self._engine.reports
        # The user asked for the weights of the last step; an interrupted run has not reached it.
        exported = () if is_interrupted else self._export(outputs)
        return RunResult(
            steps=last - self._first + 1,
            first_step=self._first,
            loss_name=self._loss,
            losses=tuple(self._losses),
            predicted_bytes=program.predicted_bytes,
            moved_bytes=sum(map(sum, self._moved_bytes)),
            fetches=self._fetches,
            seconds=tuple(self._seconds),
            verified=None if verification is None else verification.is_right,
            max_error=None if verification is None else worst(tuple(verification.comparisons)),
            comparisons=() if verification is None else tuple(verification.comparisons),
            door=None if verification is None else verification.door,
            no_reference="" if verification is None else verification.no_reference,
            own_precision=() if verification is None else verification.own_precision,
            results=outputs,
            arena_bytes=self._engine.arena_bytes,
            workspace_bytes=tuple(worker.workspace_bytes for worker in program.workers),
            staging_bytes=self._engine.staging_bytes,
            threads=self._engine.threads,
            on_gpus=self._engine.on_gpus,
            nearly_same=len(self._nearly_same or ()),
            profile=profile_of(program, self._iterations, self._plan.estimate) if options.profile and reports else None,
            checkpoint=self._checkpoint,
            exported=exported,
            export=options.export if exported else None,
            drawn=self._values.drawn,
            data_folder=self._values.data_folder,
            accuracies=tuple(self._accuracies),
            evaluations=tuple(self._evaluations) if reports else (),
            is_interrupted=is_interrupted and reports,
        )

    def _export(self, outputs: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        states, options = self._plan.states, self._options
        if options.export is None or not self._engine.reports:
            return ()
        following = {pair.current: pair.following for pair in self._plan.program.state}
        return export_weights(options.export, states, lambda name: outputs[following[name]], options.forward)


def _nothing(graph: Graph, name: str) -> np.ndarray:
    """A result without elements: no worker makes it."""
    return np.empty(graph.tensors[name].shape, graph.tensors[name].dtype.array_dtype)
