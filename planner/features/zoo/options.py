"""Options of ``tofu zoo``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from planner.options import argument, option, options
from planner.progress import Progress, silent
from planner.records import Positive


@options
class ZooOptions:
    """What ``tofu zoo`` and ``planner.zoo`` are asked for."""

    name: str = argument(kw_only=False)
    batch: Positive | None = option("Batch size.  [default: the paper's]", default=None, metavar="N")
    optimizer: str | None = option("How the weights follow.  [default: the paper's]", default=None, metavar="NAME")
    precision: Literal["float32", "bfloat16"] | None = option(
        "What a network of today computes in.  [default: what it was trained in]", default=None
    )
    seq: Positive | None = option(
        "Tokens of a sample, of a network of language.  [default: its own]", default=None, metavar="N"
    )
    layers: Positive | None = option(
        "Blocks of a network of today.  [default: as published]", default=None, metavar="N"
    )
    output: Path | None = option(
        "Where to write the training graph.  [default: NAME.onnx in the working directory]",
        default=None,
        metavar="FILE",
        flags=("-o", "--output"),
    )
    progress: Progress = silent
