"""Charts show the numbers that they are given."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.cost.seconds.simulated import Span
from planner.features.report.page.charts import PART_FILL, schedule_chart
from planner.printing.stretches import binned_most
from planner.simulation.schedule import Transfer

_BAR = re.compile(r"v-([\d.]+)h([\d.]+)v")


def area(svg: str, fill: str) -> float:
    """How much of a chart has a colour, in squares of a bar's height times the width of all bars."""
    paths = re.findall(rf'<path d="([^"]*)" fill="{fill}"', svg)
    return sum(float(height) * float(width) for path in paths for height, width in _BAR.findall(path)) / (15 * 570)


def test_a_schedule_has_each_kind_for_as_long_as_it_goes_on() -> None:
    spans = [
        Span("a", "compute", 0, 0, 0.0, 1.0),
        Span("a", "compute", 1, 0, 0.0, 0.5),
        Span("b", "compute", 0, 0, 2.0, 1.0),
        Span("f", "transfer", 0, 1, 1.0, 0.5),
        Span("g", "synchronisation", 1, 1, 1.5, 2.5),
    ]
    transfers = [Transfer(1, (0, 1), 8, "nvlink", 1.0, 3.0)]
    svg = str(schedule_chart(spans, 2, {"a": "forward", "b": "backward"}, transfers))
    assert area(svg, PART_FILL["forward"]) == pytest.approx(1.5 / 4, rel=0.02)
    assert area(svg, PART_FILL["backward"]) == pytest.approx(1.0 / 4, rel=0.02)
    assert area(svg, PART_FILL["communication"]) == pytest.approx(3.0 / 4, rel=0.02)
    assert area(svg, "#CC79A7") == pytest.approx(2 / 4 / 2, rel=0.02), "one of two workers sends half of the time"
    assert ">forward</text>" in svg
    assert ">backward</text>" in svg
    assert ">nvlink links</text>" in svg
    assert "worker 0" in svg
    assert re.findall(r">([^<>]*)</text>", svg)[-5:] == ["0", "1000 ms", "2000 ms", "3000 ms", "4000 ms"]


def test_many_short_spans_of_one_stretch_are_not_lost() -> None:
    spans = [Span(f"op{number}", "compute", 0, number, number * 1e-3, 5e-4) for number in range(2000)]
    assert area(
        str(schedule_chart(spans, 1, dict.fromkeys((span.name for span in spans), "update"))), PART_FILL["update"]
    ) == pytest.approx(0.5, rel=0.02)


def test_bins_keep_the_most() -> None:
    amounts = np.zeros(1000, np.int64)
    amounts[537] = 9
    assert max(binned_most(amounts, 240)) == 9
    assert binned_most(np.array([3, 1]), 240) == [3, 1]
