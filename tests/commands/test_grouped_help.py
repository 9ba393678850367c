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


@pytest.mark.parametrize("name", GROUPED)
def test_every_option_stands_once_and_under_a_heading(name: str) -> None:
    command = all_commands()[name]
    assert isinstance(command, GroupedCommand)
    options = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
    assert sorted(option for names in command.groups.values() for option in names) == sorted(options)
    text = CliRunner().invoke(tofu, [name, "--help"]).output
    options_on = text[text.index(f"\n{next(iter(command.groups))}:\n") :]
    listed = re.findall(r"^  (--[\w-]+|-\w)", options_on, re.MULTILINE)
    assert sorted(listed) == sorted({*options, "-h"})
    assert all(f"\n{heading}:\n" in text for heading in command.groups)


def test_commands_with_many_options_have_groups() -> None:
    many = {name for name, command in all_commands().items() if len(command.params) > 20}
    assert {"plan", "run", "grad"} <= many <= set(GROUPED)


def test_a_group_names_options_that_there_are() -> None:
    with pytest.raises(AssertionError, match="does not have"):
        GroupedCommand("x", params=[], groups={"All": ("--none",)})
