"""Running a plan: steps, bytes, and whether the numbers are right."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.errors import UsageError
from planner.graph.data_folder import Followed
from planner.graph.model import Graph, Tensor
from planner.graph.protos import numpy_dtype
from planner.runtime.engine.executor import Iteration
from planner.runtime.engine.interface import Engine, InProcessEngine
from planner.runtime.engine.meeting import agree, agree_on_start
from planner.runtime.engine.message_engine import MessageEngine
from planner.runtime.engine.supervisor import SupervisedEngine
from planner.runtime.engine.transport import Transport
from planner.runtime.judge.compare import StepComparison, worst
from planner.runtime.judge.foreign import check_kernels, check_libraries
from planner.runtime.judge.references import Judge
from planner.runtime.measure.fetch_bytes import FetchBytes, check_bytes, fetch_table
from planner.runtime.measure.profile import profile_of
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.run_options import RunOptions, check_options
from planner.runtime.run_report import RunResult, StepReport
from planner.runtime.values import schedule
from planner.runtime.values.checkpoint import newest_checkpoint, remove_older, write_checkpoint
from planner.runtime.values.export import check_export, export_weights
from planner.runtime.values.feed import Feed
from planner.runtime.values.state import TileSource, Values, WeightFile, given_inputs, part_of, refuse_missing
from planner.runtime.values.tiles import fill_tiles, gather_tiles, hand_out_tiles, load_tiles


def run_plan(
    plan: str | Path | LoadedPlan,
    *,
    steps: int = 1,
    inputs: str | Path | Mapping[str, np.ndarray] | None = None,
    verify: bool = False,
    seed: int = 0,
    loss: str | None = None,
    progress: Callable[[StepReport], None] | None = None,
    transport: Transport | None = None,
) -> RunResult:
    """``run_with``, with the usual options as arguments; see ``RunOptions``."""
    options = RunOptions(steps=steps, inputs=inputs, verify=verify, seed=seed, loss=loss, progress=progress)
    return run_with(plan, options, transport=transport)


def run_with(plan: str | Path | LoadedPlan, options: RunOptions, *, transport: Transport | None = None) -> RunResult:
    """Runs a plan's workers and counts what they move.

    With verification each step is judged alone: the split run, the whole model and its float64 twin start it from the
    same state, which is the whole model's. Without, the split run goes on from its own next state.

    Args:
        plan: a folder that ``tofu plan`` wrote, or a plan that is loaded already. Worker models that are in memory
            only run in this process, others in a supervised child.
        options: how it is run.
        transport: in place of the usual one; only where the workers run in this process.

    Raises:
        UsageError: the plan or the options cannot be used, or inputs are missing.
        ModelError: weights cannot be read, the programs do not fit together, the whole model cannot be run, or a
            checkpoint is another model's or damaged.
        WorkerError: a worker failed; it is named.
        DifferenceError: a fetch moved other bytes than predicted, or workers that hold the same elements differ.
    """
    check_options(options)
    check_libraries(options.libraries)
    world = options.world
    if world is None:
        loaded = plan if isinstance(plan, LoadedPlan) else load_plan(Path(plan), options.doing)
    elif isinstance(plan, LoadedPlan):
        raise UsageError("--engine mpi: the plan is not in a folder")
    else:
        options.doing("meeting the other ranks")
        agree(world, Path(plan), _equal_on_all(options))
        loaded = load_plan(Path(plan), options.doing, own=world.worker)
    graph = loaded.graph
    name = loss_of(graph, options.loss)
    if options.export is not None:
        check_export(options.export, _states(loaded), options.forward)
    if options.schedule is not None and schedule.INPUT not in graph.inputs:
        raise UsageError(
            f"--lr: the model has no input {schedule.INPUT!r}", facts=(f"inputs: {', '.join(graph.inputs)}",)
        )
    options.doing("reading the inputs")
    sources: list[TileSource] = []
    first, seed = 1, options.seed
    if options.resume:
        assert options.checkpoint_dir is not None
        checkpoint, passed_over = newest_checkpoint(options.checkpoint_dir, graph, loaded.model_digest)
        for reason in passed_over:
            options.notice(f"passed over: {reason}")
        if passed_over:
            options.notice(f"going on from step {checkpoint.step}")
        first, seed = checkpoint.step + 1, checkpoint.seed
        if first > options.steps:
            raise UsageError(
                f"step {checkpoint.step} is done already, and --steps is {options.steps}",
                hint=f"--steps counts from the beginning: write --steps {checkpoint.step + 1}, or more",
            )
        sources.append(checkpoint)
    if options.weights is not None:
        sources.append(WeightFile(options.weights, graph))
    with contextlib.ExitStack() as stack:
        inputs = options.inputs
        supplied = () if options.schedule is None else (schedule.INPUT,)
        feed: Feed | None = None
        if isinstance(inputs, str | Path) and Path(inputs).is_dir():
            feed = stack.enter_context(Feed(Path(inputs), graph, supplied))
            inputs = feed.batch(first)
        given = given_inputs(graph, inputs)
        if inputs is not None and feed is None:
            source = str(inputs) if isinstance(inputs, str | Path) else "inputs"
            refuse_missing(graph, {*given, *supplied}, source=source)
        if options.resume:
            given = {name: value for name, value in given.items() if not sources[0].holds(name)}
        values = Values(
            graph,
            given,
            sources=tuple(sources),
            seed=seed,
            data=loaded.data if options.data_dir is None else Followed((options.data_dir,)),
            random_weights=options.random_weights,
        )
        if options.told is not None:
            options.told(values.drawn)
        check_kernels(graph, options.libraries, on_gpus=options.device == "cuda")
        judge = None
        if options.verify and (world is None or world.rank == 0):
            options.doing("preparing the reference")
            judge = Judge(_with_constants(graph, values), options.references, options.libraries)
        engine = stack.enter_context(_engine(loaded, transport, _device_map(options), options))
        if engine.on_gpus is not None and (sentence := engine.on_gpus.changes.sentence()):
            options.notice(sentence)
        if world is not None:
            agree_on_start(world, first, seed)
        return _Run(loaded, engine, judge, name, replace(options, seed=seed)).go(values, feed, first)


def _equal_on_all(options: RunOptions) -> dict[str, str]:
    """What all ranks must have been asked alike, since they go through the steps together."""
    return {
        "--steps": str(options.steps),
        "--seed": str(options.seed),
        "--lr": str(options.schedule),
        "--verify": str(options.verify),
        "--checkpoint-every": str(options.checkpoint_every),
        "--checkpoint-dir": str(options.checkpoint_dir is not None),
        "--resume": str(options.resume),
        "--profile": str(options.profile),
        "--loss": str(options.loss),
        "--result or --export": str(options.wants_results),
    }


def _states(plan: LoadedPlan) -> dict[str, Tensor]:
    return {pair.current: plan.graph.tensors[pair.current] for pair in plan.program.state}


def _with_constants(graph: Graph, values: Values) -> Graph:
    """The graph with values for the constants that it does not hold."""
    constants = {**graph.constants, **{name: values.whole(name) for name in values.absent}}
    return replace(graph, constants=constants) if values.absent else graph


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


def _device_map(options: RunOptions) -> tuple[int, ...] | None:
    """The GPU of each worker, () where nobody says; None on CPUs. What there is, only the workers' process may ask."""
    if options.device == "cpu":
        if options.device_map is not None:
            raise UsageError("--map places workers on GPUs", hint="write --device cuda, too")
        return None
    return options.device_map or ()


