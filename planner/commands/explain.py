"""``tofu explain``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import (
    JSON,
    OPDEFS,
    PLANNED_FOR,
    PROFILE,
)
from planner.commands.show import show
from planner.errors import UsageError

ROLES = ("state", "next-state", "data", "result", "activation", "held")


@click.command(short_help="Show a plan, and why it is so: in brief, or one tensor or op.")
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.argument("subject", metavar="[TENSOR|OP|PATTERN]", required=False)
@click.option("--all", "every", is_flag=True, help="Every tensor and every op, as wide tables.")
@click.option("--role", type=click.Choice(ROLES), help="The tensors of this role, or those held for the backward pass.")
@click.option("--op", metavar="TYPE", help="The ops of this type, such as Conv or 'Reduce*'.")
@click.option(
    "--sort", type=click.Choice(["moved", "size", "name"]), help="In what order.  [default: as they are in the model]"
)
@click.option(
    "--runners-up",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Of one tensor or op, how many other choices to solve for.",
)
@click.option("--bounds", is_flag=True, help="How far each product and convolution is from the least that it can move.")
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
@PLANNED_FOR
@PROFILE
@OPDEFS
@JSON
def explain(
    directory: str | None,
    subject: str | None,
    every: bool,
    role: str | None,
    op: str | None,
    sort: Literal["moved", "size", "name"] | None,
    runners_up: int,
    bounds: bool,
    memory: bool,
    worker: int | None,
    time: bool,
    topology: str | None,
    profile: Path | None,
    opdefs: Path | None,
    json_wanted: bool,
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
        rows = {
            "tensor or op": subject,
            "--all": every,
            "--role": role,
            "--op": op,
            "--sort": sort,
            "--bounds": bounds,
            **({"--time": time} if memory else {}),
        }
        _refuse_beside("--memory" if memory else "--time", [name for name, value in rows.items() if value])
    if worker is not None and not memory:
        raise UsageError("--worker: of one worker, memory is told", hint="add --memory")
    if not time and (given := "--topology" if topology else "--profile" if profile else ""):
        raise UsageError(f"{given}: times are told with it", hint="add --time")
    from planner.artifacts.place import require_plan

    require_plan(folder)
    from planner import api
    from planner.report import occupancy, simulated, tables

    if memory:
        show(
            lambda line: api.memory(folder, worker=worker, opdefs=opdefs, progress=line),
            occupancy.print_memory,
            json_wanted,
            "reading the plan",
        )
        return EXIT_DONE
    if time:
        show(
            lambda line: api.simulate(folder, topology=topology, profile=profile, opdefs=opdefs, progress=line),
            simulated.print_simulation,
            json_wanted,
            "reading the plan",
        )
        return EXIT_DONE
    show(
        lambda _line: api.explain(
            folder,
            subject=subject,
            bounds=bounds,
            role=role,
            op=op,
            sort=sort,
            every=every,
            runners_up=runners_up,
            opdefs=opdefs,
        ),
        tables.explain,
        json_wanted,
    )
    return EXIT_DONE


def _refuse_beside(option: str, given: Sequence[str]) -> None:
    if given:
        what = {"--memory": "a worker", "--time": "all workers"}[option]
        raise UsageError(f"{option} tells of {what}, and takes no {given[0]}", hint="ask for one after the other")


def _is_a_path(text: str) -> bool:
    """Whether the only argument of ``explain`` is DIR, or is meant as one that does not exist.

    A tensor's name may hold slashes, so that only ./ and ../ (which a Path forgets), a slash at the front or an
    existing parent speak for a path.
    """
    path = Path(text)
    if text.startswith(("./", "../")) or path.is_absolute() or path.exists():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()
