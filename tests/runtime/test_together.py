"""Which fetches run as one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from planner.algebra.region import Region
from planner.artifacts.program import Arena, Buffer, Fetch, Piece, Segment, Source, Step, WorkerProgram
from planner.graph.core.model import DType
from planner.runtime.engine.core.together import launches

ROW = Region((0,), (4,))
FAR = Source(1, "x")


def fetch(target: str, source: Source = FAR) -> Fetch:
    return Fetch(f"fetch {target}", target, (Piece(ROW, (source,)),), None, 16)


def program(steps: Sequence[Step], offsets: Mapping[str, int] | None = None) -> WorkerProgram:
    """Worker 0, with buffers a to e of 16 bytes each."""
    buffers = {name: Buffer(name, name.upper(), ROW, (4,), DType.FLOAT32) for name in "abcde"}
    arena = None
    if offsets is not None:
        arena = Arena(640, {name: 128 * number for number, name in enumerate(buffers)} | dict(offsets), 0)
    return WorkerProgram(0, buffers, tuple(steps), (), (), (), arena)


def found(steps: Sequence[Step], offsets: Mapping[str, int] | None = None, **waits: int) -> list[str]:
    """The targets of each launch; ``waits`` has counts of worker 1 by the target of the fetch that waits for it."""
    wanted = tuple({1: waits[step.target]} if getattr(step, "target", None) in waits else {} for step in steps)
    mine = program(steps, offsets)
    return [
        "".join(getattr(mine.steps[number], "target", "-") for number in one)
        for one in launches(mine, wanted, together=True)
    ]


def test_neighbours_that_wait_for_nobody_are_one_launch() -> None:
    steps = [fetch("a"), fetch("b"), fetch("c")]
    assert found(steps) == ["abc"]
    assert launches(program(steps), ({}, {}, {}), together=False) == (range(1), range(1, 2), range(2, 3))


def test_a_wait_begins_a_launch() -> None:
    assert found([fetch("a"), fetch("b"), fetch("c")], a=1, c=2) == ["ab", "c"]


def test_a_segment_stands_alone() -> None:
    assert found([fetch("a"), Segment("s", "f", ("a",), ("e",), ()), fetch("b"), fetch("c")]) == ["a", "-", "bc"]


@pytest.mark.parametrize(
    ("offsets", "launched"),
    [({}, ["abc"]), ({"b": 8}, ["a", "bc"]), ({"c": 0}, ["ab", "c"])],
    ids=["apart", "neighbours overlap", "the third lies where the first does"],
)
def test_targets_in_one_place_are_written_one_after_the_other(offsets: dict[str, int], launched: list[str]) -> None:
    assert found([fetch("a"), fetch("b"), fetch("c")], offsets) == launched


def test_a_fetch_of_what_another_one_wrote_comes_after_it() -> None:
    assert found([fetch("a"), fetch("b"), fetch("c", Source(0, "a"))]) == ["ab", "c"]
    assert found([fetch("a"), fetch("b"), fetch("c", Source(1, "a"))]) == ["abc"], "worker 1 has a buffer a, too"


def test_what_a_fetch_reads_is_not_written_beside_it() -> None:
    steps = [fetch("b", Source(0, "a")), fetch("c")]
    assert found(steps, {}) == ["bc"]
    assert found(steps, {"c": 0}) == ["b", "c"], "c lies where a does"
