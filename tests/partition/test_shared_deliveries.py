"""What is delivered once is fetched once, and is held from its first reader to its last."""

from functools import cache

import pytest

from planner import opdefs
from planner.artifacts.program import Fetch, Program, Segment
from planner.artifacts.waits import last_reads, levels
from planner.cost.tables import CostTables
from planner.features.zoo.models import build
from planner.graph.step.deliveries import SharedDelivery
from planner.partition.build import partition
from planner.partition.memory import live_spans
from planner.planning.deliveries import with_savings
from planner.planning.paid_again import Saving, paid_for_twice, savings
from planner.runtime.engine.core.check import check_programs
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

WORKERS = [2, 3, 4]


@cache
def planned(workers: int) -> tuple[Decision, Decision]:
    """A plan that gathers each weight in the forward and the backward pass, and the same with one delivery for both."""
    graph, descriptions, tables = build("mlp-3x31", batch=2000), opdefs.standard(), CostTables()
    ops = descriptions.bind_all(graph)
    pins = {f"w{layer}": "S(0)" for layer in (1, 2, 3)} | {f"x{layer}": "S(0)" for layer in range(4)}
    plain = decide(graph, ops, SearchRequest(workers, rules=Rules(pins), effort="quick", tables=tables))
    return plain, with_savings(plain, savings(plain, paid_for_twice(plain, tables)), descriptions, tables)


def program_of(decided: Decision) -> Program:
    return partition(decided.graph, decided.ops, decided).program


def tensors_fetched(program: Program, worker: int) -> list[str]:
    steps = program.workers[worker].steps
    buffers = program.workers[worker].buffers
    return [buffers[step.target].tensor for step in steps if isinstance(step, Fetch) and step.predicted_bytes]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_shared_delivery_is_one_fetch(workers: int) -> None:
    plain, shared = map(program_of, planned(workers))
    check_programs(shared.workers, shared.state)
    names = {delivery.tensor for delivery in planned(workers)[1].deliveries}
    assert {"w2", "w3"} <= names
    for worker in range(workers):
        assert [tensors_fetched(plain, worker).count(name) for name in ("w2", "w3")] == [2, 2]
        assert [tensors_fetched(shared, worker).count(name) for name in ("w2", "w3")] == [1, 1]
    saved = sum((workers - 1) * planned(workers)[0].graph.tensors[name].size_bytes for name in ("w2", "w3"))
    assert plain.predicted_bytes - shared.predicted_bytes == saved


@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_delivered_is_held_until_its_last_reader(workers: int) -> None:
    decided = planned(workers)[1]
    program = program_of(decided)
    level = levels(program.workers)
    reads = last_reads(program.workers, level)
    assert decided.deliveries
    for worker in program.workers:
        spans = live_spans(worker, level, reads)
        for delivery in decided.deliveries:
            reading = [
                number
                for number, step in enumerate(worker.steps)
                if isinstance(step, Segment) and delivery.name in step.inputs
            ]
            fetching = [n for n, s in enumerate(worker.steps) if isinstance(s, Fetch) and s.target == delivery.name]
            size, first, last = spans[delivery.name]
            assert len(fetching) == 1
            assert first <= fetching[0] < reading[0]
            assert last >= reading[-1] > reading[0]
            assert size == decided.graph.tensors[delivery.tensor].size_bytes
            assert worker.arena is not None
            others = [
                (worker.arena.offsets[name], spans[name])
                for name in worker.buffers
                if name != delivery.name and spans[name][1] <= last and first <= spans[name][2] and spans[name][0]
            ]
            start = worker.arena.offsets[delivery.name]
            assert all(at + span[0] <= start or start + size <= at for at, span in others)


def test_where_a_worker_has_what_is_delivered_nothing_is_copied() -> None:
    """A delivery in the tensor's own tiling has no buffer: its readers read the tile."""
    plain = planned(2)[0]
    delivery = SharedDelivery("again", "w2", ("x2_op", "x1.grad_op"))
    same = Saving(delivery, plain.tilings["w2"], paid_bytes=(0, 0), once_bytes=0)
    delivered = with_savings(plain, [same], opdefs.standard(), CostTables())
    assert len(delivered.ops) == len(plain.ops) + 1
    program = program_of(delivered)
    assert program.predicted_bytes == program_of(plain).predicted_bytes
    assert program.peak_bytes == program_of(plain).peak_bytes
    names = {one.name for one in delivered.deliveries}
    assert all(names.isdisjoint(worker.buffers) for worker in program.workers)
