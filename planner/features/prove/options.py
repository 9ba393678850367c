"""What ``tofu prove`` is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.options import AnyPath, argument, dims, option, options, own_ops, states, values
from planner.progress import Progress, silent


@options
class ProveOptions:
    """What ``tofu prove`` and ``planner.prove`` are asked for."""

    directory: AnyPath | None = argument(kw_only=False, default=None)
    whole: AnyPath | None = option(
        "In the place of a plan: a model, read as `tofu plan` reads it.", default=None, metavar="FILE"
    )
    parts: Sequence[AnyPath] = option(
        "With --whole: the worker models, one of each worker.", default=(), metavar="FILE..."
    )
    program: AnyPath | None = option(
        "With --whole: what was made of the model before it was divided, as plan.json says it.  [default: nothing]",
        default=None,
        metavar="FILE.json",
    )
    model: AnyPath | None = option(
        "Also read this file as `tofu plan` read it, and compare it with the plan's model.",
        default=None,
        metavar="FILE",
    )
    dim: Mapping[str, int] | None = dims()
    value: Mapping[str, str | float] | None = values()
    state: AnyPath | None = states()
    opdefs: AnyPath | None = own_ops()
    progress: Progress = silent
