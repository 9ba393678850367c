"""Held-out data: the training step on it, whose next state is thrown away.

A plan has no graph but the step's, so it is the step that runs, and it takes as long as training. Where the step has an
input that says whether it trains, that is false: no Dropout drops, and normalizations take their running statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import Graph, StatePair
from planner.progress import Progress
from planner.runtime.accuracy import Accuracy, share_of
from planner.runtime.engine.core.interface import Engine
from planner.runtime.run_report import Evaluation
from planner.runtime.values.feed import Feed
from planner.runtime.values.state import not_finite
from planner.runtime.values.tiles import load_tiles

NextState: TypeAlias = Mapping[tuple[str, Region], np.ndarray]
"""A copy of the next state, tile by tile: by tensor and region."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out data."""

    feed: Feed
    fixed: Mapping[str, np.ndarray]
    """What is the same in every batch."""

    def batch(self, number: int) -> dict[str, np.ndarray]:
        """A batch of the only epoch, counted from 1."""
        return {**self.fixed, **self.feed.batch(number, is_last=number == self.feed.per_epoch)}


class Evaluator:
    """Runs the step on held-out data.

    Attributes:
        unsound: of the last evaluation, the first batch whose loss is not finite, and those of its data that are not;
            () if all is finite.
    """

    def __init__(
        self,
        held_out: HeldOut,
        graph: Graph,
        engine: Engine,
        iterate: Callable[[], Mapping[str, np.ndarray]],
        loss: str,
        accuracy: Accuracy | None,
        doing: Progress,
    ) -> None:
        """Takes note of what is evaluated.

        Args:
            held_out: the data.
            graph: of the step.
            engine: its workers.
            iterate: runs the step; gives the loss, and what accuracy is counted from.
            loss: the output that is called the loss; "" if there is none.
            accuracy: how to count it; None where nobody asked.
            doing: told what is being done.
        """
        self._held_out, self._graph, self._engine, self._iterate = held_out, graph, engine, iterate
        self._loss, self._accuracy, self._doing = loss, accuracy, doing
        self.unsound: tuple[str, ...] = ()

    def evaluate(
        self, number: int, begin: Callable[[], None], fixed: Callable[[str, Region], np.ndarray]
    ) -> Evaluation:
        """The evaluation of the data; the workers then are where they were before.

        Args:
            number: of the step that is done.
            begin: has the workers start from the state to be evaluated.
            fixed: gives a region of what an input is in every step of the training.
        """
        losses: list[float] = []
        right, counted = 0, 0
        replaced: set[str] = set()
        self.unsound = ()
        count = self._held_out.feed.per_epoch
        for batch in range(1, count + 1):
            self._doing(f"evaluating after step {number}: batch {batch} of {count}")
            arrays = self._held_out.batch(batch)
            replaced |= arrays.keys()
            begin()
            load_tiles(self._engine, arrays, arrays.keys())
            outputs = self._iterate()
            if not self._engine.reports:
                continue
            if self._loss:
                losses.append(float(outputs[self._loss].reshape(())))
                if not self.unsound and not math.isfinite(losses[-1]):
                    self.unsound = (f"first {losses[-1]} in batch {batch} of {count}", *self._not_finite(batch, arrays))
            if self._accuracy is not None:
                counts = self._accuracy.count(outputs[self._accuracy.logits], arrays[self._accuracy.labels.name])
                right, counted = right + counts[0], counted + counts[1]
        begin()
        self._engine.fill(fixed, replaced)
        accuracy = None if self._accuracy is None else share_of(right, counted)
        return Evaluation(number, float(np.mean(losses)) if losses else None, accuracy, count)

    def _not_finite(self, batch: int, arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        feed = self._held_out.feed
        nothing = np.zeros(())  # what is not of these data is the training's
        return not_finite(
            self._graph, lambda name: arrays.get(name, nothing), lambda name, place: feed.origin(batch, name, place)
        )


def keep_next_state(engine: Engine, state: tuple[StatePair, ...]) -> NextState:
    """Copies of the next state, of the workers that this process reaches: of a tile that several hold, one."""
    names = {pair.following for pair in state}
    engine.pull(names)
    tiles: dict[tuple[str, Region], np.ndarray] = {}
    for program in engine.local_programs:
        for name in program.collected:
            buffer = program.buffers[name]
            if buffer.tensor in names and (buffer.tensor, buffer.region) not in tiles:
                tiles[buffer.tensor, buffer.region] = engine.array(program.worker, name).copy()
    return tiles


def begin_from(engine: Engine, tiles: NextState, state: tuple[StatePair, ...]) -> None:
    """Makes a next state that was kept the state from which the next step starts."""
    following = {pair.current: pair.following for pair in state}
    engine.fill(lambda name, region: tiles[following[name], region], following.keys())
