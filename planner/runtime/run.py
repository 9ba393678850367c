"""Running a plan: steps, bytes, and whether the numbers are right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.errors import UsageError
from planner.graph.data_folder import Followed
from planner.graph.model import Graph
from planner.runtime.accuracy import accuracy_of
from planner.runtime.already_done import already_done
from planner.runtime.chosen_engine import check_choice, started
from planner.runtime.engine.core.transport import Transport
from planner.runtime.evaluation import HeldOut
from planner.runtime.iterations import Iterations
from planner.runtime.judge.foreign import check_kernels, check_libraries
from planner.runtime.judge.references import Judge
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.run_options import RunOptions, check_options
from planner.runtime.run_report import RunResult, StepReport
from planner.runtime.values import schedule
from planner.runtime.values.checkpoint import Checkpoint
from planner.runtime.values.checkpoints import newest_checkpoint, refuse_filled
from planner.runtime.values.claim import claimed
from planner.runtime.values.export import check_export
from planner.runtime.values.feed import Batches, BatchFolder, Feed
from planner.runtime.values.given import digest_of_given
from planner.runtime.values.rows import OneBatch, read_arrays
from planner.runtime.values.state import TileSource, Values, WeightFile, refuse_missing


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
        UsageError: the plan or the options cannot be used, inputs are missing, or the folder of checkpoints holds some
            that are not gone on from, or is another run's.
        ModelError: weights cannot be read, the programs do not fit together, the whole model cannot be run, or a
            checkpoint is another model's or damaged.
        WorkerError: a worker failed; it is named.
        DifferenceError: a fetch moved other bytes than predicted, or workers that hold the same elements differ.
    """
    check_options(options)
    check_choice(options)
    check_libraries(options.libraries)
    world = options.world
    if world is None:
        loaded = plan if isinstance(plan, LoadedPlan) else load_plan(Path(plan), options.doing)
    elif isinstance(plan, LoadedPlan):
        raise UsageError("--engine mpi: the plan is not in a folder")
    else:
        options.doing("meeting the other ranks")
        from planner.runtime.engine.mpi.meeting import agree

        agree(world, Path(plan), _equal_on_all(options))
        loaded = load_plan(Path(plan), options.doing, own=world.worker)
    graph = loaded.graph
    name = loss_of(graph, options.loss)
    if options.export is not None:
        check_export(options.export, loaded.states, options.forward)
    if options.schedule is not None and schedule.INPUT not in graph.inputs:
        raise UsageError(
            f"--lr: the model has no input {schedule.INPUT!r}", facts=(f"inputs: {', '.join(graph.inputs)}",)
        )
    with contextlib.ExitStack() as stack:
        if options.checkpoint_dir is not None and options.reports:
            stack.enter_context(claimed(options.checkpoint_dir, options.notice))
            if not options.resume:
                refuse_filled(options.checkpoint_dir, loaded.model_digest)
        options.doing("reading the inputs")
        checkpoint = _resumed(loaded, options) if options.resume else None
        first, seed = (1, options.seed) if checkpoint is None else (checkpoint.step + 1, checkpoint.seed)
        sources: list[TileSource] = [] if checkpoint is None else [checkpoint]
        if options.weights is not None:
            sources.append(WeightFile(options.weights, graph))
        supplied = () if options.schedule is None else (schedule.INPUT,)
        given, batches = _data(graph, options.inputs, supplied)
        feed: Feed | None = None
        if batches is not None:
            feed = stack.enter_context(Feed(batches, _shuffle(options, batches, checkpoint)))
            if line := batches.told(is_shuffled=feed.shuffle is not None):
                options.notice(f"note: {line}")
                if options.epochs is None and options.steps < feed.per_epoch:
                    taken = "1 batch" if options.steps == 1 else f"{options.steps:,} batches"
                    options.notice(f"hint: this run takes {taken}; --epochs 1 goes through all of them")
        elif options.shuffle is not None:
            raise UsageError(f"--shuffle: {_source(options)} is one batch, the same in every step")
        if options.epochs is not None:
            options = replace(options, steps=options.epochs * (1 if feed is None else feed.per_epoch))
        options = replace(options, seed=seed)
        if checkpoint is not None and first > options.steps:
            return already_done(loaded, checkpoint, name, options)
        if feed is not None:
            given = {**given, **feed.batch(first)}
        if options.inputs is not None:
            refuse_missing(graph, {*given, *supplied}, source=_source(options))
        # Given arrays come before a checkpoint's, and a state among the inputs is that of step 1. It is taken out only
        # after ``refuse_missing``, which judges what the user's file holds.
        if checkpoint is not None:
            given = {name: value for name, value in given.items() if not checkpoint.holds(name)}
        accuracy = accuracy_of(graph) if options.metric is not None else None
        held_out = _held_out(graph, options, supplied, stack)
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
        if options.verify and options.reports:
            options.doing("preparing the reference")
            judge = Judge(_with_constants(graph, values), options.references, options.libraries)
        engine = stack.enter_context(started(loaded, options, transport))
        if engine.on_gpus is not None and (sentence := engine.on_gpus.changes.sentence()):
            options.notice(sentence)
        engine.agree(first, seed)
        iterations = Iterations(loaded, engine, judge, name, options, feed, accuracy, held_out)
        stack.callback(iterations.close)
        return iterations.go(values, first)


