"""``tofu diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, MARKDOWN, check_one_form
from planner.commands.show import show
from planner.features.diff.options import DiffOptions


@click.command(short_help="What differs between two plans, and what it costs.")
@click.argument("a", metavar="A", type=click.Path(path_type=Path))
@click.argument("b", metavar="B", type=click.Path(path_type=Path))
@click.option("--all", "shows_all", is_flag=True, help="Print every difference, not only the largest.")
@derived(DiffOptions)
@MARKDOWN
@JSON
def diff(a: Path, b: Path, shows_all: bool, markdown_wanted: bool, json_wanted: bool, **options: Any) -> int:
    """Compare the plans in the folders A and B: tensors and ops that differ, and what that costs.

    The plans may be of two versions of a model, with other names, sizes or ops, and for other numbers of GPUs. A
    difference is no failure: it exits with 0, and with 2 if one is no plan or the models are unrelated
    (docs/read-a-plan.md).

    \b
    Examples:
      tofu diff plan-data plan
      tofu diff main/plan plan --markdown
      tofu diff plan-2 plan-4 --all
    """
    from planner import api
    from planner.features.diff import table as difference
    from planner.printing import sheet

    check_one_form(json_wanted=json_wanted, markdown_wanted=markdown_wanted)
    form = sheet.MarkdownSheet if markdown_wanted else sheet.TextSheet
    show(
        lambda line: api.diff(a, b, progress=line, **given(DiffOptions, options)),
        json_wanted,
        as_table=lambda result, out: difference.print_difference(result, form(out), shows_all=shows_all),
    )
    return EXIT_DONE
