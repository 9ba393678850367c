"""``tofu report``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, by_suffix, output_files
from planner.commands.show import chosen_plan, show
from planner.commands.streams import say

_KEYWORDS = {".html": "output", ".svg": "svg", ".json": "trace"}


@click.command(short_help="Write a plan as a page, a picture or a trace.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@output_files(
    "FILE.html: the page, one file, no network; FILE.svg: the strip of the network alone; FILE.json: the "
    "simulated schedule, and what `tofu run --measure` measured, for ui.perfetto.dev; repeatable.  "
    "[default: DIR/report.html]",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@JSON
def report(directory: Path | None, files: tuple[Path, ...], is_opened: bool, json_wanted: bool) -> int:
    """Write the plan in DIR for people to look at: what it costs and why, its tiles, memory, traffic and schedule.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu report plan --open
      tofu report plan -o plan.html -o strip.svg
      tofu report plan -o trace.json
    """
    wanted = by_suffix(files, _KEYWORDS)
    directory = chosen_plan(directory)
    from planner import api
    from planner.artifacts.plan_folder import REPORT

    if is_opened:
        wanted.setdefault("output", directory / REPORT)
    show(lambda line: api.report(directory, progress=line, **wanted), json_wanted, "reading the plan")
    if is_opened and click.launch(wanted["output"].resolve().as_uri()):
        say(f"--open: no browser was found; open {wanted['output']}")
    return EXIT_DONE
