"""The preparation of a run: the plan, its data, the state of the first step, what it is judged by, and its workers.

Refused is here whatever can be refused before the first step, what costs least first: options, the plan, the folder of
checkpoints, data, weights, operators without a kernel, the whole model, the workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.graph.core.notes import TRAINING
from planner.graph.files.data_folder import Followed
from planner.options.running import RunOptions
from planner.printable import some
from planner.runtime.accuracy import Accuracy, accuracy_of
from planner.runtime.chosen_engine import agreed, check_choice, started
from planner.runtime.engine.core.interface import Engine
from planner.runtime.engine.core.transport import Transport
from planner.runtime.evaluation import HeldOut
from planner.runtime.judge.foreign import check_kernels, check_libraries
from planner.runtime.judge.reference import ForeignReference
from planner.runtime.judge.references import Judge
from planner.runtime.judge.verification import Verification
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.run_log import try_log
from planner.runtime.values import schedule
from planner.runtime.values.checkpoint import Checkpoint
from planner.runtime.values.checkpoints import newest_checkpoint, refuse_filled
from planner.runtime.values.claim import claimed
from planner.runtime.values.export import check_export, try_export
from planner.runtime.values.feed import Batches, BatchFolder, Feed
from planner.runtime.values.given_arrays import AnyInputs, inputs_of
from planner.runtime.values.rows import OneBatch, read_arrays
from planner.runtime.values.schedule import Schedule
from planner.runtime.values.state import Drawn, TileSource, Values, refuse_missing
from planner.runtime.values.weight_file import WeightFile
from planner.units import format_bytes
from planner.whole import try_folder

if TYPE_CHECKING:  # chosen_engine alone knows which engine it is
    from planner.runtime.engine.mpi.world import World

_SHOWN: Final = 8
"""Names of inputs in a line."""


References: TypeAlias = Callable[[LoadedPlan], Mapping[tuple[str, str], ForeignReference]]
"""By (domain, op type), operators in NumPy that ONNX does not define, of a plan."""


@dataclass(frozen=True)
class Start:
    """The start of a run, as far as files say it."""

    plan: LoadedPlan
    options: RunOptions
    """With the seed that counts."""
    world: World | None
    """The ranks, where the engine has any."""
    references: Mapping[tuple[str, str], ForeignReference]
    """By (domain, op type), operators that ONNX does not define in NumPy, to verify by."""
    rates: Schedule | None
    """Of the learning rate."""
    last: int
    """The last step to be done; a run that is resumed goes on from the step of its checkpoint."""
    loss: str
    """The output that is called the loss; "" if there is none."""
    fixed: Mapping[str, np.ndarray]
    """What is the same in every step."""
    feed: Feed | None
    """Of batches; None where the data are the same in every step."""
    checkpoint: Checkpoint | None
    """From which the run goes on."""
    weights: WeightFile | None
    """State to start from, where the checkpoint has none."""

    @property
    def first(self) -> int:
        """The number of the first step."""
        return 1 if self.checkpoint is None else self.checkpoint.step + 1

    @property
    def reports(self) -> bool:
        """True if this process tells of the run: of several ranks, rank 0."""
        return self.world is None or self.world.rank == 0

    @property
    def supplied(self) -> tuple[str, ...]:
        """Inputs that the run itself gives in every step."""
        return () if self.rates is None else (schedule.INPUT,)


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: its workers are started."""

    start: Start
    values: Values
    """Of the first step."""
    engine: Engine
    accuracy: Accuracy | None
    """How to count it; None where nobody asked."""
    held_out: HeldOut | None
    """Data to evaluate on."""
    verification: Verification | None
    """Where the engine reports, if it was asked for."""


