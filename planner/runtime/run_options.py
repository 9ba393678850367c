"""What a run is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from planner.errors import UsageError
from planner.progress import Progress, silent
from planner.runtime.engine.mpi.world import World
from planner.runtime.engine.process.patience import PATIENCE_SECONDS
from planner.runtime.judge.reference import ForeignReference
from planner.runtime.run_log import try_log
from planner.runtime.run_report import StepReport
from planner.runtime.values.export import try_export
from planner.runtime.values.schedule import Schedule
from planner.runtime.values.state import Drawn
from planner.stop import Interrupt
from planner.whole import try_folder


@dataclass(frozen=True)
class RunOptions:
    """How a plan is run."""

    steps: int = 1
    """The last step to be done; at least 1. A run that is resumed goes on from the step of its checkpoint."""
    inputs: str | Path | Mapping[str, np.ndarray] | None = None
    """An npz file or arrays (see ``state.check_inputs``): the same data in every step, or batch by batch if they have
    more rows than a batch; or a directory of batches, one for each step (see ``feed.py``). All that is data and has no
    value in the model must be there; None: it is drawn."""
    epochs: int | None = None
    """How often to go through the batches of ``inputs``; it then says ``steps``."""
    shuffle: int | None = None
    """The seed of the order in which rows or batches are taken, another one in each epoch; None: as they lie, or as
    before where a run is resumed."""
    metric: str | None = None
    """``accuracy``: count how many labels the model gets right in every step; None: nothing."""
    eval_inputs: Path | None = None
    """Held-out data, in a form of ``inputs``: what the loss is on them, after each epoch and after the last step."""
    weights: Path | None = None
    """State to start from, and constants that the model does not hold: npz or safetensors."""
    data_dir: Path | None = None
    """Where the files of the model's external data are; None: where the plan says."""
    random_weights: bool = False
    """Draw weights that are external data, and read no such file."""
    schedule: Schedule | None = None
    """Of the learning rate."""
    verify: bool = False
    """Also run the whole model, and compare."""
    seed: int = 0
    """Of inputs that nobody gives (see ``samples.py``)."""
    loss: str | None = None
    """The output to be called the loss; else the first result that is a floating-point scalar."""
    checkpoint_dir: Path | None = None
    """Where checkpoints go; None for none."""
    checkpoint_every: int | None = None
    """A checkpoint after every so many steps, and after the last; None: after the last."""
    keep: int | None = None
    """How many checkpoints of this model stay; None: all."""
    resume: bool = False
    """Go on from the newest checkpoint in ``checkpoint_dir`` that is whole."""
    export: Path | None = None
    """Where to write whole weights after the last step: ``.safetensors`` or ``.npz``, or ``.onnx`` with ``forward``."""
    forward: Path | None = None
    """The forward model that gets the weights."""
    profile: bool = False
    """Measure every step of every worker."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    engine: str = "local"
    """What runs the workers: ``local``, threads of a process; ``processes``, a process each; ``mpi``, a rank each."""
    world: World | None = None
    """With ``mpi``: the ranks."""
    note: int | None = None
    """With ``mpi``: a file in which the rank notes where it is (``message_engine.py``)."""
    wants_results: bool = True
    """With ``mpi``: the last step's results are brought together on rank 0."""
    device_map: tuple[int, ...] | None = None
    """For ``cuda``, the GPU of each worker; several may share one."""
    patience_seconds: float = PATIENCE_SECONDS
    """How long the workers may go on without a finished step."""
    libraries: tuple[Path, ...] = ()
    """Of custom operators, for ONNX Runtime."""
    references: Mapping[tuple[str, str], ForeignReference] = field(default_factory=dict)
    """By (domain, op type), operators that ONNX does not define in NumPy, to verify by."""
    allow_nan: bool = False
    """Go on where a loss, or a state that is to be kept, is not finite."""
    log: Path | None = None
    """A file that gets a line for each step (see ``run_log.py``)."""
    stop: Interrupt | None = None
    """Asked after each step whether it is to be the last; None: nobody asks for that."""
    progress: Callable[[StepReport], None] | None = None
    """Called after each step."""
    doing: Progress = silent
    """Told what is being done."""
    told: Callable[[Drawn], None] | None = None
    """Called before the first step with what is made up."""
    notice: Callable[[str], None] = lambda line: None
    """Told what the user should know before the run."""

    @property
    def reports(self) -> bool:
        """True if this process tells of the run: of several ranks, rank 0."""
        return self.world is None or self.world.rank == 0


def check_options(options: RunOptions) -> None:
    """Refuses options that no run can have, whatever the plan; folders that are to be written are tried.

    Raises:
        UsageError: options that contradict each other, a count below 1, or a folder that is not there or not writable.
    """
    if options.steps < 1:
        raise UsageError(f"--steps is {options.steps}, and must be at least 1")
    if options.metric not in (None, "accuracy"):
        raise UsageError(f"--metric {options.metric}: there is no such metric", hint="the only one is accuracy")
    if options.epochs is not None and options.epochs < 1:
        raise UsageError(f"--epochs is {options.epochs}, and must be at least 1")
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
    if options.checkpoint_every is not None and options.checkpoint_every < 1:
        raise UsageError(f"--checkpoint-every is {options.checkpoint_every}, and must be at least 1")
    if options.data_dir is not None and options.random_weights:
        raise UsageError("--data-dir and --random-weights: are weights to be read, or drawn?")
    if options.data_dir is not None and not options.data_dir.is_dir():
        raise UsageError(f"--data-dir {options.data_dir}: there is no such folder")
    if options.keep is not None and options.keep < 1:
        raise UsageError(f"--keep is {options.keep}, and must be at least 1")
    # What is to be written is tried last, after all that the options alone can say.
    if options.checkpoint_dir is not None:
        try_folder(options.checkpoint_dir)
    if options.log is not None:
        try_log(options.log, is_resumed=options.resume)
    if options.export is not None:
        try_export(options.export, options.forward)
