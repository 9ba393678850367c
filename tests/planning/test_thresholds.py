"""The table of thresholds."""

from __future__ import annotations

from planner.planning.thresholds import Work


def test_no_work_shares_the_numbers_of_another() -> None:
    """Members of an enum with equal numbers would be one member, and its reason that of the first."""
    assert list(Work.__members__.values()) == list(Work)


def test_work_is_done_up_to_both_numbers() -> None:
    most = Work.ESTIMATES
    assert most.is_done(2_000, 15)
    assert not most.is_done(2_000, 16), "more parts"
    assert not most.is_done(2_001, 1), "more ops"
