"""``tofu ops``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import JSON
from planner.commands.show import show
from planner.errors import UsageError


@click.command("ops", short_help="Operators: coverage, descriptions, strategies, verification.")
@click.argument("op_type", metavar="[OP]", required=False)
@click.option("--verify", is_flag=True, help="Run every strategy split and whole; exits with 1 if one is wrong.")
@click.option("--gradients", is_flag=True, help="Which of them a gradient passes, how, and why not the others.")
@click.option("--opdefs", "file", type=click.Path(path_type=Path), metavar="FILE.py", help="Descriptions of your own.")
@JSON
def ops(op_type: str | None, verify: bool, gradients: bool, file: Path | None, json_wanted: bool) -> int:
    """Show which operators tofu can split, and how.

    \b
    Examples:
      tofu ops                           coverage of ONNX's default domain
      tofu ops Conv                      one operator: mathematics, strategies, halos
      tofu ops --verify Conv             run its strategies split and whole
      tofu ops --verify --opdefs mine.py
      tofu ops --gradients               what `tofu grad` can differentiate
    """
    from planner.features.ops import run
    from planner.features.ops.run import Operators

    if gradients and (verify or file is not None):
        raise UsageError("--gradients goes with neither --verify nor --opdefs")
    if verify:
        verification = show(lambda line: Operators(file).verify(op_type, line, line.note), json_wanted)
        return EXIT_DONE if verification.is_right else EXIT_NO
    if gradients:
        show(lambda _line: run.gradients(op_type), json_wanted)
    elif op_type is not None:
        show(lambda _line: Operators(file).page(op_type), json_wanted)
    else:
        show(lambda _line: Operators(file).coverage(), json_wanted)
    return EXIT_DONE
