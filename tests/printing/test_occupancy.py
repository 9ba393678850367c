"""What a worker holds over its steps, as letters, as areas and as plain values: all of them reach the peak."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.features.report.page.memory_charts import PURPOSE_FILL, occupancy_chart
from planner.graph.step.purposes import Purpose
from planner.partition.occupancy import Held, Occupancy
from planner.printing.occupancy import LETTERS, drawn

SMALL = Occupancy(
    3,
    1200,
    (
        Held("w", "w", Purpose.PARAMETERS, "", 500, 0, 5),
        Held("<h>", "<h>", Purpose.ACTIVATIONS, "Relu", 600, 2, 3),
    ),
    {
        Purpose.PARAMETERS: np.full(6, 500),
        Purpose.ACTIVATIONS: np.array([0, 100, 600, 600, 200, 0]),
        Purpose.INSIDE: np.full(6, 100),
    },
)

DRAWN = """\
1.2 KiB |         iiiiiiiii
        |         aaaaaaaaa
        |         aaaaaaaaa
        |         aaaaaaaaa
        |         aaaaaaaaaiiii
        |     iiiiaaaaaaaaaaaaa
  600 B |iiiiiaaaaaaaaaaaaaaaaaiiii
        |pppppppppppppppppppppppppp
        |pppppppppppppppppppppppppp
        |pppppppppppppppppppppppppp
        |pppppppppppppppppppppppppp
        |pppppppppppppppppppppppppp
    0 B +-------------|---|--------
         step 0       backward 3  5
                          update 4"""


def test_a_drawing_in_letters() -> None:
    assert "\n".join(drawn(SMALL, {"backward": 3, "update": 4}, 35)) == DRAWN


def test_a_peak_of_one_step_among_thousands_is_drawn() -> None:
    amounts = np.full(12_345, 10)
    amounts[8_000] = 1200
    found = Occupancy(0, 1200, (), {Purpose.ACTIVATIONS: amounts})
    lines = drawn(found, {}, 80)
    assert max(map(len, lines)) <= 80
    assert [line.count("a") for line in lines[:12]] == [1] * 12
    chart = str(occupancy_chart(found, {}, None))
    assert len(chart) < 100_000
    before, peak, after = [(float(top), float(width)) for top, width in re.findall(r"V([\d.]+)h([\d.]+)", chart)]
    assert peak == (24.0, pytest.approx(640 / 240, rel=1e-3)), "the top of the chart, for one of its stretches"
    assert before[0] == after[0] > 280


def test_every_purpose_has_a_letter_and_a_colour_of_its_own() -> None:
    assert set(LETTERS) == set(PURPOSE_FILL) == set(Purpose)
    assert len(set(LETTERS.values())) == len(set(PURPOSE_FILL.values())) == len(Purpose)


def test_what_takes_little_is_told_together_under_the_pointer() -> None:
    amounts = {Purpose.PARAMETERS: np.full(2, 995), Purpose.DATA: np.full(2, 3), Purpose.GAPS: np.full(2, 2)}
    chart = str(occupancy_chart(Occupancy(0, 1000, (), amounts), {}, None))
    assert "step 0: 1,000 B&#10;parameters 995 B&#10;all else 5 B&#10;largest: </title>" in chart


def test_a_chart_names_areas_and_what_is_there_and_where_the_limit_is() -> None:
    chart = str(occupancy_chart(SMALL, {"backward": 3}, 1500))
    for purpose in ("parameters", "activations", "inside of segments"):
        assert f">{purpose}</text>" in chart
    assert ">peak 1.2 KiB</text>" in chart
    assert ">limit 1.5 KiB</text>" in chart
    assert ">backward 3</text>" in chart
    assert "step 2: 1.2 KiB&#10;activations 600 B&#10;parameters 500 B&#10;inside of segments 100 B&#10;" in chart
    assert "largest: &lt;h&gt; 600 B, w 500 B</title>" in chart
    assert "limit" not in str(occupancy_chart(SMALL, {}, 1 << 20)), "one far above would leave no room for the rest"
