"""Lines of pipes, which are waited for while something goes on: the clock is the test's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from planner.runtime.engine.process import patience
from planner.runtime.engine.process.patience import PatientLines, StallError

TICKS = 10
"""The patience, in looks at the pipes; a look takes a tick of the clock."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PatientLines, Callable[[], int]]]:
    """The lines of a pipe, and what writes one."""
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr(patience.time, "monotonic", monotonic)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb", buffering=0) as pipe:
        yield PatientLines([pipe], TICKS * 0.001), lambda: os.write(theirs, b"done\n")
    os.close(theirs)


def test_steps_that_end_are_waited_for(lines: tuple[PatientLines, Callable[[], int]]) -> None:
    """Each takes less than the patience, all of them together take more."""
    patient, write = lines
    looks = 0

    def sign() -> int:
        nonlocal looks
        looks += 1
        if looks == 5 * TICKS:
            write()
        return looks // (TICKS - 2)

    assert patient.line(sign) == (0, b"done\n")
    assert looks >= 5 * TICKS


def test_a_step_that_does_not_end_is_not_waited_for(lines: tuple[PatientLines, Callable[[], int]]) -> None:
    patient, _ = lines
    looks = 0

    def sign() -> str:
        nonlocal looks
        looks += 1
        return "in the same step"

    with pytest.raises(StallError):
        patient.line(sign)
    assert TICKS <= looks <= TICKS + 2
