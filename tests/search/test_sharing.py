"""Sharing as a choice: against all ways to share on small graphs, and what is shared in plans that pay twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from fast_suite import chosen, spread
from integer_programme import least_of_all
from planner import opdefs
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import UNCUT, Replicate, Tiling
from planner.artifacts.program import Fetch
from planner.cost.tables import CostTables, Request
from planner.features.zoo.models import build
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.step.deliveries import is_delivery
from planner.partition.build import partition
from planner.planning import deliveries
from planner.planning.deliveries import shared
from planner.planning.paid_again import paid_for_twice, savings
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import EffortName
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

DESCRIPTIONS = opdefs.standard()


def products(shape: tuple[int, int], *readers: str, wide: int = 8) -> Graph:
    """Ops that read one input: ``rows`` and ``columns`` multiply it by a matrix from the right and from the left."""
    height, width = shape
    tensors, ops = {"x": (height, width)}, []
    for number, kind in enumerate(readers):
        name = f"{kind}{number}"
        other, made = f"{name}.w", f"{name}.y"
        tensors[other] = (width, wide) if kind == "rows" else (wide, height)
        tensors[made] = (height, wide) if kind == "rows" else (wide, width)
        ops.append(Op(name, "MatMul", ("x", other) if kind == "rows" else (other, "x"), (made,)))
    every = {name: Tensor(name, size, DType.FLOAT32) for name, size in tensors.items()}
    made_by_ops = tuple(op.outputs[0] for op in ops)
    return Graph("small", every, tuple(ops), tuple(n for n in tensors if n not in made_by_ops), made_by_ops, {})


def planned(
    graph: Graph,
    workers: int,
    rules: Rules = NO_RULES,
    effort: EffortName = "normal",
    *,
    partitioned_inputs: bool = False,
) -> tuple[Decision, Decision]:
    """The plan in which every reader has its own delivery, and the one in which some may be shared."""
    ask = SearchRequest(workers, rules=rules, effort=effort, partitioned_inputs=partitioned_inputs)
    ops = DESCRIPTIONS.bind_all(graph)
    plain = decide(graph, ops, ask)
    return plain, shared(plain, DESCRIPTIONS, ask)


def moved(decided: Decision) -> int:
    return decided.moved_bytes


def missing(needed: Boxes, held: Boxes) -> int:
    return int((needed.elements - needed.overlap(held)).sum())


def groupings(readers: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put readers in groups."""
    if not readers:
        yield []
        return
    for rest in groupings(readers[1:]):
        yield [[readers[0]], *rest]
        for at, group in enumerate(rest):
            yield [*rest[:at], [readers[0], *group], *rest[at + 1 :]]


def least_with_sharing(graph: Graph, ways: int) -> int:
    """The fewest bytes over all tilings of the input, strategies, groups of readers and what each group has delivered.

    All inputs arrive in disjoint tiles; of a group of several the delivery may be held in any tiling.
    """
    ops = DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, ways, partitioned_inputs=True)
    tables = CostTables()

    def boxes(tiling: Tiling, name: str) -> Boxes:
        return tiling.boxes(index_space(graph.tensors[name].shape))

    def tilings(name: str) -> list[Tiling]:
        return list(problem.extensions(problem.variables[problem.variable_of_tensor[name]], UNCUT, ways))

    found = []
    for bound in ops:
        own = []
        for strategy in problem.extensions(problem.variables[problem.variable_of_op[bound.op.name]], UNCUT, ways):
            reads = bound.reads(bound.ranges(strategy))
            slot = bound.op.inputs.index("x")
            other = bound.op.inputs[1 - slot]
            rest = min(missing(reads[1 - slot].boxes, boxes(tiling, other)) for tiling in tilings(other))
            made = bound.op.outputs[0]
            asked = Request(bound, False, 0, graph.tensors[made], tuple(tilings(made)), (strategy,))
            (table,) = tables.bytes_of([asked])
            own.append((reads[slot].boxes, rest * 4 + int(table.min())))
        found.append(own)
    shape = graph.tensors["x"].shape
    everywhere = [boxes(tiling, "x") for tiling in (*tilings("x"), Tiling((Replicate(),), (ways,)))]
    best = None
    for held, picked in itertools.product(tilings("x"), itertools.product(*found)):
        tile = held.boxes(shape)
        fixed = sum(rest for _, rest in picked)
        needs = [need for need, _ in picked]
        for groups in groupings(range(len(needs))):
            elements = 0
            for group in groups:
                direct = sum(missing(needs[reader], tile) for reader in group)
                through = (
                    missing(delivered, tile) + sum(missing(needs[reader], delivered) for reader in group)
                    for delivered in everywhere
                )
                elements += direct if len(group) == 1 else min(direct, *through)
            total = fixed + 4 * elements
            best = total if best is None else min(best, total)
    assert best is not None
    return best


