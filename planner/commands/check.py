"""``tofu check``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import (
    COUNTS,
    DIM,
    JSON,
    MARKDOWN,
    OPDEFS,
    STATE,
    UNKNOWN_OPS,
    VALUE,
    by_name,
    check_one_form,
    sizes,
)
from planner.commands.show import show
from planner.commands.streams import say
from planner.errors import TofuError


@click.command(short_help="Whether plans cost more than they did: a gate for CI.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--gpus", metavar="K,K,...", type=COUNTS, required=True, help="How many GPUs; each model for each.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    required=True,
    help="What plans cost before; --update writes it.",
)
@click.option("--max-increase", metavar="SHARE", default="0%", show_default=True, help="How much more is allowed.")
@click.option("--update", is_flag=True, help="Write what the plans cost into the baseline; other models in it stay.")
@DIM
@VALUE
@STATE
@OPDEFS
@UNKNOWN_OPS
@click.option(
    "--annotations", is_flag=True, help="On stderr, tell GitHub Actions what grew, beside all that is printed."
)
@MARKDOWN
@JSON
def check(
    models: tuple[str, ...],
    gpus: tuple[int, ...],
    baseline: Path,
    max_increase: str,
    update: bool,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    state: Path | None,
    opdefs: Path | None,
    unknown_ops: Literal["refuse", "replicate"],
    annotations: bool,
    markdown_wanted: bool,
    json_wanted: bool,
) -> int:
    """Plan every MODEL and compare bytes, memory and gap with a baseline; exits with 1 if one grew, and says where.

    MODEL is an ONNX file or a name of `tofu zoo`. Names of tensors and ops do not matter, and no times are compared; a
    model whose ops are others, or joined otherwise, is refused (docs/check.md, docs/ci.md).

    \b
    Examples:
      tofu check train.onnx --gpus 2,4,8 --baseline costs.json --update
      tofu check train.onnx --gpus 2,4,8 --baseline costs.json
      tofu check train.onnx --gpus 4 --baseline costs.json --annotations --markdown >> $GITHUB_STEP_SUMMARY
      tofu check alexnet gpt-2x1024 --gpus 8 --baseline costs.json --max-increase 1%
    """
    from planner import api
    from planner.report import annotation, gate, sheet

    check_one_form(json_wanted=json_wanted, markdown_wanted=markdown_wanted)
    form = sheet.MarkdownSheet if markdown_wanted else sheet.TextSheet
    try:
        result = show(
            lambda line: api.check(
                models,
                gpus=gpus,
                baseline=baseline,
                max_increase=max_increase,
                update=update,
                dim=sizes(dims),
                value=by_name(values, "--value"),
                state=state,
                opdefs=opdefs,
                unknown_ops=unknown_ops,
                progress=line,
            ),
            lambda result, out: gate.print_check(result, form(out)),
            json_wanted,
        )
    except TofuError as error:
        if annotations:
            say(str(annotation.Annotation.of_error(error, str(baseline))), is_command=True)
        raise
    if annotations:
        for one in gate.growth_annotations(result):
            say(str(one), is_command=True)
    return EXIT_DONE if result.is_passed else EXIT_NO
