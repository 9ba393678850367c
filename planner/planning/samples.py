"""A change of the batch in a model with a symbolic dim, and the least memory of every plan at another batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.cost.residence import Ints
from planner.graph.reading.load import load_model
from planner.options.training import TrainingOptions
from planner.planning.request import ModelSource
from planner.training.doors.make import make
from planner.training.doors.read import file_of

STATED: Final = "the file states its batch"
"""Why the batch of a training graph cannot be changed."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The change of a model's batch."""

    given: int
    """The batch that it has as it is asked for."""
    at: Callable[[int], ModelSource]
    """How it is read at another batch."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The least memory of every plan at any batch, by two batches."""

    small: int
    """A batch."""
    at_small: Ints
    """By moment, bytes on all workers together at least."""
    large: int
    """A larger batch, or the same."""
    at_large: Ints
    """The same there."""

    def largest(self, sizes: Sequence[int], room: int) -> int | None:
        """The largest batch at which no more lies on all workers than there is room for; None if there is none.

        Args:
            sizes: batches, ascending.
            room: in bytes.
        """
        width = max(1, self.large - self.small)

        def fits(batch: int) -> bool:
            return bool(
                np.all((self.at_large - self.at_small) * (batch - self.small) <= (room - self.at_small) * width)
            )

        count = bisect_left(sizes, True, key=lambda batch: not fits(batch))
        return sizes[count - 1] if count else None


def samples_by_dim(source: ModelSource, training: TrainingOptions | None = None) -> Samples | None:
    """The change of batch of a file that begins with a symbolic one, which has a size; None of other files.

    Args:
        source: how the file is read.
        training: how it is trained, see ``Wanted``.
    """
    symbol, stated = symbol_of_samples(source.model), dict(source.options.dim or {})
    if symbol is None or symbol not in stated:
        return None
    return Samples(stated[symbol], lambda size: _with_dims(source, training, {**stated, symbol: size}))


def _with_dims(source: ModelSource, training: TrainingOptions | None, dims: Mapping[str, int]) -> ModelSource:
    if training is None:
        return replace(source, options=replace(source.options, dim=dims))
    return replace(source, make=lambda: make(source.model, replace(training, dim=dims)).graph)


def symbol_of_samples(model: Path) -> str | None:
    """The symbolic dim with which the inputs of a file begin; None if there is none, or several."""
    graph = load_model(file_of(model)).graph
    constants = {tensor.name for tensor in graph.initializer}
    first = (
        value.type.tensor_type.shape.dim[0].dim_param
        for value in graph.input
        if value.name not in constants and value.type.tensor_type.shape.dim
    )
    symbols = set(filter(None, first))
    return symbols.pop() if len(symbols) == 1 else None
