"""What ``tofu compare`` is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from planner.options import (
    AnyModel,
    AnyPath,
    UnknownOps,
    argument,
    dims,
    measured,
    option,
    options,
    own_ops,
    rates_of,
    states,
    undescribed,
    values,
)
from planner.progress import Progress, silent
from planner.records import Positive


@options
class CompareOptions:
    """What ``tofu compare`` and ``planner.compare`` are asked for."""

    model: AnyModel = argument(kw_only=False)
    gpus: Positive | None = option("How many GPUs; of a topology's, the nearest so many.", default=None, metavar="K")
    topology: str | None = option(
        "A topology file or the name of one, to estimate times for.", default=None, metavar="FILE|NAME"
    )
    rates: str | None = rates_of()
    dim: Mapping[str, int] | None = dims()
    value: Mapping[str, str | float] | None = values()
    state: AnyPath | None = states()
    profile: AnyPath | None = measured()
    opdefs: AnyPath | None = own_ops()
    unknown_ops: UnknownOps = undescribed()
    progress: Progress = silent