def read_start(
    plan: str | Path | LoadedPlan,
    options: RunOptions,
    stack: contextlib.ExitStack,
    world: World | None,
    references: References,
) -> Start:
    """Reads a plan and what is given to it; see ``run_with``.

    Args:
        plan: loaded, or its folder.
        options: as asked.
        stack: what is opened is closed with it.
        world: see ``Start``.
        references: of the loaded plan; see ``Start``.
    """
    _check(options)
    check_choice(options, world)
    check_libraries(options.custom_ops)
    rates = None if options.lr is None else schedule.schedule_of(options.lr)
    files, iterations = stack.enter_context(inputs_of(options.inputs, options.steps))
    options = replace(options, inputs=files, steps=None if options.epochs else iterations)
    loaded = _loaded(plan, options, world)
    graph = loaded.graph
    if options.export is not None:
        check_export(options.export, loaded.states, options.forward)
    if rates is not None and schedule.INPUT not in graph.inputs:
        raise UsageError(
            f"--lr: the model has no input {schedule.INPUT!r}", facts=(f"inputs: {', '.join(graph.inputs)}",)
        )
    # The folder is claimed before it is read, so that no other run writes into it in between.
    if options.checkpoint_dir is not None and (world is None or world.rank == 0):
        stack.enter_context(claimed(options.checkpoint_dir, options.notice))
        if not options.resume:
            refuse_filled(options.checkpoint_dir, loaded.model_digest)
    options.progress("reading the inputs")
    checkpoint = _resumed(loaded, options) if options.resume else None
    if rates is None and checkpoint is not None and checkpoint.lr is not None:
        rates = _rates_before(checkpoint.lr, options)
    weights = None if options.weights is None else WeightFile(options.weights, graph)
    judged_by = references(loaded)
    start = Start(
        loaded, options, world, judged_by, rates, options.steps or 1, loss_of(graph), {}, None, checkpoint, weights
    )
    fixed, batches = _data(graph, options.inputs, start.supplied)
    feed = _feed(options, batches, checkpoint)
    if feed is not None:
        stack.enter_context(feed)
    if options.epochs is not None:
        start = replace(start, last=options.epochs * (1 if feed is None else feed.per_epoch))
    if rates is not None:
        rates.check(start.last)
    if checkpoint is not None:
        options = replace(options, seed=checkpoint.seed)
    return replace(start, options=options, fixed=fixed, feed=feed)


def _check(options: RunOptions) -> None:
    """Refuses options that no run can have, whatever the plan; folders that are to be written are tried.

    Raises:
        UsageError: options that contradict each other, a count below 1, or a folder that is not there or not writable.
    """
    if options.steps is not None and options.epochs is not None:
        raise UsageError("--steps and --epochs exclude each other: both say how long to train")
    if options.metric not in (None, "accuracy"):
        raise UsageError(f"--metric {options.metric}: there is no such metric", hint="the only one is accuracy")
    for name, wish in (("--epochs", options.epochs), ("--shuffle", options.shuffle)):
        if wish is not None and options.inputs is None:
            raise UsageError(f"{name}: of which data?", hint="name them with --inputs")
    wishes = {
        "--resume": options.resume or None,
        "--checkpoint-every": options.checkpoint_every,
        "--keep": options.keep,
    }
    option = next((name for name, wish in wishes.items() if wish is not None), None)
    if options.checkpoint_dir is None and option is not None:
        raise UsageError(f"{option}: of which checkpoints?", hint="name their folder with --checkpoint-dir")
    for name, count in ({"--steps": options.steps, "--epochs": options.epochs} | wishes).items():
        if count is not None and count < 1:
            raise UsageError(f"{name} is {count}, and must be at least 1")
    if options.data_dir is not None and options.random_weights:
        raise UsageError("--data-dir and --weights random: are weights to be read, or drawn?")
    if options.data_dir is not None and not options.data_dir.is_dir():
        raise UsageError(f"--data-dir {options.data_dir}: there is no such folder")
    # What is to be written is tried last, after all that the options alone can say.
    if options.checkpoint_dir is not None:
        try_folder(options.checkpoint_dir)
    if options.log is not None:
        try_log(options.log, is_resumed=options.resume)
    if options.export is not None:
        try_export(options.export, options.forward)


