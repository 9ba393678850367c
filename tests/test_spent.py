"""How long parts of work took."""

from __future__ import annotations

import time

import pytest

from planner.spent import PARTS, measured, part


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows the sum of what is in the list."""
    shown: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: sum(shown))
    return shown


def test_a_part_within_another_counts_for_itself_alone(clock: list[float]) -> None:
    @part("bound")
    def bound() -> None:
        clock.append(4)

    with measured() as spent:
        clock.append(1)
        with part("search"):
            clock.append(2)
            bound()
            clock.append(8)
        clock.append(16)
        with part("search"):
            clock.append(32)
    clock.append(64)
    assert spent.seconds == {**dict.fromkeys(PARTS, 0.0), "search": 42, "bound": 4}


def test_a_part_that_fails_has_ended(clock: list[float]) -> None:
    @part("reading")
    def read() -> None:
        clock.append(1)
        raise ValueError("so")

    with measured() as spent:
        with pytest.raises(ValueError, match="so"):
            read()
        clock.append(2)
    assert spent.seconds["reading"] == 1


def test_nobody_need_measure(clock: list[float]) -> None:
    with part("writing"):
        clock.append(1)
    with measured() as spent:
        pass
    with part("writing"):
        clock.append(1)
    assert spent.seconds["writing"] == 0