GRAPHS = {
    "two of a kind": products((8, 6), "rows", "rows"),
    "three of a kind": products((12, 12), "rows", "rows", "rows"),
    "both kinds": products((8, 12), "rows", "columns"),
    "two of both kinds": products((7, 9), "rows", "columns", "rows", "columns"),
    "wide": products((4, 30), "rows", "columns", "rows"),
    "high": products((30, 5), "columns", "columns", "rows"),
}
CASES = list(itertools.product(GRAPHS, [2, 3, 4]))


@pytest.mark.parametrize(
    ("name", "ways"),
    chosen(CASES, fast=[(name, ways) for name, ways in CASES if name != "two of both kinds" or ways == 4]),
)
def test_no_way_to_share_is_cheaper_than_the_one_that_is_found(name: str, ways: int) -> None:
    graph = GRAPHS[name]
    cut = decide(graph, DESCRIPTIONS.bind_all(graph), SearchRequest(ways)).cuts
    plain, found = planned(graph, ways, effort="thorough", partitioned_inputs=True)
    assert moved(found) <= moved(plain)
    if len(cut) == 1:
        assert moved(found) == least_with_sharing(graph, ways)


def test_some_of_these_plans_share() -> None:
    plans = [planned(graph, 2, effort="thorough", partitioned_inputs=True) for graph in GRAPHS.values()]
    assert sum(moved(found) < moved(plain) for plain, found in plans) >= 2


def fetched(decided: Decision, tensor: str) -> int:
    """How many fetches of other workers' parts of a tensor the program has."""
    program = partition(decided.graph, decided.ops, decided).program
    return sum(
        isinstance(step, Fetch) and worker.buffers[step.target].tensor == tensor and step.predicted_bytes > 0
        for worker in program.workers
        for step in worker.steps
    )


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_readers_that_need_the_same_pay_once(workers: int) -> None:
    """Both products are held to the same strategy by their other tensors: all of x is needed everywhere, twice."""
    graph = products((12, 16), "rows", "rows", wide=64)
    pins = {"x": "S(0)", "rows0.w": "S(1)", "rows1.w": "S(1)", "rows0.y": "S(1)", "rows1.y": "S(1)"}
    plain, found = planned(graph, workers, Rules(pins))
    brought = (workers - 1) * 12 * 16 * 4
    assert plain.tensor_bytes["x"] == 2 * brought
    assert found.tensor_bytes["x"] == brought
    assert moved(plain) - moved(found) == brought
    (delivery,) = found.deliveries
    assert delivery.tensor == "x"
    assert delivery.readers == ("rows0", "rows1")
    assert fetched(found, "x") == workers == fetched(plain, "x") // 2


def test_readers_that_need_different_parts_share_nothing() -> None:
    """One product needs half of x's rows, the other half of its columns; both together would be much more."""
    graph = products((12, 12), "rows", "columns", wide=64)
    pins = {"x": "S(0)/2 S(1)/2", "rows0.w": "R/2 S(1)/2", "rows0.y": "S(0)/2 S(1)/2"}
    pins |= {"columns1.w": "S(0)/2 R/2", "columns1.y": "S(0)/2 S(1)/2"}
    for effort in ("quick", "normal", "thorough"):
        plain, found = planned(graph, 4, Rules(pins), effort)
        paying = paid_for_twice(plain, CostTables())
        assert [payer.moved_bytes for payer in paying["x"]] == [4 * 36 * 4, 4 * 36 * 4]
        assert not savings(plain, paying)
        assert moved(found) == moved(plain)
        assert not found.deliveries


def test_who_needs_a_part_reads_it_of_what_is_delivered_to_others() -> None:
    """One product needs all of x, the other its columns, which are a part of that."""
    graph = products((12, 12), "rows", "columns", wide=64)
    pins = {"x": "S(0)", "rows0.w": "S(1)", "rows0.y": "S(1)", "columns1.w": "R", "columns1.y": "S(1)"}
    plain, found = planned(graph, 2, Rules(pins))
    everything, columns = 2 * 72 * 4, 2 * 36 * 4
    assert plain.tensor_bytes["x"] == everything + columns
    assert found.tensor_bytes["x"] == everything
    (delivery,) = found.deliveries
    assert str(found.tilings[delivery.name]) == "R/2"


