"""``tofu run``."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NO
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import JSON, by_suffix, output_files
from planner.commands.progress_line import ProgressLine, can_erase
from planner.commands.show import show
from planner.commands.streams import are_one, say
from planner.commands.termination import interrupts_end
from planner.errors import UsageError
from planner.options.running import RunOptions
from planner.stop import Interrupt

if TYPE_CHECKING:
    from planner.runtime.run_report import RunResult, StepReport

_INTERRUPTED = "interrupted: this step is finished first; Ctrl-C once more ends at once"


_KEYWORDS = {".npz": "result", ".safetensors": "export", ".onnx": "export", ".csv": "log", ".jsonl": "log"}
_GROUPS = {
    "Steps": ("--steps", "--epochs", "--lr", "--verify"),
    "Data and weights": ("--inputs", "--shuffle", "--weights"),
    "Checkpoints": ("--checkpoint-dir", "--checkpoint-every", "--resume"),
    "Where it runs": ("--device",),
    "Output": ("-o", "--measure", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Run a plan, and verify it.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@derived(RunOptions)
@click.option(
    "--device",
    metavar="cpu|cuda[:N,N,...]",
    default="cpu",
    show_default=True,
    help="Where to compute. cuda:0,0,1,1 says the GPU of each worker; several may share one.",
)
@output_files(
    "FILE.npz: outputs and next state; FILE.safetensors: whole weights; FILE.onnx: the model of --forward with "
    "them; FILE.csv or FILE.jsonl: a line for each step; repeatable.",
)
@click.option(
    "--log-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print a line on stderr every N steps.  [default: every step; on a terminal, one line in its place]",
)
@JSON
def run(
    directory: Path | None,
    device: str,
    files: tuple[Path, ...],
    log_every: int | None,
    json_wanted: bool,
    **options: Any,
) -> int:
    """Run the plan in DIR, one worker per GPU of the plan; exits with 1 if a verification differs or a loss is nan.

    Without DIR, the newest plan in the working directory. Ctrl-C finishes the step that is under way and writes a
    checkpoint of it if there is --checkpoint-dir; a second one ends the run at once.

    \b
    Examples:
      tofu run plan --steps 3 --verify
      tofu run plan --inputs batch.npz -o out.npz
      tofu run plan --inputs data.npz --epochs 10 --shuffle 1 -o log.csv
      tofu run plan --inputs batches/ --steps 1000 --lr cosine:0.1,0.001,1000 --checkpoint-dir ck --checkpoint-every 100
      tofu run plan --inputs batches/ --steps 1000 --checkpoint-dir ck --resume -o weights.safetensors
    """
    wanted = given(RunOptions, options) | _device(device) | by_suffix(files, _KEYWORDS)
    if options["weights"] == Path("random"):
        wanted |= {"weights": None, "random_weights": True}
    # Before all heavy imports: the process forks here, and a fork takes along no threads that a library has started.
    note = None
    if options["engine"] == "mpi":
        from planner.commands.watch import watched

        note = watched()
    else:  # ranks tell each other which of them lacks the plan
        from planner.artifacts.place import require_plan

        require_plan(directory)
    from planner.printing import tables
    from planner.printing.iteration_line import iteration_line

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
                progress=line,
                notice=line.note,
                on_step=tell,
                stop=stop,
                note=note,
                **wanted,
            )

    as_table = partial(tables.print_run, is_told=True) if is_told else None
    outcome = show(work, json_wanted, "reading the plan", as_table)
    if outcome.is_interrupted:
        say(f"interrupted after step {outcome.first_step + outcome.steps - 1}; {_saved(outcome)}")
        return EXIT_INTERRUPTED
    return EXIT_NO if outcome.verified is False else EXIT_DONE


def _saved(outcome: RunResult) -> str:
    """What an interrupted run leaves."""
    if outcome.checkpoint is None:
        return "nothing is saved: without --checkpoint-dir there is no place for it"
    return f"saved: {outcome.checkpoint}; --resume goes on from there"


def _device(text: str) -> dict[str, Any]:
    """The device and the GPUs of workers, as keywords of ``planner.run``."""
    match = re.fullmatch("(cpu|cuda)|cuda:([0-9]+(?:,[0-9]+)*)", text)
    if match is None:
        hint = "write cpu, cuda, or cuda:0,0,1,1 for four workers on two GPUs"
        raise UsageError(f"--device: {text!r} is no device", hint=hint)
    if match[2] is None:
        return {"device": text}
    return {"device": "cuda", "device_map": tuple(map(int, match[2].split(",")))}