def prepared(start: Start, transport: Transport | None, stack: contextlib.ExitStack) -> Prepared:
    """Fills in the state of the first step, and starts the workers; see ``run_with``.

    Args:
        start: with a step to be done.
        transport: see ``run_with``.
        stack: what is started ends with it.
    """
    plan, graph, options = start.plan, start.plan.graph, start.options
    arrays = _first_arrays(start)
    accuracy = accuracy_of(graph) if options.metric is not None else None
    held_out = _held_out(start, stack)
    values = _values(start, arrays)
    _tell(values.drawn, options)
    check_kernels(graph, options.custom_ops, on_gpus=options.device == "cuda")
    verification = None
    if options.verify and start.reports:
        options.progress("preparing the reference")
        judge = Judge(_with_constants(graph, values), start.references, options.custom_ops)
        verification = Verification(judge, plan.source, values.whole, options.custom_ops)
    engine = stack.enter_context(started(plan, options, start.world, transport))
    if engine.on_gpus is not None and (sentence := engine.on_gpus.changes.sentence()):
        options.notice(sentence)
    engine.agree(start.first, options.seed)
    return Prepared(start, values, engine, accuracy, held_out, verification)


def _loaded(plan: str | Path | LoadedPlan, options: RunOptions, world: World | None) -> LoadedPlan:
    if world is None:
        return plan if isinstance(plan, LoadedPlan) else load_plan(Path(plan), options.progress)
    if isinstance(plan, LoadedPlan):
        raise UsageError("--engine mpi: the plan is not in a folder")
    own_worker = agreed(world, Path(plan), options)
    return load_plan(Path(plan), options.progress, own_worker=own_worker)


def _first_arrays(start: Start) -> dict[str, np.ndarray]:
    """What is given to the first step.

    Raises:
        UsageError: inputs are missing.
    """
    arrays = dict(start.fixed)
    if start.feed is not None:
        arrays |= start.feed.batch(start.first)
    if start.options.inputs is not None:
        refuse_missing(start.plan.graph, {*arrays, *start.supplied}, source=_source(start.options))
    # Given arrays come before a checkpoint's, and a state among the inputs is that of step 1. It is taken out only
    # after ``refuse_missing``, which judges what the user's file holds.
    if start.checkpoint is not None:
        arrays = {name: value for name, value in arrays.items() if not start.checkpoint.holds(name)}
    return arrays


def _values(start: Start, arrays: Mapping[str, np.ndarray]) -> Values:
    """The values of the first step: as given, or from the first that has one of checkpoint, weights and model."""
    plan, options = start.plan, start.options
    sources: tuple[TileSource | None, ...] = (start.checkpoint, start.weights)
    return Values(
        plan.graph,
        arrays,
        sources=tuple(source for source in sources if source is not None),
        seed=options.seed,
        data=plan.data if options.data_dir is None else Followed((options.data_dir,)),
        random_weights=options.random_weights,
    )


def _resumed(plan: LoadedPlan, options: RunOptions) -> Checkpoint:
    """The checkpoint to go on from; which later ones are damaged is told."""
    assert options.checkpoint_dir is not None
    checkpoint, passed_over = newest_checkpoint(options.checkpoint_dir, plan.graph, plan.model_digest)
    for reason in passed_over:
        options.notice(f"passed over: {reason}")
    if passed_over:
        options.notice(f"going on from step {checkpoint.step}")
    return checkpoint


def _rates_before(lr: str, options: RunOptions) -> Schedule:
    """The learning rates of the run that a checkpoint is of.

    Raises:
        UsageError: no text says them.
    """
    if not lr:
        raise UsageError("--resume: its rates came from a function or a list", hint="give lr again, or --lr RATE")
    options.notice(f"--lr {lr}, as the checkpoint's run had it")
    return schedule.schedule_of(lr)


