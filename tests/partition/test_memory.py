"""The static memory plan: nothing that is needed is written over, and little is wasted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import NodeProto, helper

from planner import opdefs
from planner.artifacts.in_place import overwriting
from planner.artifacts.program import Segment, WorkerProgram
from planner.artifacts.waits import data_waits, joined_waits, last_local_reads, last_reads, levels, stuck, writers
from planner.artifacts.worker_model import make_body
from planner.errors import ModelError
from planner.features.zoo.models import mlp
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.partition.build import partition, unplaced
from planner.partition.memory import live_spans
from planner.partition.packing import ALIGNMENT, Span, best_fit, least_bytes
from planner.partition.segments import Partitioned
from planner.partition.workspace import workspace_bytes
from planner.runtime.engine.core.check import check_overwriting, check_programs
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest


@st.composite
def span(draw: st.DrawFn) -> Span:
    first = draw(st.integers(0, 12))
    return draw(st.integers(1, 1000)), first, draw(st.integers(first, 12))


def assert_apart(spans: list[Span], offsets: Sequence[int], size: int) -> None:
    for number, ((length, first, last), offset) in enumerate(zip(spans, offsets, strict=True)):
        assert offset % ALIGNMENT == 0
        assert offset + length <= size
        for (other_length, start, stop), other in zip(spans[:number], offsets, strict=False):
            if first <= stop and start <= last:
                assert offset + length <= other or other + other_length <= offset


@given(st.lists(span(), min_size=1, max_size=25))
def test_what_is_needed_at_the_same_time_does_not_overlap(spans: list[Span]) -> None:
    offsets, size = best_fit(spans)
    assert least_bytes(spans) <= size <= sum(-(-span[0] // ALIGNMENT) * ALIGNMENT for span in spans)
    assert_apart(spans, offsets, size)


@given(st.lists(span(), min_size=1, max_size=25), st.integers(0, 30_000))
def test_an_arena_is_not_made_smaller_than_is_enough(spans: list[Span], enough: int) -> None:
    smallest, (_, size) = best_fit(spans)[1], best_fit(spans, enough)
    assert smallest <= size <= max(smallest, enough)


@given(st.lists(span(), min_size=1, max_size=25), st.integers(0, 30_000))
@example(  # above a limit that no arena keeps to, less work may be done
    spans=[(1, 0, 1), (1, 0, 1), (1, 0, 2), (1, 0, 3), (65, 0, 2), (385, 0, 0), (65, 1, 3), (321, 1, 2)], limit=1
)
def test_a_limit_makes_no_arena_too_large_and_keeps_it_sound(spans: list[Span], limit: int) -> None:
    usual, (offsets, size) = best_fit(spans)[1], best_fit(spans, limit_bytes=limit)
    assert least_bytes(spans) <= size
    assert size <= max(usual, limit) or least_bytes(spans) > limit, "what keeps to a limit without asking still does"
    assert_apart(spans, offsets, size)
    assert best_fit(spans, limit_bytes=limit) == (offsets, size), "the lots are the same each time"
    assert best_fit(spans, limit, limit)[1] <= max(size, limit), "what fits by a trial fits"


@pytest.mark.slow
def test_a_limit_that_orders_do_not_reach_is_reached_by_lot() -> None:
    graph = rnn(2, 256, batch=64, steps=10)
    ops = opdefs.standard().bind_all(graph)
    program = unplaced(graph, ops, decide(graph, ops, SearchRequest(4, effort="quick")), lean=True)
    least, usual = max(program.least_peaks), max(program.placed().program.peak_bytes)
    assert least < usual
    reached = program.placed(limit_bytes=least).program
    assert max(reached.peak_bytes) < usual
    check_programs(reached.workers, reached.state)


def test_buffers_that_follow_each_other_share_a_place() -> None:
    offsets, size = best_fit([(100, 0, 1), (128, 2, 3), (64, 0, 3), (10, 4, 4)])
    assert size == 192
    assert offsets[0] == offsets[1]


def planned(workers: int) -> Partitioned:
    graph = mlp(4, 64, 128)
    ops = opdefs.standard().bind_all(graph)
    return partition(graph, ops, decide(graph, ops, SearchRequest(workers)))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8])
def test_an_arena_is_hardly_larger_than_what_is_needed_at_once(workers: int) -> None:
    program = planned(workers).program
    level = levels(program.workers)
    reads = last_reads(program.workers, level)
    for worker in program.workers:
        assert worker.arena is not None
        spans = live_spans(worker, level, reads)
        for pair in program.state:
            if worker.arena.offsets[pair.following] == worker.arena.offsets[pair.current]:
                del spans[pair.following]
        assert worker.arena.size_bytes <= 1.05 * least_bytes(list(spans.values()))
        assert worker.arena.size_bytes <= sum(buffer.size_bytes for buffer in worker.buffers.values()) + 64 * 100
    assert program.peak_bytes == tuple(w.arena_bytes + w.workspace_bytes for w in program.workers)


def test_weights_are_updated_in_place() -> None:
    program = planned(4).program
    assert len(program.workers) == 4
    assert program.state
    for worker in program.workers:
        assert worker.arena is not None
        assert all(worker.arena.offsets[pair.following] == worker.arena.offsets[pair.current] for pair in program.state)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_random_plans_have_sound_arenas(
    random_plan: Callable[[Problem, int, int], Decision], workers: int, seed: int
) -> None:
    graph = mlp(3, 12, 16)
    ops = opdefs.standard().bind_all(graph)
    program = partition(graph, ops, random_plan(Problem(graph, ops, workers), workers, seed)).program
    check_programs(program.workers, program.state)
    for waits in (data_waits(program.workers), joined_waits(program.workers)):
        assert not stuck(waits)


def moved(program: WorkerProgram, buffer: str, offset: int) -> WorkerProgram:
    assert program.arena is not None
    return replace(program, arena=replace(program.arena, offsets={**program.arena.offsets, buffer: offset}))


def test_a_layout_that_is_wrong_is_refused() -> None:
    program = planned(2).program
    first, *rest = program.workers
    assert first.arena is not None
    x, w = first.arena.offsets["x0"], first.arena.offsets["w2"]
    assert x != w
    with pytest.raises(ModelError, match="inconsistent") as caught:
        check_programs([moved(first, "w2", x), *rest], program.state)
    assert "lie in one place at the same time" in caught.value.facts[0]
    with pytest.raises(ModelError, match="inconsistent") as caught:
        check_programs([moved(first, "x0", first.arena.size_bytes), *rest], program.state)
    assert "does not lie in the arena" in caught.value.facts[0]
    with pytest.raises(ModelError, match="inconsistent") as caught:
        check_programs([moved(first, "x0", x + 1), *rest], program.state)
    assert "does not lie in the arena" in caught.value.facts[0]
    with pytest.raises(ModelError, match="inconsistent"):
        check_programs(program.workers)  # in-place updates of what nobody calls state


def test_a_layout_is_refused_if_two_buffers_meet_in_place_and_time() -> None:
    program = planned(2).program
    first, *rest = program.workers
    assert first.arena is not None
    ready, read, after = writers(first), last_local_reads(first), len(first.steps) + 1
    always = {*first.collected, *first.loaded, *first.fixed}
    in_place = {frozenset((pair.current, pair.following)) for pair in program.state}
    draw = np.random.default_rng(0)
    refused = []
    for name in draw.choice([one for one in first.buffers if one not in first.collected], 100):
        offset = first.arena.offsets[draw.choice(list(first.buffers))]
        trial = moved(first, str(name), offset)
        assert trial.arena is not None
        spans = {
            one: (
                trial.arena.offsets[one],
                trial.arena.offsets[one] + buffer.size_bytes,
                ready[one],
                after if one in always else max(ready[one], read.get(one, 0)),
            )
            for one, buffer in first.buffers.items()
        }
        is_wrong = spans[name][1] > trial.arena.size_bytes or any(
            a[0] < b[1] and b[0] < a[1] and a[2] <= b[3] and b[2] <= a[3]
            for (one, a), (other, b) in combinations(spans.items(), 2)
            if frozenset((first.buffers[one].tensor, first.buffers[other].tensor)) not in in_place or a[0] != b[0]
        )
        facts: tuple[str, ...] = ()
        try:
            check_programs([trial, *rest], program.state)
        except ModelError as error:
            facts = error.facts
        refused.append(any("in one place" in fact or "does not lie" in fact for fact in facts))
        assert refused[-1] == is_wrong, (name, offset)
    assert 0 < sum(refused) < len(refused)


def is_over(nodes: Sequence[NodeProto], *, reads: Sequence[str], makes: Sequence[str]) -> bool:
    """Whether the first that a function makes may lie over the first that it reads."""
    return overwriting({"f": make_body("f", reads, makes, nodes, 21)})("f", 0, 0)


def test_writing_over_an_input_is_legal_where_nothing_else_reads_it() -> None:
    node = helper.make_node
    update = [node("Mul", ["g", "rate"], ["u"]), node("Sub", ["w", "u"], ["next"])]
    assert is_over(update, reads=["w", "g"], makes=["next"])
    decayed = [node("Mul", ["w", "g"], ["u"]), node("Sub", ["w", "u"], ["next"])]
    assert is_over(decayed, reads=["w", "g"], makes=["next"])
    read_elsewhere = [node("Sub", ["w", "g"], ["next"]), node("MatMul", ["w", "g"], ["y"])]
    assert not is_over(read_elsewhere, reads=["w", "g"], makes=["next", "y"]), "the product may run after the update"
    assert not is_over([node("MatMul", ["w", "g"], ["next"])], reads=["w", "g"], makes=["next"])
    foreign = [node("Sub", ["w", "g"], ["next"], domain="mine")]
    assert not is_over(foreign, reads=["w", "g"], makes=["next"]), "another's Sub may do anything"
    assert not is_over([node("Neg", ["g"], ["next"])], reads=["w", "g"], makes=["next", "w"]), "w is handed out"
    inside = helper.make_graph(
        [node("MatMul", ["w", "g"], ["in"])], "inside", [], [helper.make_empty_tensor_value_info("in")]
    )
    chosen = node("If", ["c"], ["y"], then_branch=inside, else_branch=inside)
    assert not is_over([node("Sub", ["w", "g"], ["next"]), chosen], reads=["w", "g", "c"], makes=["next", "y"])


def test_the_workspace_of_a_body_is_what_lives_inside_at_once() -> None:
    node = helper.make_node
    body = make_body(
        "f",
        ["a"],
        ["z"],
        [
            node("MatMul", ["a", "a"], ["b"]),
            node("Relu", ["b"], ["c"]),  # takes over b
            node("MatMul", ["c", "a"], ["d"]),  # c and d
            node("Add", ["d", "c"], ["e"]),
            node("MatMul", ["e", "a"], ["z"]),
        ],
        21,
    )
    kind = [((8, 8), DType.FLOAT32)]
    assert workspace_bytes(body, kind, kind) == 2 * 8 * 8 * 4


def test_the_order_of_steps_rises() -> None:
    found = levels(planned(4).program.workers)
    assert [len(worker) > 1 for worker in found] == 4 * [True]
    for worker in found:
        assert np.all(np.diff(worker) > 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [("MatMul", "Add"), ("MatMul", "Identity"), ("Gemm", "Tanh"), ("Softmax", "Neg"), ("Sigmoid", "Mul")],
)
def test_a_state_is_updated_in_a_segment_behind_what_reads_it_otherwise(
    plan_state: Callable[..., Partitioned], first: str, second: str
) -> None:
    """Else the runtime makes one kernel of both, which writes while it reads."""
    found = plan_state(first, second)
    (worker,) = found.program.workers
    assert worker.arena is not None
    assert next(step.ops for step in worker.steps if isinstance(step, Segment)) == ("first",)
    assert worker.arena.offsets["h"] == worker.arena.offsets["next"]
    check_overwriting(worker, found.bodies)


def test_a_state_stays_where_what_makes_the_next_reads_it_otherwise(plan_state: Callable[..., Partitioned]) -> None:
    """And where somebody lays the next one over it all the same, that is refused."""
    found = plan_state("Neg", "MatMul")
    (worker,) = found.program.workers
    assert worker.arena is not None
    assert worker.arena.offsets["h"] != worker.arena.offsets["next"]
    check_overwriting(worker, found.bodies)
    trial = moved(worker, "next", worker.arena.offsets["h"])
    check_programs([trial], found.program.state)
    with pytest.raises(ModelError, match="inconsistent") as caught:
        check_overwriting(trial, found.bodies)
    assert "writes 'next' over 'h' while it reads that" in caught.value.facts[0]


@pytest.fixture
def plan_state() -> Callable[..., Partitioned]:
    """A state that two ops lead to the next, beside a larger product, on one worker."""

    def make(first: str, second: str) -> Partitioned:
        shapes = {name: Tensor(name, (16, 16), DType.FLOAT32) for name in ("h", "a", "b", "m", "next")}
        shapes |= {name: Tensor(name, (256, 256), DType.FLOAT32) for name in ("u", "v", "z")}
        beside = {"MatMul": "h", "Gemm": "h", "Mul": "h", "Add": "b"}
        ops = (
            Op("first", first, ("h", "a") if first in beside else ("h",), ("m",)),
            Op("second", second, ("m", beside[second]) if second in beside else ("m",), ("next",)),
            Op("large", "MatMul", ("u", "v"), ("z",)),
        )
        given, made = ("h", "a", "b", "u", "v"), ("next", "z")
        graph = Graph("cell", shapes, ops, given, made, {}, state=(StatePair("h", "next"),))
        bound = opdefs.standard().bind_all(graph)
        return partition(graph, bound, decide(graph, bound, SearchRequest(1)))

    return make
