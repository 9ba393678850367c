"""``tofu report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import chosen_plan, show
from planner.features.report.options import ReportOptions


@click.command(short_help="Write a plan as a page, a picture or a trace.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@derived(ReportOptions)
@JSON
def report(directory: Path | None, json_wanted: bool, **options: Any) -> int:
    """Write the plan in DIR for people to look at: what it costs and why, its tiles, memory, traffic and schedule.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu report plan -o plan.html
      tofu report plan -o plan.html --svg strip.svg
      tofu report plan --trace trace.json
      tofu report plan --trace trace.json --topology cluster.yaml --profile device.json
    """
    from planner.features.report.wanted import wanted_files

    wanted_files(options["output"], options["svg"], options["trace"])
    directory = chosen_plan(directory)
    from planner import api

    show(
        lambda line: api.report(directory, progress=line, **given(ReportOptions, options)),
        json_wanted,
        "reading the plan",
    )
    return EXIT_DONE
