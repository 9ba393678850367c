"""``tofu check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import JSON, MARKDOWN, check_one_form
from planner.commands.show import show
from planner.commands.streams import say
from planner.errors import TofuError
from planner.options.planning import CheckOptions


@click.command(short_help="Whether plans cost more than they did: a gate for CI.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@derived(CheckOptions)
@MARKDOWN
@JSON
def check(models: tuple[Path, ...], markdown_wanted: bool, json_wanted: bool, **options: Any) -> int:
    """Plan every MODEL and compare bytes, memory and gap with a baseline; exits with 1 if one grew, and says where.

    MODEL is an ONNX file, a name of `tofu zoo`, or the folder of a plan, whose model is read as it was planned. Names
    of tensors and ops do not matter, and no times are compared; a model whose ops are others, or joined otherwise, is
    refused (docs/ci.md). On GitHub Actions stderr tells it what grew.

    \b
    Examples:
      tofu check train.onnx --gpus 2,4,8 --baseline costs.json --update
      tofu check train.onnx --gpus 2,4,8 --baseline costs.json
      tofu check train.onnx --gpus 4 --baseline costs.json --markdown >> $GITHUB_STEP_SUMMARY
      tofu check alexnet gpt-2x1024 --gpus 8 --baseline costs.json --max-increase 1%
    """
    from planner import api
    from planner.printing import annotation, gate, sheet

    annotations = os.environ.get("GITHUB_ACTIONS") == "true"
    check_one_form(json_wanted=json_wanted, markdown_wanted=markdown_wanted)
    form = sheet.MarkdownSheet if markdown_wanted else sheet.TextSheet
    try:
        result = show(
            lambda line: api.check(models, progress=line, **given(CheckOptions, options)),
            json_wanted,
            as_table=lambda result, out: gate.print_check(result, form(out)),
        )
    except TofuError as error:
        if annotations:
            say(str(annotation.Annotation.of_error(error, str(options["baseline"]))), is_command=True)
        raise
    if annotations:
        for growth in gate.growth_annotations(result):
            say(str(growth), is_command=True)
    return EXIT_DONE if result.is_passed else EXIT_NO
