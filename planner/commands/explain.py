"""``tofu explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.progress_line import ProgressLine
from planner.commands.show import chosen_plan, show
from planner.errors import UsageError
from planner.options.plans import ROLES, ExplainOptions

if TYPE_CHECKING:
    from planner.results import Explanation, MemoryResult, SimulationResult


_WHOLE = {"memory": "a worker", "time": "all workers"}
"""Views of a plan as a whole, by what they tell of."""
_VIEWED: dict[str, dict[str, Any]] = {"all": {"every": True}, "bounds": {"bounds": True}}
"""Keywords of ``planner.explain`` by view; the other views are roles."""
_VIEWS = ("all", "bounds", "memory", "time", *ROLES)


@click.command(short_help="Show a plan, and why it is so: in brief, or one tensor or op.")
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.argument("subject", metavar="[TENSOR|OP|TYPE|PATTERN]", required=False)
@click.option(
    "--view",
    type=click.Choice(_VIEWS),
    metavar="VIEW",
    help="all: every tensor and op; bounds: how far products and convolutions are from the least that they can move; "
    "memory: what a worker holds over the steps of its program; time: an iteration simulated step by step; or the "
    f"tensors of a role: {', '.join(ROLES[:-1])}, or {ROLES[-1]} for the backward pass.  [default: in brief]",
)
@derived(ExplainOptions)
@click.option(
    "--worker",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --view memory, of this worker.  [default: that needs most]",
)
@JSON
def explain(
    directory: str | None, subject: str | None, view: str | None, worker: int | None, json_wanted: bool, **options: Any
) -> int:
    """Show what a plan costs and why: what moves most, what is on several workers; or all about one tensor or op.

    Of a tensor: its tiles by worker, who makes it, what each reader needs and what that costs, and what other tilings
    would cost. Of an op the same of its strategy. A PATTERN lists all that match: * stands for any text, ? for one
    character. A TYPE lists the ops of this type. Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu explain plan
      tofu explain plan fc.weight
      tofu explain plan '*.weight' --sort moved
      tofu explain plan Conv
      tofu explain plan --view state --sort size
      tofu explain plan --view memory --worker 3
      tofu explain plan --view time
    """
    # Both arguments may be left out: one word alone that is no path is a tensor or op of the newest plan.
    if directory is not None and subject is None and view not in _WHOLE and not _is_a_path(directory):
        directory, subject = None, directory
    if view in _WHOLE:
        stray = "tensor or op" if subject else "--sort" if options["sort"] else ""
        if stray:
            raise UsageError(f"--view {view} tells of {_WHOLE[view]}, and takes no {stray}", hint="leave it out")
    if options["sort"] and (view == "bounds" or not (view or subject or json_wanted)):
        raise UsageError("--sort: this view is not a list of tensors or ops", hint="write --view all, or leave it out")
    if worker is not None and view != "memory":
        raise UsageError("--worker: of one worker, memory is told", hint="add --view memory")
    folder = chosen_plan(None if directory is None else Path(directory))
    # What is heavy is imported only now that the command line is known to be right.
    from planner import api

    wanted = given(ExplainOptions, options) | _VIEWED.get(view or "", {"role": view} if view else {})

    def work(line: ProgressLine) -> Explanation | MemoryResult | SimulationResult:
        if view == "memory":
            return api.memory(folder, worker=worker, progress=line)
        if view == "time":
            return api.simulate(folder, progress=line)
        return api.explain(folder, subject=subject, **wanted)

    show(work, json_wanted, "reading the plan")
    return EXIT_DONE


def _is_a_path(text: str) -> bool:
    """Whether the only argument of ``explain`` is DIR, or is meant as one that does not exist.

    A tensor's name may hold slashes, so that only ./ and ../ (which a Path forgets), a slash at the front, a model's
    suffix or an existing parent speak for a path.
    """
    path = Path(text)
    if text.startswith(("./", "../")) or path.is_absolute() or path.suffix == ".onnx" or path.exists():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()
