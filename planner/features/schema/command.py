"""``tofu schema``."""

from __future__ import annotations

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.errors import UsageError, did_you_mean
from planner.feature import FOLDER

_FOLDERS = (FOLDER.parent / "schemas", *FOLDER.glob("*/schemas"))


@click.command(short_help="The JSON schema of what --json prints, or of a plan's file.")
@click.argument("name", required=False)
def schema(name: str | None) -> int:
    """Print the JSON schema (draft 2020-12) of what a command prints with --json, or of a file in a plan's folder.

    Without NAME, list the schemas. docs/trust.md says how they are versioned.

    \b
    Examples:
      tofu schema
      tofu schema plan
      tofu schema plan-file > plan.schema.json
    """
    files = {file.stem: file for folder in _FOLDERS for file in folder.glob("*.json")}
    if name is None:
        click.echo("\n".join(sorted(files)))
        return EXIT_DONE
    if name not in files:
        raise UsageError(f"there is no schema {name!r}", hint=did_you_mean(name, files) or "`tofu schema` lists them")
    click.echo(files[name].read_text(encoding="utf-8"), nl=False)
    return EXIT_DONE