def _resumed(plan: LoadedPlan, options: RunOptions) -> Checkpoint:
    """The checkpoint to go on from; which later ones are damaged is told."""
    assert options.checkpoint_dir is not None
    checkpoint, passed_over = newest_checkpoint(options.checkpoint_dir, plan.graph, plan.model_digest)
    for reason in passed_over:
        options.notice(f"passed over: {reason}")
    if passed_over:
        options.notice(f"going on from step {checkpoint.step}")
    return checkpoint


def _data(
    graph: Graph, inputs: str | Path | Mapping[str, np.ndarray] | None, supplied: Sequence[str]
) -> tuple[dict[str, np.ndarray], Batches | None]:
    """What is the same in every step, and what is gone through in batches; None: nothing is."""
    if inputs is None:
        return {}, None
    if isinstance(inputs, str | Path):
        path = Path(inputs)
        return ({}, BatchFolder(path, graph, supplied)) if path.is_dir() else read_arrays(graph, path, source=str(path))
    return read_arrays(graph, inputs, source="inputs")


def _held_out(
    graph: Graph, options: RunOptions, supplied: Sequence[str], stack: contextlib.ExitStack
) -> HeldOut | None:
    """The data to evaluate on, once through as they lie."""
    path = options.eval_inputs
    if path is None:
        return None
    fixed, batches = _data(graph, path, supplied)
    states = {pair.current for pair in graph.state} & fixed.keys()
    if states:
        raise UsageError(f"{path} holds more than data", facts=tuple(f"{name} is state" for name in sorted(states)))
    feed = stack.enter_context(Feed(OneBatch(fixed) if batches is None else batches))
    if line := feed.batches.told(is_shuffled=False):
        options.notice(f"note: {line}")
    refuse_missing(graph, {*fixed, *feed.batch(1, is_last=True), *supplied}, source=str(path))
    return HeldOut(feed, fixed)


def _source(options: RunOptions) -> str:
    """How to name the data."""
    return str(options.inputs) if isinstance(options.inputs, str | Path) else "inputs"


def _shuffle(options: RunOptions, batches: Batches, checkpoint: Checkpoint | None) -> int | None:
    """The seed of the order of a data set: as asked, and as before.

    Raises:
        UsageError: it is asked for otherwise than before.
    """
    before = None if checkpoint is None else checkpoint.data
    if before is None:
        return options.shuffle
    if options.shuffle not in (None, before.shuffle):
        how = "as it lies" if before.shuffle is None else f"with --shuffle {before.shuffle}"
        raise UsageError(
            f"--shuffle {options.shuffle}: the run went through its data {how}",
            hint="leave --shuffle out to go on at the same place of the same order",
        )
    if (before.items, before.per_batch) != (batches.items, batches.per_batch):
        options.notice(
            f"note: there were {before.items:,} rows or files to go through in batches of {before.per_batch:,}; now "
            f"there are {batches.items:,}, in batches of {batches.per_batch:,}"
        )
    return before.shuffle


def _equal_on_all(options: RunOptions) -> dict[str, str]:
    """What all ranks must have been asked alike, since they go through the steps together."""
    return {
        "--steps": str(options.steps),
        "--epochs": str(options.epochs),
        "--shuffle": str(options.shuffle),
        "--seed": str(options.seed),
        "--lr": str(options.schedule),
        "--verify": str(options.verify),
        "--checkpoint-every": str(options.checkpoint_every),
        "--checkpoint-dir": str(options.checkpoint_dir is not None),
        "--resume": str(options.resume),
        "--profile": str(options.profile),
        "--loss": str(options.loss),
        "--allow-nan": str(options.allow_nan),
        "--result or --export": str(options.wants_results),
        "--random-weights": str(options.random_weights),
        "--metric": str(options.metric),
        "--eval-inputs": digest_of_given(options.eval_inputs),
        "--inputs": digest_of_given(Path(options.inputs) if isinstance(options.inputs, str | Path) else None),
        "--weights": digest_of_given(options.weights),
        "--data-dir": digest_of_given(options.data_dir),
    }


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
