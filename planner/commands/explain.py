"""``tofu explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import chosen_plan, show
from planner.errors import UsageError
from planner.options.plans import ExplainOptions, SimulateOptions


@click.command(short_help="Show a plan, and why it is so: in brief, or one tensor or op.")
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.argument("subject", metavar="[TENSOR|OP|PATTERN]", required=False)
@derived(ExplainOptions)
@click.option(
    "--memory", is_flag=True, help="What a worker holds over the steps of its program, by what it is for, as a drawing."
)
@click.option(
    "--worker",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --memory, of this worker.  [default: that needs most]",
)
@click.option(
    "--time", is_flag=True, help="An iteration simulated step by step, and where the estimate of its time differs."
)
@derived(SimulateOptions)
@JSON
def explain(
    directory: str | None,
    subject: str | None,
    memory: bool,
    worker: int | None,
    time: bool,
    json_wanted: bool,
    **options: Any,
) -> int:
    """Show what a plan costs and why: what moves most, what is on several workers; or all about one tensor or op.

    Of a tensor: its tiles by worker, who makes it, what each reader needs and what that costs, and what other tilings
    would cost. Of an op the same of its strategy. A PATTERN lists all that match: * stands for any text, ? for one
    character. Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu explain plan
      tofu explain plan fc.weight
      tofu explain plan fc.weight --runners-up 6
      tofu explain plan '*.weight' --sort moved
      tofu explain plan --role state --sort size
      tofu explain plan --op Conv
      tofu explain plan --all
      tofu explain plan --bounds
      tofu explain plan --memory
      tofu explain plan --memory --worker 3
      tofu explain plan --time
      tofu explain plan --time --topology cluster.yaml
    """
    # Both arguments may be left out: one word alone that is no path is a tensor or op of the newest plan.
    if directory is not None and subject is None and not (memory or time) and not _is_a_path(directory):
        directory, subject = None, directory
    folder = None if directory is None else Path(directory)
    if memory or time:
        option, unit = ("--memory", "a worker") if memory else ("--time", "all workers")
        named = {f"--{name}": options[name] for name in ("role", "op", "sort", "bounds")}
        beside = {"tensor or op": subject, "--all": options["every"], **named, "--time": memory and time}
        if refused := [name for name, value in beside.items() if value]:
            raise UsageError(f"{option} tells of {unit}, and takes no {refused[0]}", hint="ask for one after the other")
    if worker is not None and not memory:
        raise UsageError("--worker: of one worker, memory is told", hint="add --memory")
    if not time and (early := "--topology" if options["topology"] else "--profile" if options["profile"] else ""):
        raise UsageError(f"{early}: times are told with it", hint="add --time")
    folder = chosen_plan(folder)
    # What is heavy is imported only now that the command line is known to be right.
    from planner import api

    if memory:
        show(
            lambda line: api.memory(folder, worker=worker, opdefs=options["opdefs"], progress=line),
            json_wanted,
            "reading the plan",
        )
        return EXIT_DONE
    if time:
        show(
            lambda line: api.simulate(folder, progress=line, **given(SimulateOptions, options)),
            json_wanted,
            "reading the plan",
        )
        return EXIT_DONE
    show(
        lambda _line: api.explain(folder, subject=subject, opdefs=options["opdefs"], **given(ExplainOptions, options)),
        json_wanted,
    )
    return EXIT_DONE


def _is_a_path(text: str) -> bool:
    """Whether the only argument of ``explain`` is DIR, or is meant as one that does not exist.

    A tensor's name may hold slashes, so that only ./ and ../ (which a Path forgets), a slash at the front or an
    existing parent speak for a path.
    """
    path = Path(text)
    if text.startswith(("./", "../")) or path.is_absolute() or path.exists():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()
