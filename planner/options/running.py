"""Options of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from planner.options import argument, libraries, option, options
from planner.progress import Progress, silent
from planner.records import Above0, Positive
from planner.stop import Interrupt

if TYPE_CHECKING:
    from planner.runtime.run_report import StepReport
    from planner.runtime.values.given_arrays import AnyInputs
    from planner.runtime.values.schedule import Rates


@options
class RunOptions:
    """What ``tofu run`` and ``planner.run`` are asked for."""

    directory: Path | None = argument(kw_only=False, default=None)
    inputs: AnyInputs | None = option(
        "Arrays for all inputs by name, taken batch by batch where they have more rows than one; or a folder of "
        "batches, one per step.  [default: drawn from the seed]",
        default=None,
        metavar="FILE.npz|DIR",
    )
    weights: Path | None = option(
        "State to start from, by name: npz or safetensors; each worker takes its own tiles. random: draw weights that "
        "are external data from the seed, and read no such file.",
        default=None,
        metavar="FILE|random",
    )
    data_dir: Path | None = option(
        "Where the files of a model's external data are.  [default: where they were when it was planned]",
        default=None,
        metavar="DIR",
    )
    random_weights: bool = False
    steps: Positive | None = option(
        "Training steps; with --resume, those of the checkpoint included.  [default: 1]", default=None, metavar="N"
    )
    epochs: Positive | None = option(
        "In place of --steps: go through all of --inputs N times.", default=None, metavar="N"
    )
    shuffle: int | None = option(
        "Take rows, or batches of a folder, in an order drawn from SEED, another one in each epoch.",
        default=None,
        metavar="SEED",
    )
    lr: str | float | Rates | None = option(
        "Learning rate: 0.05, step:BASE,FACTOR,EVERY, linear: or cosine:BASE,END,STEPS[,WARMUP], or "
        "wsd:BASE,END,STABLE,STEPS[,WARMUP], in steps of the run.",
        default=None,
        metavar="RATE|SCHEDULE",
    )
    verify: bool = option("Judge every step against the unpartitioned model.", default=False)
    result: Path | None = None
    checkpoint_dir: Path | None = option("Where checkpoints go.", default=None, metavar="DIR")
    checkpoint_every: Positive | None = option(
        "A checkpoint after every N steps, and after the last.  [default: after the last]", default=None, metavar="N"
    )
    keep: Positive | None = option(
        "How many checkpoints stay; older ones go.  [default: all]", default=None, metavar="N"
    )
    resume: bool = option(
        "Go on from the newest whole checkpoint, which may be of another plan of the same model.", default=False
    )
    export: Path | None = None
    forward: Path | None = option("The forward model that -o FILE.onnx fills.", default=None, metavar="MODEL")
    profile: bool = option(
        "Measure every step: compute, fetch, wait; bytes predicted and moved. Kept in DIR for `tofu report`.",
        default=False,
        flags=("--measure",),
    )
    device: Literal["cpu", "cuda"] = "cpu"
    engine: Literal["local", "processes", "mpi"] = option(
        "What runs the workers: threads of one process, a process each, or the ranks of mpiexec.",
        default="local",
        shows_default=True,
    )
    device_map: Sequence[int] | None = None
    seed: int = option("Of all that is drawn.", default=0, shows_default=True, metavar="N")
    patience: Above0 = option(
        "How long the workers may go on without a finished step.",
        default=300.0,
        shows_default=True,
        metavar="SECONDS",
    )
    metric: Literal["accuracy"] | None = option(
        "Also tell the share of labels that the model gets right.", default=None
    )
    eval_inputs: Path | None = option(
        "Held-out data: loss and metric of the model as it infers, after each epoch and the last step.",
        default=None,
        metavar="FILE.npz|DIR",
    )
    log: Path | None = None
    allow_nan: bool = option("Go on where a loss, or the state of a checkpoint, is not finite.", default=False)
    custom_ops: Sequence[Path] = libraries()
    progress: Progress = silent
    notice: Callable[[str], None] = lambda line: None
    on_step: Callable[[StepReport], None] | None = None
    stop: Interrupt | None = None
    note: int | None = None

    @property
    def wants_results(self) -> bool:
        """Whether the results of the last step are brought together; ranks do that where a file is to hold them."""
        return self.engine != "mpi" or self.result is not None or self.export is not None
