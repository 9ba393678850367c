"""Charts show the numbers that they are given."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.cost.seconds.simulated import Span
from planner.features.report.page.charts import KIND_FILL, schedule_chart, traffic_chart
from planner.printing.stretches import binned_most

_BAR = re.compile(r"v-([\d.]+)h([\d.]+)v")


def area(svg: str, fill: str) -> float:
    """How much of a chart has a colour, in squares of a bar's height times the width of all bars."""
    paths = re.findall(rf'<path d="([^"]*)" fill="{fill}"', svg)
    return sum(float(height) * float(width) for path in paths for height, width in _BAR.findall(path)) / (15 * 570)


def test_a_schedule_has_each_kind_for_as_long_as_it_goes_on() -> None:
    spans = [
        Span("a", "compute", 0, 0, 0.0, 1.0),
        Span("a", "compute", 1, 0, 0.0, 0.5),
        Span("f", "transfer", 0, 1, 1.0, 0.5),
        Span("g", "synchronisation", 1, 1, 1.5, 2.5),
    ]
    svg = str(schedule_chart(spans, 2))
    assert area(svg, KIND_FILL["compute"]) == pytest.approx(1.5 / 4, rel=0.02)
    assert area(svg, KIND_FILL["transfer"]) == pytest.approx(0.5 / 4, rel=0.02)
    assert area(svg, KIND_FILL["synchronisation"]) == pytest.approx(2.5 / 4, rel=0.02)
    assert "worker 0" in svg
    assert re.findall(r">([^<>]*)</text>", svg)[-5:] == ["0", "1 s", "2 s", "3 s", "4 s"]


def test_many_short_spans_of_one_stretch_are_not_lost() -> None:
    spans = [Span(f"op{number}", "compute", 0, number, number * 1e-3, 5e-4) for number in range(2000)]
    assert area(str(schedule_chart(spans, 1)), KIND_FILL["compute"]) == pytest.approx(0.5, rel=0.02)


def test_bins_keep_the_most() -> None:
    amounts = np.zeros(1000, np.int64)
    amounts[537] = 9
    assert max(binned_most(amounts, 240)) == 9
    assert binned_most(np.array([3, 1]), 240) == [3, 1]


def test_traffic_has_every_number_or_groups_of_workers() -> None:
    svg = str(traffic_chart(np.array([[0, 1500], [2500, 0]])))
    assert "1.5 kB" in svg
    assert "2.5 kB" in svg
    assert svg.count("<rect") == 4
    many = str(traffic_chart(np.ones((100, 100), np.int64)))
    assert many.count("<rect") == 25 * 25
    assert "96–99" in many