def test_a_plan_that_pays_for_nothing_twice_is_left_as_it_is() -> None:
    graph = build("mlp-3x64", batch=32)
    plain, found = planned(graph, 4)
    assert found == plain
    assert found.graph is plain.graph


@pytest.mark.parametrize(
    ("model", "effort"), spread(["gpt-1x32", "lenet-5"], ["quick", "thorough", "normal"], one_of=3)
)
def test_every_delivery_that_is_kept_saves_bytes(model: str, effort: EffortName) -> None:
    """Taken out, with what reads it reading its source, each of them makes the plan dearer."""
    plain, found = planned(build(model, batch=4), 4, Rules(replicate="none"), effort)
    plan = found
    assert moved(found) < moved(plain)
    assert plan.cost < plain.cost
    assert partition(found.graph, found.ops, plan).program.predicted_bytes == plan.moved_bytes
    tables = CostTables()
    bound = {one.op.name: one for one in found.ops}
    for delivery in plan.deliveries:

        def brought(op: str, held_as: str, name: str) -> int:
            found_bytes = 0
            for slot, first in bound[op].delivered_slots.items():
                if slot == first and bound[op].op.inputs[slot] == name:
                    tilings, strategies = (plan.tilings[held_as],), (plan.strategies[op].tiling,)
                    table = tables.input_bytes(bound[op], slot, found.graph.tensors[name], tilings, strategies)
                    found_bytes += int(table[0, 0])
            return found_bytes

        through = sum(brought(op, delivery.name, delivery.name) for op in delivery.readers)
        direct = sum(brought(op, delivery.tensor, delivery.name) for op in delivery.readers)
        assert len(delivery.readers) > 1
        assert through + brought(delivery.name, delivery.tensor, delivery.tensor) < direct


def test_what_is_searched_is_no_dearer_than_what_is_shared_as_it_is() -> None:
    graph, rules = build("mlp-5x300", batch=64), Rules(replicate="none")
    (_, quick), (plain, searched) = planned(graph, 8, rules, "quick"), planned(graph, 8, rules, "normal")
    assert moved(searched) < moved(quick) < moved(plain)
    assert quick.certified_gap is None
    assert searched.certified_gap == 0


@pytest.mark.parametrize("wide", [8, 64])
@pytest.mark.parametrize("shape", [(8, 8), (6, 10)], ids=str)
def test_what_is_shared_is_bounded_as_an_integer_programme_finds(
    shape: tuple[int, int], wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that share deliveries which no search was offered, so that the bound is of these deliveries alone."""
    monkeypatch.setattr(deliveries, "_worth_searching", lambda *_: iter(()))
    sharing = 0
    for kinds in [("rows", "rows"), ("rows", "rows", "columns"), ("rows", "columns", "columns")]:
        plain, found = planned(products(shape, *kinds, wide=wide), 4, effort="thorough", partitioned_inputs=True)
        if found.deliveries:
            sharing += 1
            problem = Problem(found.graph, found.ops, 4, True, True, True)
            assert found.certified_gap is not None
            assert (
                found.cost / (1 + found.certified_gap) <= least_of_all(problem, found.cuts) <= found.cost < plain.cost
            )
    assert sharing


def test_time_steps_share_what_they_read_of_a_weight() -> None:
    """One delivery serves all steps, forward and backward; they stay one variable, or no order could be found."""
    graph = build("rnn-1-1k", batch=4096)
    plain, found = planned(graph, 2, Rules({"layer1.recurrent": "S(0)"}))
    (delivery,) = found.deliveries
    assert (delivery.tensor, len(delivery.readers)) == ("layer1.recurrent", 39)
    brought = graph.tensors["layer1.recurrent"].size_bytes
    assert moved(plain) - moved(found) == 38 * brought
    assert found.certified_gap == 0


def test_the_same_plan_is_shared_in_the_same_way_again() -> None:
    one, other = (planned(build("lenet-5", batch=4), 4, Rules(replicate="none"))[1] for _ in range(2))
    assert one == other
    assert [op.name for op in one.graph.ops] == [op.name for op in other.graph.ops]
    assert any(map(is_delivery, one.graph.ops))
