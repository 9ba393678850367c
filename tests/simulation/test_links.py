"""Flows that share ports, against what a pencil gives."""

from __future__ import annotations

import pytest

from planner.simulation.links import Flow, Links


def test_a_flow_goes_as_fast_as_the_least_of_its_shares() -> None:
    links = Links([10.0, 4.0, 100.0])
    alone, both, other = Flow((0,), 100), Flow((0, 1), 100), Flow((1, 2), 100)
    assert links.change(0.0, [alone], []) == [alone]
    assert alone.end_seconds == 10.0
    assert links.change(1.0, [both], []) == [alone, both]
    assert (alone.bytes_per_s, both.bytes_per_s) == (5.0, 4.0), "what the narrow port does not let through is nobody's"
    assert alone.end_seconds == pytest.approx(1 + 90 / 5)
    assert links.change(2.0, [other], []) == [both, other]
    assert (alone.bytes_per_s, both.bytes_per_s, other.bytes_per_s) == (5.0, 2.0, 2.0)
    assert both.end_seconds == pytest.approx(2 + 96 / 2)
    assert links.change(3.0, [], [both]) == [alone, other]
    assert (alone.bytes_per_s, other.bytes_per_s) == (10.0, 4.0)
    assert alone.end_seconds == pytest.approx(3 + 80 / 10)
    assert other.end_seconds == pytest.approx(3 + 98 / 4)
