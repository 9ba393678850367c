"""``tofu prove``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import JSON
from planner.commands.show import chosen_plan, show
from planner.features.prove.options import ProveOptions


@click.command(short_help="Prove that a plan's worker models are equal to its model.")
@click.argument("directory", metavar="[DIR]", nargs=-1, type=click.Path(path_type=Path))
@derived(ProveOptions)
@JSON
def prove(directory: tuple[Path, ...], json_wanted: bool, **options: Any) -> int:
    """Prove that what the workers of the plan in DIR compute is what its model computes, for all inputs.

    Nothing is executed: the worker models are held against the descriptions of the model's ops. Without DIR, the
    newest plan in the working directory. With --model and --parts, these worker models are held against that model.
    Exits with 1 if it is not proven, and says of which op and where (docs/verify.md).

    \b
    Examples:
      tofu prove plan
      tofu prove plan --json
      tofu prove plan --model train.onnx
      tofu prove --model model.onnx --parts worker*.onnx --program form.json
    """
    from planner import api
    from planner.errors import UsageError

    request = given(ProveOptions, options)
    if options["parts"]:  # a shell writes worker*.onnx out, and the option takes the first of them
        folders = [str(path) for path in directory if path.is_dir()]
        if folders:
            raise UsageError("--parts takes files of worker models, no folder", facts=tuple(folders))
        request["parts"] = (*options["parts"], *directory)
    elif len(directory) > 1:
        raise UsageError("one plan is proven at a time", facts=tuple(map(str, directory)))
    elif options["program"] is None:
        request["directory"] = chosen_plan(directory[0] if directory else None)

    result = show(lambda line: api.prove(progress=line, **request), json_wanted)
    return EXIT_DONE if result.is_proven else EXIT_NO