def _engine(
    plan: LoadedPlan, transport: Transport | None, device_map: tuple[int, ...] | None, options: RunOptions
) -> Engine:
    if options.world is not None:
        make_backend = None
        if device_map is not None:
            # A run on CPUs loads nothing that is for GPUs.
            from planner.runtime.engine.cuda_messages import gpu_of_rank

            make_backend = gpu_of_rank(options.world, device_map, options.libraries)
        return MessageEngine(
            plan.models[0],
            plan.program.workers,
            options.world,
            plan.program.state,
            make_backend=make_backend,
            libraries=options.libraries,
            note=options.note,
            progress=options.doing,
        )
    if device_map is not None and not plan.paths:
        raise UsageError("--device cuda: the plan is not in a folder")
    if options.engine == "mpi":
        raise UsageError("--engine mpi: no ranks", hint="call planner.api.run, which joins them")
    if options.engine != "local" and not plan.paths:
        raise UsageError(f"--engine {options.engine}: the plan is not in a folder")
    if plan.paths and transport is None:
        return SupervisedEngine(
            plan.paths,
            plan.program.workers,
            plan.program.state,
            is_apart=options.engine == "processes",
            device_map=device_map,
            libraries=options.libraries,
            patience_seconds=options.patience_seconds,
            progress=options.doing,
        )
    options.doing("making sessions")
    return InProcessEngine(plan.models, plan.program.state, transport=transport, libraries=options.libraries)


