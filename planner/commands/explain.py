"""``tofu explain``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import (
    JSON,
    OPDEFS,
)
from planner.commands.show import show


@click.command(short_help="Show a plan: tilings, strategies, bytes.")
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.argument("subject", metavar="[TENSOR|OP]", required=False)
@click.option("--bounds", is_flag=True, help="How far each product and convolution is from the least that it can move.")
@OPDEFS
@JSON
def explain(directory: str | None, subject: str | None, bounds: bool, opdefs: Path | None, json_wanted: bool) -> int:
    """Show the tiling of every tensor of a plan and the strategy of every op, or of one of them.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu explain plan
      tofu explain plan fc.weight
      tofu explain plan --bounds
    """
    if directory is not None and subject is None and not _is_a_path(directory):
        directory, subject = None, directory
    folder = None if directory is None else Path(directory)
    from planner import api
    from planner.report import as_json, tables

    show(
        lambda _line: api.explain(folder, subject=subject, bounds=bounds, opdefs=opdefs),
        as_json.explain,
        tables.explain,
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
