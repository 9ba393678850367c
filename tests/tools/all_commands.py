"""The commands of the command line, those of features too."""

from __future__ import annotations

import click

from planner.commands.main import tofu


def all_commands() -> dict[str, click.Command]:
    """By name."""
    ctx = click.Context(tofu)
    commands = {name: tofu.get_command(ctx, name) for name in tofu.list_commands(ctx)}
    return {name: command for name, command in commands.items() if command is not None}
