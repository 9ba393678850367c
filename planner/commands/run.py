"""``tofu run``."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from planner.commands.exit_codes import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NO
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import (
    CUSTOM_OPS,
    JSON,
    POSITIVE,
)
from planner.commands.progress_line import ProgressLine, can_erase
from planner.commands.show import show
from planner.commands.streams import are_one, say
from planner.commands.termination import interrupts_end
from planner.errors import UsageError
from planner.stop import Interrupt

if TYPE_CHECKING:
    from planner.runtime.run_report import RunResult, StepReport

_INTERRUPTED = "interrupted: this step is finished first; Ctrl-C once more ends at once"


_GROUPS = {
    "Steps": ("--steps", "--epochs", "--lr", "--seed", "--allow-nan"),
    "Data": ("--inputs", "--shuffle", "--eval-inputs", "--metric"),
    "Weights to start from": ("--weights", "--data-dir", "--random-weights"),
    "Judging": ("--verify", "--opdefs"),
    "Checkpoints": ("--checkpoint-dir", "--checkpoint-every", "--keep", "--resume"),
    "Where it runs": ("--engine", "--device", "--map", "--patience", "--custom-ops"),
    "Output": ("--result", "--export", "--forward", "--log", "--log-every", "--profile", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Run a plan, and verify it.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz|DIR",
    help="Arrays for all inputs by name, taken batch by batch where they have more rows than one; or a folder of "
    "batches, one per step.  [default: drawn from the seed]",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="State to start from, by name: npz or safetensors; each worker takes its own tiles.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the files of a model's external data are.  [default: where they were when it was planned]",
)
@click.option(
    "--random-weights", is_flag=True, help="Draw weights that are external data from the seed, and read no such file."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Training steps; with --resume, those of the checkpoint included.  [default: 1]",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), metavar="N", help="In place of --steps: go through all of --inputs N times."
)
@click.option(
    "--shuffle",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Take rows, or batches of a folder, in an order drawn from SEED, another one in each epoch.",
)
@click.option(
    "--lr",
    metavar="RATE|SCHEDULE",
    help="Learning rate: 0.05, step:BASE,FACTOR,EVERY or cosine:BASE,END,STEPS[,WARMUP].",
)
@click.option("--verify", is_flag=True, help="Judge every step against the unpartitioned model.")
@click.option(
    "--result", type=click.Path(path_type=Path), metavar="FILE.npz", help="Where to write outputs and next state."
)
@click.option(
    "--metric", type=click.Choice(["accuracy"]), help="Also tell the share of labels that the model gets right."
)
@click.option(
    "--eval-inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz|DIR",
    help="Held-out data: their loss and metric after each epoch and after the last step, as in training.",
)
@click.option(
    "--log", type=click.Path(path_type=Path), metavar="FILE", help="A line for each step, to a .jsonl or .csv file."
)
@click.option(
    "--log-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print a line on stderr every N steps.  [default: every step; on a terminal, one line in its place]",
)
@click.option("--allow-nan", is_flag=True, help="Go on where a loss, or the state of a checkpoint, is not finite.")
@click.option("--checkpoint-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where checkpoints go.")
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="A checkpoint after every N steps, and after the last.  [default: after the last]",
)
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="How many checkpoints stay; older ones go.  [default: all]"
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from the newest whole checkpoint, which may be of another plan of the same model.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write whole weights: .safetensors or .npz, or .onnx with --forward.",
)
@click.option(
    "--forward", type=click.Path(path_type=Path), metavar="MODEL", help="The forward model that --export fills."
)
@click.option(
    "--profile",
    is_flag=True,
    help="Measure every step: compute, fetch, wait; bytes predicted and moved. Kept in DIR for `tofu report`.",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where to compute."
)
@click.option(
    "--engine",
    type=click.Choice(["local", "processes", "mpi"]),
    default="local",
    show_default=True,
    help="What runs the workers: threads of one process, a process each, or the ranks of mpiexec.",
)
@click.option(
    "--map",
    "device_map",
    metavar="N,N,...",
    help="With --device cuda, the GPU of each worker; several may share one.  [default: in turn]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Of all that is drawn."
)
@click.option(
    "--patience",
    type=POSITIVE,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the workers may go on without a finished step.",
)
@CUSTOM_OPS
@click.option(
    "--opdefs",
    type=click.Path(path_type=Path),
    metavar="FILE.py",
    help="With --verify: a file of descriptions that has your operators in NumPy, to judge by.",
)
@JSON
def run(
    directory: Path | None,
    inputs: Path | None,
    weights: Path | None,
    data_dir: Path | None,
    random_weights: bool,
    steps: int | None,
    epochs: int | None,
    shuffle: int | None,
    lr: str | None,
    verify: bool,
    result: Path | None,
    checkpoint_dir: Path | None,
    checkpoint_every: int | None,
    keep: int | None,
    resume: bool,
    export: Path | None,
    forward: Path | None,
    profile: bool,
    device: Literal["cpu", "cuda"],
    engine: Literal["local", "processes", "mpi"],
    device_map: str | None,
    seed: int,
    patience: float,
    metric: Literal["accuracy"] | None,
    eval_inputs: Path | None,
    log: Path | None,
    log_every: int | None,
    allow_nan: bool,
    custom_ops: tuple[Path, ...],
    opdefs: Path | None,
    json_wanted: bool,
) -> int:
    """Run the plan in DIR, one worker per GPU of the plan; exits with 1 if a verification differs or a loss is nan.

    Without DIR, the newest plan in the working directory. Ctrl-C finishes the step that is under way and writes a
    checkpoint of it if there is --checkpoint-dir; a second one ends the run at once.

    \b
    Examples:
      tofu run plan --steps 3 --verify
      tofu run plan --inputs batch.npz --result out.npz
      tofu run plan --inputs batch.npz --data-dir /models/llama
      tofu run plan --inputs data.npz --epochs 10 --shuffle 1 --log log.csv
      tofu run plan --inputs batches/ --steps 1000 --lr cosine:0.1,0.001,1000 --checkpoint-dir ck --checkpoint-every 100
      tofu run plan --inputs batches/ --steps 1000 --checkpoint-dir ck --resume --export weights.safetensors
    """
    # Before all heavy imports: the process forks here, and a fork takes along no threads that a library has started.
    note = None
    if engine == "mpi":
        from planner.commands.watch import watched

        note = watched()
    else:  # ranks tell each other which of them lacks the plan
        from planner.artifacts.place import require_plan

        require_plan(directory)
    from planner.report import tables
    from planner.report.iteration_line import iteration_line

    is_each_told = log_every == 1 or (log_every is None and not can_erase(sys.stderr))
    is_told = is_each_told and are_one(sys.stdout, sys.stderr)

    def work(line: ProgressLine) -> RunResult:
        from planner import api

        every = log_every if log_every is not None or line.is_in_place else 1

        def tell(report: StepReport) -> None:
            is_due = every is not None and (report.step % every == 0 or report.step == report.steps)
            # An evaluation is told in a step that is not due, too: no later line has its numbers.
            if is_due or report.evaluation is not None:
                line.note(iteration_line(report))

        stop = Interrupt()
        with interrupts_end(stop, _INTERRUPTED):
            return api.run(
                directory,
                inputs=inputs,
                weights=weights,
                data_dir=data_dir,
                random_weights=random_weights,
                steps=steps,
                epochs=epochs,
                shuffle=shuffle,
                lr=lr,
                verify=verify,
                result=result,
                checkpoint_dir=checkpoint_dir,
                checkpoint_every=checkpoint_every,
                keep=keep,
                resume=resume,
                export=export,
                forward=forward,
                profile=profile,
                device=device,
                engine=engine,
                device_map=None if device_map is None else _device_map(device_map),
                seed=seed,
                patience=patience,
                metric=metric,
                eval_inputs=eval_inputs,
                log=log,
                allow_nan=allow_nan,
                custom_ops=custom_ops,
                opdefs=opdefs,
                progress=line,
                notice=line.note,
                on_step=tell,
                stop=stop,
                note=note,
            )

    as_table = partial(tables.run, is_told=True) if is_told else tables.run
    outcome = show(work, as_table, json_wanted, "reading the plan")
    if outcome.is_interrupted:
        say(f"interrupted after step {outcome.first_step + outcome.steps - 1}; {_saved(outcome)}")
        return EXIT_INTERRUPTED
    return EXIT_NO if outcome.verified is False else EXIT_DONE


def _saved(outcome: RunResult) -> str:
    """What an interrupted run leaves."""
    if outcome.checkpoint is None:
        return "nothing is saved: without --checkpoint-dir there is no place for it"
    return f"saved: {outcome.checkpoint}; --resume goes on from there"


def _device_map(text: str) -> tuple[int, ...]:
    if not re.fullmatch("[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--map {text!r} is no list of GPUs", hint="write --map 0,0,1,1 for four workers on two GPUs")
    return tuple(int(part) for part in text.split(","))
