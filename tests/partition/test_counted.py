"""What takes long beside the search tells how far it is, and asks whether it is to end."""

from __future__ import annotations

import re

import pytest

from planner import counted as counting
from planner import opdefs
from planner.counted import counted, counts_told, may_stop
from planner.features.zoo.models import mlp
from planner.partition import packing
from planner.partition.build import partition
from planner.partition.packing import best_fit
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.stop import Stop, StoppedError


def test_items_are_told_of_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_PARTS", 10)
    told: list[str] = []
    with counts_told(lambda doing, **_: told.append(doing)):
        assert list(counted(range(1_000), "placing buffers: round", 2)) == list(range(1_000))
        assert list(counted("abcd", "of few: letter", 2)) == list("abcd")
    assert told[:2] == ["placing buffers: round 5 of 1,000", "placing buffers: round 10 of 1,000"]
    assert len(told) == 199
    list(counted(range(1_000), "heard by nobody: round", 2))
    assert len(told) == 199


def test_only_what_can_be_done_without_ends() -> None:
    stop = Stop()
    stop.interrupt()
    assert len(list(counted(range(9), "needed: round", 5_000))) == 9
    with may_stop(stop), pytest.raises(StoppedError):
        list(counted(range(9), "tried: round", 5_000))
    assert stop.stopped_by == "interrupt"


def test_a_program_is_counted_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of making a program is silent: of each op, worker and segment there is a count."""
    graph = mlp(2, 16, 12)
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(4, effort="quick"))
    monkeypatch.setattr(counting, "_PARTS", 1)
    told: list[str] = []
    with counts_told(lambda doing, **_: told.append(doing)):
        partition(graph, ops, plan)
    assert {re.sub(r" \d+ of \d+", "", doing) for doing in told} == {
        "making programs: op",
        "making programs: sources of worker",
        "making programs: sums of worker",
        "making programs: comparing epoch",
        "making programs: joining op",
        "making programs: segments of worker",
        "making programs: memory of worker",
        "placing buffers of worker",
    }
    assert [doing for doing in told if doing.startswith("making programs: op")][-1].endswith(
        f" {len(ops) - 1} of {len(ops)}"
    )
    stop = Stop()
    stop.interrupt()
    with may_stop(stop), pytest.raises(StoppedError):
        partition(graph, ops, plan)


def test_rounds_of_placing_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_PARTS", 1)
    monkeypatch.setattr(packing, "least_bytes", lambda _: 0)  # so that no order reaches it
    spans = [((7 * number) % 13 * 64 + 64, number % 9, number % 9 + number % 4) for number in range(40)]
    told: list[str] = []
    with counts_told(lambda doing, **_: told.append(doing)):
        best_fit(spans)
    assert any(re.fullmatch(r"placing buffers: round \d+ of \d+", doing) for doing in told)
