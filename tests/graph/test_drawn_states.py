"""Flat steps that are drawn: no state is lost in silence, and no pair is wrong without a word."""

from __future__ import annotations

import re

import pytest

from drawn_steps import drawn
from planner.errors import UsageError
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.step.state_warnings import state_warnings


def unsaid(seed: int) -> list[str]:
    """The true pairs that are neither found nor named, and the wrong ones that nothing is said of."""
    model, true, _ = drawn(seed)
    found: dict[str, str] = {}
    try:
        graph = graph_from_proto(model)
        found = {pair.current: pair.following for pair in graph.state}
        text = " ".join(state_warnings(graph))
    except UsageError as error:
        text = " ".join(error.facts)
    said = set(re.findall(r"v\d+", text))
    wrong = {pair for pair in found.items() if pair not in true.items()}
    lost = {pair for pair in true.items() if pair not in found.items()}
    return [
        f"{current}: {following}" for current, following in sorted(wrong | lost) if not {current, following} <= said
    ]


def lost(seeds: range) -> dict[int, list[str]]:
    return {seed: pairs for seed in seeds if (pairs := unsaid(seed))}


def test_nothing_is_lost_in_silence() -> None:
    assert lost(range(12)) == {}


@pytest.mark.nightly
def test_nothing_is_lost_in_silence_in_many_steps() -> None:
    assert lost(range(12, 600)) == {}
