"""``tofu schema``."""

from __future__ import annotations

from importlib.resources import files

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.errors import UsageError, did_you_mean
from planner.feature import features


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
    folders = [files(package) / "schemas" for package in ("planner", *(feature.package for feature in features()))]
    schemas = {
        file.name.removesuffix(".json"): file
        for folder in folders
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".json")
    }
    if name is None:
        click.echo("\n".join(sorted(schemas)))
        return EXIT_DONE
    if name not in schemas:
        raise UsageError(f"there is no schema {name!r}", hint=did_you_mean(name, schemas) or "`tofu schema` lists them")
    click.echo(schemas[name].read_text(encoding="utf-8"), nl=False)
    return EXIT_DONE
