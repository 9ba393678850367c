"""The help of commands with many options."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from all_commands import all_commands
from planner.commands.grouped_help import GroupedCommand
from planner.commands.main import tofu

GROUPED = [name for name, command in all_commands().items() if isinstance(command, GroupedCommand)]


_LINES = 60
"""Of a screen."""


@pytest.mark.parametrize("name", GROUPED)
def test_usual_options_stand_under_a_heading_and_all_in_the_whole_help(name: str) -> None:
    command = all_commands()[name]
    assert isinstance(command, GroupedCommand)
    usual = [option for names in command.groups.values() for option in names]
    for flag, wanted in (("--help", usual), ("--help-all", [option.opts[0] for option in options_of(command)])):
        text = CliRunner().invoke(tofu, [name, flag]).output
        options_on = text[text.index(f"\n{next(iter(command.groups))}:\n") :]
        listed = re.findall(r"^  (--[\w-]+|-\w)", options_on, re.MULTILINE)
        assert sorted(listed) == sorted({*wanted, "-h", "--help-all"})
        assert all(f"\n{heading}:\n" in text for heading in command.groups)


def options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


@pytest.mark.parametrize("line", ["--help", *(f"{name} --help" for name in all_commands())])
def test_help_fits_a_screen(line: str) -> None:
    assert len(CliRunner().invoke(tofu, line.split()).output.splitlines()) <= _LINES


def test_every_command_stands_under_a_heading() -> None:
    text = CliRunner().invoke(tofu, ["--help"]).output
    listed = re.findall(r"^  (\w+)  +[A-Z]", text[text.index("\nMake a training graph:\n") :], re.MULTILINE)
    assert sorted(listed) == sorted(all_commands())


def test_commands_with_many_options_have_groups() -> None:
    many = {name for name, command in all_commands().items() if len(command.params) > 20}
    assert {"plan", "run", "grad"} <= many <= set(GROUPED)


def test_a_group_names_options_that_there_are() -> None:
    with pytest.raises(AssertionError, match="does not have"):
        GroupedCommand("x", params=[], groups={"All": ("--none",)})
