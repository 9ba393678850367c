"""Bytes of fetches, beside the plan's prediction: the two are equal, or the run fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.artifacts.program import Fetch, Program
from planner.errors import DifferenceError


@dataclass(frozen=True, slots=True)
class FetchBytes:
    """One fetch: what the plan predicts and what the last step moved, which in every step must be the same."""

    worker: int
    fetch: str
    tensor: str
    predicted_bytes: int
    moved_bytes: int


def fetch_table(program: Program, moved_bytes: Sequence[Sequence[int]]) -> tuple[FetchBytes, ...]:
    """Every fetch of a program beside what one iteration counted, by worker and fetch."""
    return tuple(
        FetchBytes(worker.worker, step.name, worker.buffers[step.target].tensor, step.predicted_bytes, moved)
        for worker, counted in zip(program.workers, moved_bytes, strict=True)
        for step, moved in zip((step for step in worker.steps if isinstance(step, Fetch)), counted, strict=True)
    )


def check_bytes(fetches: Sequence[FetchBytes]) -> None:
    """The law of this project: every fetch moves what was predicted.

    Raises:
        DifferenceError: fetches moved other bytes; they are named.
    """
    facts = [
        f"worker {fetch.worker}, fetch {fetch.fetch!r} of tensor {fetch.tensor!r}: "
        f"{fetch.predicted_bytes} bytes predicted, {fetch.moved_bytes} moved"
        for fetch in fetches
        if fetch.predicted_bytes != fetch.moved_bytes
    ]
    if facts:
        raise DifferenceError(
            "the run moved other bytes than the plan predicts",
            facts=tuple(facts),
            hint="this is a bug in tofu, unless somebody edited the plan",
        )
