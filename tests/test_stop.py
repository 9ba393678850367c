"""When a search is to end, and what is kept of it."""

from __future__ import annotations

import pytest

from planner import stop as stopping
from planner.stop import Stop, StoppedError


def test_of_itself_nothing_ends() -> None:
    stop = Stop()
    stop.check()
    assert not stop.leaves_out("a bound")
    assert (stop.stopped_by, stop.left_out) == (None, ())


def test_an_interrupt_leaves_out_what_is_asked_for_after_it() -> None:
    stop = Stop()
    assert not stop.leaves_out("a plan")
    stop.interrupt()
    assert stop.is_interrupted
    assert stop.stopped_by is None, "nothing was left out yet"
    assert stop.leaves_out("a bound")
    assert stop.leaves_out("prices")
    assert stop.leaves_out("a bound")
    assert (stop.stopped_by, stop.left_out) == ("interrupt", ("a bound", "prices"))
    with pytest.raises(StoppedError):
        stop.check()


def test_the_time_is_over_when_the_clock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now)
    stop = Stop()
    stop.end_after(5)
    now = 104.9
    assert not stop.is_due()
    now = 105.0
    assert stop.is_due()
    assert stop.stopped_by == "time"
    stop.interrupt()
    now = 0.0
    assert stop.is_due()
    assert stop.stopped_by == "time", "it was the first reason"


def test_where_memory_has_a_limit_a_plan_that_fits_is_one() -> None:
    stop = Stop()
    stop.must_fit = True
    stop.plan_is_there()
    assert not stop.has_plan
    stop.plan_is_there(is_fitting=True)
    assert stop.has_plan
    other = Stop()
    other.plan_is_there()
    assert other.has_plan
