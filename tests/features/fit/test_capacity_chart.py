"""The chart of memory by number of workers: every number is there, on the right side of the limit."""

from __future__ import annotations

import re

from planner.features.fit.capacity_chart import CapacityPoint, capacity_chart

GIB = 2**30


def test_points_that_fit_lie_below_the_limit_and_are_full() -> None:
    points = [
        CapacityPoint(1, None, 1400 * GIB, fits=False),
        CapacityPoint(2, 900 * GIB, 700 * GIB, fits=False),
        CapacityPoint(8, 176 * GIB, 90 * GIB, fits=False, remark="with <all>"),
        CapacityPoint(32, 50 * GIB, 22 * GIB, fits=True),
    ]
    chart = str(capacity_chart(points, 80 * GIB))
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="5" fill="([^"]+)"', chart)
    (limit,) = re.findall(r'd="M80 ([\d.]+)H720"[^>]*class="limit"', chart)
    assert [fill != "transparent" for _, _, fill in circles] == [False, False, False, True]
    assert [float(top) > float(limit) for _, top, _ in circles] == [False, False, False, True]
    assert [float(left) for left, _, _ in circles] == sorted(float(left) for left, _, _ in circles)
    assert ">limit 80.0 GiB</text>" in chart
    assert ">at least 1.4 TiB</text>" in chart
    assert ">50.0 GiB</text>" in chart
    assert "8 workers: the leanest plan takes 176.0 GiB; every plan takes 90.0 GiB at least; with &lt;all&gt;" in chart


def test_one_number_of_workers_and_many_of_them() -> None:
    assert str(capacity_chart([CapacityPoint(4, 100, 50, fits=True)], 100)).count("<circle") == 1
    many = [CapacityPoint(count, 2**20 // count, 0, fits=count > 9) for count in range(1, 65)]
    chart = str(capacity_chart(many, 2**17))
    assert chart.count("<circle") == 64
    assert 5 < chart.count("<text") < 40, "as many texts as there is room for"
