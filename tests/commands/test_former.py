"""Options as they were spelt before: each is refused, and the error says what to write."""

from __future__ import annotations

import click
import pytest

from all_commands import all_commands
from planner.commands import main as cli
from planner.commands.former import _RENAMED


@pytest.mark.parametrize("line", _RENAMED)
def test_a_former_option_is_refused_with_what_to_write(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, option = line.split()
    assert cli.main([command, option, "x"]) == 2
    assert capsys.readouterr().err == f"error: no such option '{option}'\nhint: {_RENAMED[line]}\n"
    params = all_commands()[command].params
    assert option not in {flag for param in params if isinstance(param, click.Option) for flag in param.opts}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("fit --loss", "`tofu fit` takes a training graph: write --loss to `tofu grad MODEL -o train.onnx`"),
        ("fit --value", "write --value to `tofu plan`, and name the plan's folder in the place of the model"),
        ("compare --rates", "write --rates to `tofu plan`"),
        ("check --opdefs", "write --opdefs to `tofu plan`"),
        ("compare --memory", "leave it out: --memory is for `tofu plan` alone"),
        ("check --pin", "leave it out: --pin is for `tofu plan` alone"),
        *(
            (f"{command} --opdefs", "leave it out: a plan remembers it")
            for command in ("build", "run", "prove", "diff")
        ),
        ("report --topology", "leave it out: a plan remembers it"),
        ("run --gpus", "a plan says for how many"),
        ("schema --opdefs", "see tofu schema --help"),
    ],
)
def test_what_another_command_takes_is_said(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*line.split(), "x"]) == 2
    assert f"hint: {hint}" in capsys.readouterr().err