class _Run:
    def __init__(self, plan: LoadedPlan, engine: Engine, judge: Judge | None, loss: str, options: RunOptions) -> None:
        self._plan, self._engine, self._judge, self._loss, self._options = plan, engine, judge, loss, options
        self._shapes = {name: plan.graph.tensors[name].shape for name in plan.program.outputs}
        self._checkpoint: Path | None = None
        self._nearly_same: list[str] | None = None if options.device == "cpu" else []

    def go(self, values: Values, feed: Feed | None, first: int) -> RunResult:
        """Runs from a step, counted from 1, to the last one."""
        options, program, reports = self._options, self._plan.program, self._engine.reports
        states = [pair.current for pair in program.state]
        losses: list[float] = []
        iterations: list[Iteration] = []
        seconds: list[float] = []
        comparisons: list[StepComparison] = []
        outputs: dict[str, np.ndarray] = {}
        fetches: tuple[FetchBytes, ...] = ()
        whole = {name: values.whole(name) for name in self._plan.graph.inputs} if self._judge is not None else {}
        options.doing("filling the workers' tiles")
        fill_tiles(self._engine, values.tile)
        for step in range(first, options.steps + 1):
            is_last = step == options.steps
            fresh = self._fresh(feed, step, is_last=is_last)
            if fresh:
                load_tiles(self._engine, fresh, fresh.keys())
                whole.update(fresh if self._judge is not None else {})
            loss = f", loss {losses[-1]:.6f} after step {step - 1}" if losses else ""
            options.doing(f"step {step} of {options.steps}{loss}")
            start = time.perf_counter()
            iterations.append(self._engine.iterate(timed=options.profile))
            seconds.append(time.perf_counter() - start)
            if reports:
                fetches = fetch_table(program, iterations[-1].moved_bytes)
                check_bytes(fetches)
            moved_bytes = sum(fetch.moved_bytes for fetch in fetches)
            wanted = program.outputs if options.verify or self._ends(step) else (self._loss,) * bool(self._loss)
            there = tuple(name for name in wanted if self._plan.graph.tensors[name].elements)
            outputs = gather_tiles(self._engine, there, self._shapes, nearly_same=self._nearly_same)
            outputs |= {name: _nothing(self._plan.graph, name) for name in wanted if name not in there}
            if self._loss and reports:
                losses.append(float(outputs[self._loss].reshape(())))
            if self._judge is not None:
                options.doing(f"judging step {step} of {options.steps}")
                comparison, right = self._judge.compare(step, outputs, whole)
                comparisons.append(comparison)
                whole = {**whole, **{pair.current: right[pair.following] for pair in program.state}}
            if options.checkpoint_dir is not None and (is_last or self._is_due(step)):
                options.doing(f"writing a checkpoint of step {step}")
                self._save(options.checkpoint_dir, step, whole)
            if not is_last:
                if options.verify:
                    hand_out_tiles(self._engine, whole, states)
                else:
                    self._engine.advance()
            if options.progress is not None and reports:
                last = losses[-1] if losses else None
                judged = comparisons[-1] if comparisons else None
                options.progress(StepReport(step, options.steps, last, moved_bytes, seconds[-1], judged))
        found = tuple(comparisons)
        return RunResult(
            steps=options.steps - first + 1,
            first_step=first,
            loss_name=self._loss,
            losses=tuple(losses),
            predicted_bytes=program.predicted_bytes,
            moved_bytes=sum(fetch.moved_bytes for fetch in fetches),
            fetches=fetches,
            seconds=tuple(seconds),
            verified=all(comparison.is_same for comparison in found) if self._judge is not None else None,
            max_error=worst(found) if self._judge else None,
            comparisons=found,
            no_reference=self._judge.no_reference if self._judge else "",
            own_precision=self._judge.own_precision if self._judge else (),
            results=outputs,
            arena_bytes=self._engine.arena_bytes,
            workspace_bytes=tuple(worker.workspace_bytes for worker in program.workers),
            staging_bytes=self._engine.staging_bytes,
            on_gpus=self._engine.on_gpus,
            nearly_same=len(self._nearly_same or ()),
            profile=profile_of(program, iterations, self._plan.estimate) if options.profile and reports else None,
            checkpoint=self._checkpoint,
            exported=self._export(outputs),
            drawn=values.drawn,
            data_folder=values.data_folder,
        )

    def _fresh(self, feed: Feed | None, step: int, *, is_last: bool) -> dict[str, np.ndarray]:
        """The inputs that are others than in the step before."""
        fresh = dict(feed.batch(step, is_last=is_last)) if feed is not None else {}
        if self._options.schedule is not None:
            tensor = self._plan.graph.tensors[schedule.INPUT]
            fresh[schedule.INPUT] = np.full(tensor.shape, self._options.schedule.rate(step), numpy_dtype(tensor.dtype))
        return fresh

    def _ends(self, step: int) -> bool:
        """Whether whole results are wanted after this step."""
        return step == self._options.steps and self._options.wants_results

    def _is_due(self, step: int) -> bool:
        every = self._options.checkpoint_every
        return every is not None and step % every == 0

    def _save(self, directory: Path, step: int, whole: Mapping[str, np.ndarray]) -> None:
        """Writes the state from which the next step starts: with verification, the whole model's."""
        program = self._plan.program
        current = {pair.following: pair.current for pair in program.state}
        if self._options.world is None:
            self._engine.pull(current.keys())

        def tile_of(worker: int, name: str) -> np.ndarray:
            if self._judge is None:
                return self._engine.array(worker, name)
            return part_of(whole[current[name]], program.workers[worker].buffers[name].region)

        # With verification, rank 0 alone has the state from which all go on.
        if self._options.verify and not self._engine.reports:
            return
        self._checkpoint = write_checkpoint(
            directory,
            step,
            self._options.seed,
            self._plan.model_digest,
            program.workers,
            program.state,
            tile_of,
            None if self._options.verify else self._options.world,
        )
        if self._options.keep is not None and self._engine.reports:
            remove_older(directory, step, self._options.keep, self._plan.model_digest)

    def _export(self, outputs: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        if self._options.export is None or not self._engine.reports:
            return ()
        following = {pair.current: pair.following for pair in self._plan.program.state}
        state = _states(self._plan)
        return export_weights(self._options.export, state, lambda name: outputs[following[name]], self._options.forward)


def _nothing(graph: Graph, name: str) -> np.ndarray:
    """A result without elements: no worker makes it."""
    return np.empty(graph.tensors[name].shape, numpy_dtype(graph.tensors[name].dtype))
