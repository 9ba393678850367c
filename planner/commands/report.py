"""``tofu report``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, OPDEFS, PLANNED_FOR, PROFILE
from planner.commands.show import show


@click.command(short_help="Write a plan as a page, a picture or a trace.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE.html", help="The page: one file, no network."
)
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE.svg", help="The strip of the network alone.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="The simulated schedule, and what `tofu run --profile` measured, for ui.perfetto.dev.",
)
@PLANNED_FOR
@PROFILE
@OPDEFS
@JSON
def report(
    directory: Path | None,
    output: Path | None,
    svg: Path | None,
    trace: Path | None,
    topology: str | None,
    profile: Path | None,
    opdefs: Path | None,
    json_wanted: bool,
) -> int:
    """Write the plan in DIR for people to look at: what it costs and why, its tiles, memory, traffic and schedule.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu report plan -o plan.html
      tofu report plan -o plan.html --svg strip.svg
      tofu report plan --trace trace.json
      tofu report plan --trace trace.json --topology cluster.yaml --profile device.json
    """
    from planner.artifacts.place import require_plan
    from planner.report.wanted import wanted_files

    wanted_files(output, svg, trace)
    require_plan(directory)
    from planner import api
    from planner.report import tables

    show(
        lambda line: api.report(
            directory,
            output=output,
            svg=svg,
            trace=trace,
            topology=topology,
            profile=profile,
            opdefs=opdefs,
            progress=line,
        ),
        tables.report,
        json_wanted,
        "reading the plan",
    )
    return EXIT_DONE