def _data(
    graph: Graph, inputs: AnyInputs | None, supplied: Sequence[str]
) -> tuple[dict[str, np.ndarray], Batches | None]:
    """What is the same in every step, and what is gone through in batches; None: nothing is."""
    if inputs is None:
        return {}, None
    if isinstance(inputs, Path):
        path = inputs
        return ({}, BatchFolder(path, graph, supplied)) if path.is_dir() else read_arrays(graph, path, source=str(path))
    assert isinstance(inputs, Mapping), "steps of arrays were written to a folder"
    return read_arrays(graph, inputs, source="inputs")


def _held_out(start: Start, stack: contextlib.ExitStack) -> HeldOut | None:
    """The data to evaluate on, once through as they lie."""
    graph, options, supplied = start.plan.graph, start.options, start.supplied
    path = options.eval_inputs
    if path is None:
        return None
    fixed, batches = _data(graph, path, supplied)
    states = {pair.current for pair in graph.state} & fixed.keys()
    if states:
        raise UsageError(f"{path} holds more than data", facts=tuple(f"{name} is state" for name in sorted(states)))
    how = "the step runs as it trains"
    if TRAINING in graph.inputs:
        fixed[TRAINING], how = np.array(False), "no Dropout drops, and batch normalization takes its running statistics"
    options.notice(f"note: on held-out data {how}")
    feed = stack.enter_context(Feed(OneBatch(fixed) if batches is None else batches))
    if line := feed.batches.note(is_shuffled=False):
        options.notice(f"note: {line}")
    refuse_missing(graph, {*fixed, *feed.batch(1, is_last=True), *supplied}, source=str(path))
    return HeldOut(feed, fixed)


def _feed(options: RunOptions, batches: Batches | None, checkpoint: Checkpoint | None) -> Feed | None:
    """What goes through batches; what the user should know of it is told."""
    if batches is None:
        if options.shuffle is not None:
            raise UsageError(f"--shuffle: {_source(options)} is one batch, the same in every step")
        return None
    feed = Feed(batches, _shuffle(options, batches, checkpoint))
    if line := batches.note(is_shuffled=feed.shuffle is not None):
        options.notice(f"note: {line}")
        steps = options.steps or 1
        if options.epochs is None and steps < feed.per_epoch:
            count = "1 batch" if steps == 1 else f"{steps:,} batches"
            options.notice(f"hint: this run takes {count}; --epochs 1 goes through all of them")
    return feed


def _source(options: RunOptions) -> str:
    """How to name the data."""
    return str(options.inputs) if isinstance(options.inputs, Path) else "inputs"


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


def _tell(drawn: Drawn, options: RunOptions) -> None:
    """Says what a run makes up, in a line each for weights and for data."""
    if drawn.weights:
        amount = "1 tensor" if len(drawn.weights) == 1 else f"{len(drawn.weights):,} tensors"
        options.notice(
            f"no weights in the model: random ones (seed {drawn.seed}): {amount}, {format_bytes(drawn.weight_bytes)}"
        )
    if drawn.inputs:
        names = some(drawn.names_of_inputs, _SHOWN)
        options.notice(f"no --inputs: random data (seed {drawn.seed}) for {names}")


def _with_constants(graph: Graph, values: Values) -> Graph:
    """The graph with values for the constants that it does not hold."""
    constants = {**graph.constants, **{name: values.whole(name) for name in values.absent}}
    return replace(graph, constants=constants) if values.absent else graph


def loss_of(graph: Graph) -> str:
    """The output that is called the loss: the first result that is a floating-point scalar; "" if there is none."""
    next_states = {pair.following for pair in graph.state}
    results = (graph.tensors[name] for name in graph.outputs if name not in next_states)
    return next((tensor.name for tensor in results if tensor.elements == 1 and tensor.dtype.is_float), "")
