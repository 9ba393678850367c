"""Held-out data: the training step on it, whose next state is thrown away.

A plan has no graph but the step's, so it is the step that runs: its loss is as in training (Dropout drops, and
BatchNormalization takes the statistics of the batch), and it takes as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from planner.graph.model import StatePair
from planner.runtime.engine.interface import Engine
from planner.runtime.values.feed import Feed

Kept: TypeAlias = Mapping[tuple[int, str], np.ndarray]
"""By worker and collected buffer, a copy of the next state."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out data."""

    feed: Feed
    fixed: Mapping[str, np.ndarray]
    """What is the same in every batch."""

    def batch(self, number: int) -> dict[str, np.ndarray]:
        """A batch of the only epoch, counted from 1."""
        return {**self.fixed, **self.feed.batch(number, is_last=number == self.feed.per_epoch)}


def keep_next_state(engine: Engine, state: tuple[StatePair, ...]) -> Kept:
    """Copies of the next state, of the workers that this process reaches."""
    names = {pair.following for pair in state}
    if engine.world is None:
        engine.pull(names)
    return {
        (program.worker, name): engine.array(program.worker, name).copy()
        for program in engine.here
        for name in program.collected
        if program.buffers[name].tensor in names
    }


def begin_from(engine: Engine, kept: Kept, state: tuple[StatePair, ...]) -> None:
    """Makes a next state that was kept the state from which the next step starts."""
    for program in engine.here:
        for pair in state:
            made = {
                program.buffers[name].region: name
                for name in program.collected
                if program.buffers[name].tensor == pair.following
            }
            for name in program.loaded:
                buffer = program.buffers[name]
                if buffer.tensor == pair.current:
                    value = kept[program.worker, made[buffer.region]]
                    np.copyto(engine.array(program.worker, name), value.reshape(buffer.shape))
    engine.push([pair.current for pair in state])
