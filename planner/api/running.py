"""``tofu run``: a plan executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from planner.api.arguments import takes
from planner.artifacts.measured import MeasuredRun, MeasuredStep
from planner.artifacts.place import newest_folder, newest_note
from planner.artifacts.plan_folder import lacks_models
from planner.descriptions import how_to_give
from planner.errors import UsageError
from planner.installed import require_runtime, runtime_notes
from planner.opdefs import load_file, remembered
from planner.options.running import RunOptions
from planner.runtime.chosen_engine import joined_ranks
from planner.runtime.measure.profile import Profile
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.prepare import References
from planner.runtime.run import run_with
from planner.runtime.run_report import RunResult, StepReport
from planner.runtime.values.given_arrays import AnyInputs
from planner.runtime.values.results import write_arrays
from planner.runtime.values.schedule import Rates
from planner.tdl.builder import ReferenceFunction
from planner.whole import try_file

_SHOWN = 8
"""Names of inputs in a line."""


@takes(RunOptions, AnyInputs=AnyInputs, StepReport=StepReport, Rates=Rates)
def run(options: RunOptions) -> RunResult:  # noqa: D417 - those are the fields of the options
    """Runs a plan.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        inputs: arrays for the inputs (npz, or a mapping from names to arrays), gone through in batches if they have
            more rows than a batch; or a directory of batches, one per step, or mappings, one after the other (a
            generator's are taken for ``steps`` steps, or all); all data that has no value in the model. None: data
            is drawn.
        weights: state to start from (npz or safetensors).
        data_dir: the folder of the model's external data; None: where the plan says.
        random_weights: draw weights that are external data, and read no such file.
        steps: how many iterations, those before a checkpoint included; None: 1, or as ``epochs`` says.
        epochs: how often to go through all batches of ``inputs``.
        shuffle: the seed of the order in which rows or batches are taken, another one in each epoch; None: as they lie.
        lr: a learning rate, a schedule as text (``planner.runtime.values.schedule``), a function from the number of
            the update (from 1) to its rate, or an array of rates. A run that is resumed
            without it goes on with those of its checkpoint; a function or an array has to be given again.
        verify: judge every step against the unpartitioned model.
        result: where to write outputs and next state (npz).
        checkpoint_dir: where checkpoints go.
        checkpoint_every: a checkpoint after so many steps, and after the last.
        keep: how many checkpoints of this model stay; None: all.
        resume: go on from the newest checkpoint that is whole.
        export: where to write whole weights: ``.safetensors`` or ``.npz``, or ``.onnx`` with ``forward``.
        forward: the forward model that gets the weights.
        profile: measure every step of every worker.
        device: ``cpu`` or ``cuda``.
        engine: ``local``, ``processes``, or ``mpi``, where every rank calls this and rank 0 has the whole outcome.
        device_map: for ``cuda``, the GPU of each worker.
        seed: of all that is drawn.
        patience: seconds that the workers may go on without a finished step.
        metric: ``accuracy``: the share of a step's labels that the model gets right, before its update.
        eval_inputs: held-out data, a file or a folder as for ``inputs``, of which loss and metric of the model as it
            infers are told after each epoch and after the last step.
        log: a file that gets a line for each step, ``.jsonl`` or ``.csv``.
        allow_nan: go on where a loss or a state is not finite.
        custom_ops: libraries of custom operators for ONNX Runtime.
        progress: told what is being done.
        notice: told, before the first step, what the user should know: that ONNX Runtime is another one, what is drawn
            because nothing gives it, which checkpoints were passed over.
        on_step: called with what is known of each step.
        stop: asked after each step whether it is to be the last: that one is finished, its checkpoint written, and the
            result says so; the files of ``result`` and ``export`` are not written then.
        note: with ``mpi``, a file in which a rank notes where it is, for whoever watches it.

    Raises:
        TofuError: the plan or the inputs cannot be used, weights cannot be read, or a worker failed. A verification
            that differs raises nothing: ``verified`` of the result says it.
        DivergedError: a loss, or a state of a checkpoint, is not finite; ``allow_nan`` allows it.

    Example:
        ::

            result = planner.run("plan", steps=3, verify=True)
            print(result.losses, result.moved_bytes, result.verified)
    """
    result, engine, notice = options.result, options.engine, options.notice
    with joined_ranks(engine, options.patience, notice) as world:
        require_runtime()
        for line in runtime_notes():
            notice(line)
        options.progress("reading the plan")
        where = options.directory if options.directory is not None else newest_folder(Path())
        reports = world is None or world.rank == 0
        if options.directory is None and reports:
            notice(newest_note(where))
        if lacks_models(where):
            _build(where, options)
        if result is not None:
            try_file(result)
            if result.suffix != ".npz":
                raise UsageError(f"{result}: results are written as npz", hint=f"call it {result.stem}.npz")
        references: References = partial(_references, options.notice) if options.verify else lambda plan: {}
        outcome = run_with(where, options, world=world, references=references)
        if result is not None and not outcome.is_interrupted and reports:
            write_arrays(result, outcome.results)
        if outcome.profile is not None:
            try:
                path = _measured(outcome.profile, engine, options.device).write(where)
                notice(f"note: what was measured is kept in {path}, for `tofu report`")
            except UsageError as error:  # the run is done, and its result is worth more
                notice(f"note: what was measured is not kept: {error.what}")
        return outcome


def _build(where: Path, options: RunOptions) -> None:
    """Makes the models of a plan that has none.

    Raises:
        TofuError: they cannot be made or written, or by several processes at once.
    """
    if options.engine == "mpi":
        raise UsageError(f"{where} has no models yet", hint=f"make them before ranks meet: tofu build {where}")
    # What plans is not needed where models are there.
    from planner.api.building import build

    options.notice(f"note: {where} has no models yet: they are made now, as `tofu build` does")
    build(where, progress=options.progress)


def _references(notice: Callable[[str], None], plan: LoadedPlan) -> Mapping[tuple[str, str], ReferenceFunction]:
    """The operators in NumPy of the plan's own descriptions; none, as ``notice`` says, if their file is not at hand."""
    made_with = plan.described_by
    file = None if made_with is None else remembered(made_with.sha256)
    if made_with is not None and file is None:
        notice(f"note: {made_with.name} is not at hand: no reference of its operators judges; {how_to_give(made_with)}")
    return {} if file is None else load_file(file).references


def _measured(profile: Profile, engine: str, device: str) -> MeasuredRun:
    """What a plan's folder keeps of a profile."""
    steps: list[list[MeasuredStep]] = [[] for _ in profile.workers]
    for step in profile.steps:
        measured = MeasuredStep(step.step, step.is_fetch, step.wait_seconds, step.seconds, step.moved_bytes)
        steps[step.worker].append(measured)
    by_worker = tuple(tuple(mine) for mine in steps)
    return MeasuredRun(engine, device, profile.iterations, profile.iteration_seconds, by_worker)
