"""What workers send each other: every remote box of every fetch, once, in time, and as many bytes as predicted."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.artifacts.program import Fetch, WorkerProgram
from planner.artifacts.waits import joined_waits
from planner.features.zoo import models as zoo
from planner.partition.build import partition
from planner.runtime.engine.mpi.messages import Post, messages, with_arrivals
from planner.search.model.problem import Problem
from random_plans import random_plan

MODELS = {
    "mlp": lambda: zoo.mlp(3, 24, 36, learning_rate=0.001),
    "lenet-5": lambda: zoo.build("lenet-5", batch=8),
    "rnn-1-1k": lambda: zoo.build("rnn-1-1k", batch=8),
}


def random_programs(name: str, workers: int, seed: int) -> tuple[WorkerProgram, ...]:
    """The programs of a plan that is drawn at random, good or bad."""
    graph = MODELS[name]()
    ops = opdefs.standard().bind_all(graph)
    return partition(graph, ops, random_plan(Problem(graph, ops, workers), workers, seed)).program.workers


def check(programs: tuple[WorkerProgram, ...], posts: tuple[Post, ...]) -> None:
    for program, post in zip(programs, posts, strict=True):
        wanted = Counter(
            (source.worker, source.buffer, piece.region, number, index, part)
            for number, step in enumerate(program.steps)
            if isinstance(step, Fetch)
            for index, piece in enumerate(step.pieces)
            for part, source in enumerate(piece.sources)
            if source.worker != program.worker
        )
        there = Counter((m.sender, m.buffer, m.region, m.before, m.piece, m.part) for m in post.received)
        assert there == wanted
        for number, step in enumerate(program.steps):
            moved = sum(message.size_bytes for message in post.received if message.before == number)
            assert moved == (step.predicted_bytes if isinstance(step, Fetch) else 0)
        for other in range(len(programs)):
            sent = [message for message in posts[other].sent if message.reader == program.worker]
            assert sent == [message for message in post.received if message.sender == other]
            assert [message.after for message in sent] == sorted(message.after for message in sent)


def check_waits(programs: tuple[WorkerProgram, ...], posts: tuple[Post, ...]) -> None:
    """Before a step reads a box, its worker has waited for a count at which the box has been sent."""
    for waits, post in zip(joined_waits(programs), posts, strict=True):
        reached: dict[int, int] = {}
        every = with_arrivals(waits, post)
        for number, wanted in enumerate(every):
            for other, count in wanted.items():
                assert count > reached.get(other, -1), "a wait for what has been waited for"
                reached[other] = count
            for message in post.received:
                if message.before == number:
                    assert reached.get(message.sender, -1) >= message.after
        assert [{o: c for o, c in wanted.items() if c} for wanted in every] == [dict(wanted) for wanted in waits]


@given(st.sampled_from(["mlp", "lenet-5"]), st.integers(2, 4), st.integers(0, 2**32 - 1))
@examples(24)
def test_messages_are_the_remote_boxes(name: str, workers: int, seed: int) -> None:
    programs = random_programs(name, workers, seed)
    posts = messages(programs)
    check(programs, posts)
    check_waits(programs, posts)


@pytest.mark.slow
@given(st.sampled_from(sorted(MODELS)), st.integers(2, 9), st.integers(0, 2**32 - 1))
@examples(40)
def test_messages_are_the_remote_boxes_of_larger_plans(name: str, workers: int, seed: int) -> None:
    programs = random_programs(name, workers, seed)
    posts = messages(programs)
    check(programs, posts)
    check_waits(programs, posts)
