"""Deep networks planned by short ones."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import chosen, examples
from planner import opdefs
from planner.algebra.tiling import Replicate, Shard, Tiling
from planner.features.zoo import models as zoo
from planner.graph.compare.structure import in_order_of_places
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search import decide as deciding
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import MANY_OPS
from planner.search.model.problem import Problem
from planner.search.repeats import runs
from planner.search.repeats.runs import Wiring, find_runs
from planner.search.repeats.shortened import Shortened, Whole, shortened
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Reordered = Callable[[Graph, int], Graph]
DEEP = ("gpt-12x64-2h", "resnet-101")


def bound(graph: Graph) -> tuple[BoundOp, ...]:
    return opdefs.standard().bind_all(graph)


def quick(graph: Graph, workers: int) -> Decision:
    return decide(graph, bound(graph), SearchRequest(workers, effort="quick"))


def true_bytes(graph: Graph, plan: Decision, workers: int) -> dict[str, int]:
    """What the plan moves by the tables of the whole graph; these must say its excess as well."""
    problem = Problem(graph, bound(graph), workers, with_partial_sums=True)
    composites = [plan.tilings[one.tensors[0]] if one.op is None else None for one in problem.variables]
    for name, number in problem.variable_of_op.items():
        composites[number] = plan.strategies[name].tiling
    found = dict.fromkeys(plan.tilings, 0)
    every = [one for one in composites if one is not None]
    for link, amount in zip(problem.links, problem.link_bytes(every), strict=True):
        found[link.name] += amount
    assert plan.excess_bytes == sum(problem.op_charges(every))
    assert plan.cost == problem.cost(every)
    repeated = (problem.tables.repeated(one, plan.strategies[one.op.name].tiling) for one in problem.ops)
    assert plan.repeated_bytes == sum(repeated)
    return found


def chain(
    blocks: int,
    *,
    odd: int | None = None,
    watched: int | None = None,
    result: int | None = None,
    all_read: bool = False,
) -> Graph:
    """Blocks of MatMul, Relu and Tanh with weights of their own.

    Args:
        blocks: how many.
        odd: in this one an op is another one.
        watched: what this one makes is read by the graph's last op.
        result: what this one makes is a result.
        all_read: all blocks add what the first one makes.
    """
    tensors = {"x0": Tensor("x0", (64, 64), DType.FLOAT32)}
    ops = []
    for number in range(blocks):
        names = [f"{letter}{number}" for letter in "wabx"]
        names[3] = f"x{number + 1}"
        tensors |= {name: Tensor(name, (64, 64), DType.FLOAT32) for name in names}
        weight, product, relu, tanh = names
        ops += [
            Op(f"multiply{number}", "MatMul", (f"x{number}", weight), (product,)),
            Op(f"relu{number}", "Sigmoid" if number == odd else "Relu", (product,), (relu,)),
            Op(f"tanh{number}", "Add", (relu, "a0"), (tanh,))
            if all_read
            else Op(f"tanh{number}", "Tanh", (relu,), (tanh,)),
        ]
    last = f"x{blocks}"
    if watched is not None:
        tensors["sum"] = Tensor("sum", (64, 64), DType.FLOAT32)
        ops.append(Op("sum", "Add", (last, f"a{watched}"), ("sum",)))
        last = "sum"
    inputs = ("x0", *(f"w{number}" for number in range(blocks)))
    return Graph("chain", tensors, tuple(ops), inputs, (last, *([] if result is None else [f"a{result}"])), {})


@pytest.mark.parametrize("name", DEEP)
def test_a_short_network_is_a_graph_of_its_own(name: str) -> None:
    graph = in_order_of_places(zoo.build(name))
    ops = bound(graph)
    short = shortened(graph, ops)
    assert short is not None
    assert len(short.ops) < 0.8 * len(ops)
    check_graph(short.graph)
    assert {one.op.op_type for one in short.ops} == {one.op.op_type for one in ops}


@pytest.mark.parametrize(
    ("name", "workers"),
    chosen([("gpt-12x64-2h", 4), ("gpt-12x64-2h", 3), ("resnet-101", 2)], fast=[("gpt-12x64-2h", 4)]),
)
def test_the_plan_moves_what_it_says_and_no_more_than_one_of_all_blocks(
    monkeypatch: pytest.MonkeyPatch, name: str, workers: int
) -> None:
    graph = zoo.build(name)
    searches: list[int] = []

    class Noted(Problem):
        def __post_init__(self) -> None:
            searches.append(len(self.ops))
            super().__post_init__()

    monkeypatch.setattr(deciding, "Problem", Noted)
    plan = quick(graph, workers)
    assert len(searches) == 1, "the whole graph was not searched"
    assert searches[0] < 0.8 * len(graph.ops)
    assert plan.tensor_bytes == true_bytes(graph, plan, workers)
    assert plan.moved_bytes == sum(plan.tensor_bytes.values())
    monkeypatch.setattr(deciding, "shortened", lambda graph, ops, of_place: None)
    whole = quick(graph, workers)
    assert searches[1] == len(graph.ops)
    assert plan.cost <= whole.cost
    assert list(plan.tilings) == list(whole.tilings)
    assert list(plan.strategies) == list(whole.strategies)


def test_neither_names_nor_order_matter(renamed: Renamed, reordered: Reordered) -> None:
    graph = zoo.build("gpt-12x64-2h")
    other, new = renamed(reordered(graph, 4), 5)
    plan, there = quick(graph, 4), quick(other, 4)
    assert {new[name]: str(tiling) for name, tiling in plan.tilings.items()} == {
        name: str(tiling) for name, tiling in there.tilings.items()
    }
    assert {new[name]: amount for name, amount in plan.tensor_bytes.items()} == dict(there.tensor_bytes)


def towers(first: str) -> Graph:
    """Two towers of as many blocks as deep, side by side, whose results are subtracted; one's ops come first."""
    float32, size = DType.FLOAT32, (48, 48)
    tensors = {name: Tensor(name, size, float32) for name in ("x", "y")}
    ops: dict[str, list[Op]] = {"Softmax": [], "Sigmoid": []}
    for kind, tower in ops.items():
        before = "x"
        for block in range(60):
            weight, *made = (f"{kind}.{block}.{what}" for what in ("w", "a", "b", "c"))
            tensors.update((name, Tensor(name, size, float32)) for name in (weight, *made))
            tower.append(Op(f"{made[0]}.op", kind, (before,), (made[0],)))
            tower.append(Op(f"{made[1]}.op", "MatMul", (made[0], weight), (made[1],)))
            tower.append(Op(f"{made[2]}.op", "Transpose", (made[1],), (made[2],)))
            before = made[2]
    ordered = sorted(ops, key=lambda kind: kind != first)
    ends = tuple(ops[kind][-1].outputs[0] for kind in ("Softmax", "Sigmoid"))
    inputs = tuple(name for name in tensors if name == "x" or name.endswith(".w"))
    made_by = [op for kind in ordered for op in ops[kind]]
    graph = Graph("towers", tensors, (*made_by, Op("y.op", "Sub", ends, ("y",))), inputs, ("y",), {})
    check_graph(graph)
    return graph


@pytest.mark.parametrize(
    ("name", "seed"), chosen(itertools.product([*DEEP, "wresnet-152-4"], [1, 2]), fast=[(DEEP[0], 1)])
)
def test_the_same_runs_are_found_in_any_order(name: str, seed: int, reordered: Reordered) -> None:
    graph = zoo.build(name)
    assert runs_by_name(graph) == runs_by_name(reordered(graph, seed))


def runs_by_name(graph: Graph) -> list[tuple[int, int, int, set[tuple[int, tuple[str, ...]]]]]:
    """Where the runs begin and end, how far they reach, and their chains with the block of each one's first op."""
    ops = bound(graph)
    found = find_runs(Wiring(graph, ops))
    assert found, "runs are found, whatever the order"
    names = [*(one.op.name for one in ops), *graph.inputs]
    return [
        (
            run.first,
            run.last,
            run.reach,
            {(start, tuple(names[one] for one in chain)) for start, chain in zip(run.starts, run.chains, strict=True)},
        )
        for run in found
    ]


def test_a_graph_is_put_in_order_where_only_that_tells_which_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(first: str) -> set[str]:
        graph = towers(first)
        short = shortened(graph, bound(graph))
        assert short is not None
        return {one.op.name for one in short.ops}

    told_apart = names("Softmax")
    monkeypatch.setattr(runs, "_form", lambda bound: ((), ""))
    graph = towers("Softmax")
    wiring = Wiring(graph, bound(graph))
    assert find_runs(wiring) is None
    assert find_runs(wiring, is_in_order=True)
    assert names("Softmax") == names("Sigmoid")
    assert len(names("Softmax")) == len(told_apart)


def test_which_of_two_towers_comes_first_does_not_matter() -> None:
    one, other = (quick(towers(first), 8) for first in ("Softmax", "Sigmoid"))
    assert dict(one.tilings) == dict(other.tilings)
    assert one.cost == other.cost


def test_blocks_of_a_chain_are_found() -> None:
    graph = chain(20)
    (run,) = find_runs(Wiring(graph, bound(graph)))
    assert run.blocks >= 17
    assert run.reach <= 1
    assert len(run.chains) == 4, "three ops and a weight"


@pytest.mark.parametrize(("blocks", "odd"), [(20, 3), (20, 16)])
def test_a_block_that_is_not_like_the_others_is_none_of_them(blocks: int, odd: int) -> None:
    graph = chain(blocks, odd=odd)
    ops = bound(graph)
    runs = find_runs(Wiring(graph, ops))
    assert runs
    for run in runs:
        inner = [
            chain[block - start]
            for chain, start in zip(run.chains, run.starts, strict=True)
            for block in range(run.first, run.last + 1)
        ]
        assert f"relu{odd}" not in {ops[number].op.name for number in inner if number < len(ops)}


def test_a_block_that_something_else_reads_stays() -> None:
    graph = chain(20, watched=4)
    ops = bound(graph)
    short = shortened(graph, ops)
    assert short is not None
    check_graph(short.graph)
    assert "multiply4" in {one.op.name for one in short.ops}
    assert "sum" in {one.op.name for one in short.ops}


def test_a_block_that_makes_a_result_stays() -> None:
    graph = chain(20, result=6)
    short = shortened(graph, bound(graph))
    assert short is not None
    check_graph(short.graph)
    assert short.graph.outputs == graph.outputs


def test_blocks_that_all_read_from_the_first_are_not_taken_out() -> None:
    graph = chain(20, all_read=True)
    check_graph(graph)
    assert shortened(graph, bound(graph)) is None


@pytest.mark.parametrize("name", ["rnn-1-1k", "inception-v3", "lenet-5"])
def test_what_has_no_equal_blocks_is_left_as_it_is(name: str) -> None:
    graph = in_order_of_places(zoo.build(name))
    assert shortened(graph, bound(graph)) is None


def test_where_no_block_can_stand_for_others_the_whole_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = zoo.build("gpt-12x64-2h")

    def never(self: Shortened, tilings: object, strategies: object) -> Whole | None:
        return None

    monkeypatch.setattr(Shortened, "expanded", never)
    plan = quick(graph, 4)
    assert plan.tensor_bytes == true_bytes(graph, plan, 4)


@pytest.mark.slow
def test_any_block_may_stand_for_those_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = zoo.build("gpt-16x64-2h")
    plan, steady = quick(graph, 4), Shortened._steady
    asked: list[int | None] = []

    for apart in (0, 1):

        def shifted(self: Shortened, cut: Any, *plans: Any, apart: int = apart) -> int | None:
            block = steady(self, cut, *plans)
            asked.append(block)
            return None if block is None else block + apart

        monkeypatch.setattr(Shortened, "_steady", shifted)
        there = quick(graph, 4)
        assert there.tensor_bytes == true_bytes(graph, there, 4)
        assert there.tilings == plan.tilings
    assert None not in asked


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Blocks of the same few ops, which read one another, the block before and the one before that, and weights.

    In one block an op may give a result, all blocks may read from the first, and an op behind from an inner one.
    """
    count = draw(st.integers(3, 5))
    reads = [("block", 0), ("before", 0), ("before", 1), ("weight", 0), ("weight", 1)]
    body: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for number in range(count):
        kind = draw(st.sampled_from(("MatMul", "MatMul", "Add", "Mul", "Relu", "Tanh", "Transpose")))
        first = ("block", number - 1) if number else ("before", 0)
        others = [
            (where, draw(st.integers(0, number - 1)) if where == "block" else which)
            for where, which in reads[number == 0 :]
        ]
        body.append((kind, (first, draw(st.sampled_from(others)))[: 2 if kind in ("MatMul", "Add", "Mul") else 1]))
    blocks = MANY_OPS // count + 2
    result = draw(st.none() | st.tuples(st.integers(2, blocks - 1), st.integers(0, count - 1)))
    watched = draw(st.none() | st.tuples(st.integers(2, blocks - 3), st.integers(0, count - 1)))
    shares = draw(st.booleans()) and draw(st.booleans())
    tensors: dict[str, Tensor] = {}
    ops: list[Op] = []

    def add(name: str, kind: str, inputs: tuple[str, ...]) -> None:
        tensors[name] = Tensor(name, (32, 32), DType.FLOAT32)
        ops.append(Op(f"make {name}", kind, inputs, (name,)))

    weights = [f"w{block}.{which}" for block in range(blocks) for which in range(2)]
    tensors |= {name: Tensor(name, (32, 32), DType.FLOAT32) for name in ("x", *weights)}
    for block in range(blocks):
        ends = [f"t{other}.{count - 1}" if other >= 0 else "x" for other in (block - 1, block - 2)]
        for number, (kind, sources) in enumerate(body):
            own = [f"t{block}.{which}" for which in range(count)]
            names = {"block": own, "before": ends, "weight": weights[2 * block :]}
            add(own[number], kind, tuple(names[where][which] for where, which in sources))
        if shares:
            add(f"s{block}", "Add", (f"t{block}.0", "t0.0"))
    last = f"t{blocks - 1}.{count - 1}"
    if watched is not None:
        add("end", "Add", (last, f"t{watched[0]}.{watched[1]}"))
        last = "end"
    outputs = dict.fromkeys((last, *(() if result is None else (f"t{result[0]}.{result[1]}",))))
    read = {name for op in ops for name in op.inputs}
    unread = (name for name in tensors if name not in read and name.startswith("s"))
    inputs = tuple(name for name in ("x", *weights) if name in read)
    kept = {name: one for name, one in tensors.items() if name in inputs or (name not in weights and name != "x")}
    return Graph("blocks", kept, tuple(ops), inputs, (*outputs, *unread), {})


@examples(30)
@given(graph=networks(), workers=st.sampled_from((2, 4, 6)))
def test_plans_of_any_blocks_move_what_they_say(graph: Graph, workers: int) -> None:
    check_graph(graph)
    ordered = in_order_of_places(graph)
    short = shortened(ordered, bound(ordered))
    if short is not None:
        check_graph(short.graph)
    plan = quick(graph, workers)
    assert plan.tensor_bytes == true_bytes(graph, plan, workers)


def links_of(graph: Graph, tilings: Mapping[str, Tiling], strategies: Mapping[str, Tiling]) -> dict[str, int]:
    """By op what its links move."""
    problem = Problem(graph, bound(graph), 2)
    composites = [
        tilings[one.tensors[0]] if one.op is None else strategies[one.op.op.name] for one in problem.variables
    ]
    found: dict[str, int] = {}
    for link, amount in zip(problem.links, problem.link_bytes(composites), strict=True):
        found[link.op_name] = found.get(link.op_name, 0) + amount
    return found


def read_across_blocks(short: Shortened) -> set[str]:
    """Tensors that a block makes and another one reads."""
    wiring, found = short._wiring, set[str]()
    for cut in short._cuts:
        chains = zip(cut.run.chains, cut.run.starts, strict=True)
        block = {number: start + at for chain, start in chains for at, number in enumerate(chain)}
        for number, own in block.items():
            found.update(name for name in wiring.inputs[number] if block.get(wiring.producer.get(name, -1), own) != own)
    return found


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(chain(20), id="forward"),
        pytest.param(zoo.build("gpt-12x64-2h"), id="training", marks=pytest.mark.slow),
    ],
)
def test_what_stands_for_a_block_reads_from_blocks_like_those_of_its_copies(graph: Graph) -> None:
    """Each tensor between blocks has a tiling of its own in turn. Backward, blocks read from those behind them."""
    graph = in_order_of_places(graph)
    ops = bound(graph)
    short = shortened(graph, ops)
    assert short is not None
    rows, columns, whole_one = (Tiling((one,), (2,)) for one in (Shard(0), Shard(1), Replicate()))
    tilings = {name: rows if tensor.shape else whole_one for name, tensor in short.graph.tensors.items()}
    strategies = {one.op.name: rows if one.extents else whole_one for one in short.ops}
    seen = set()
    for name in sorted(read_across_blocks(short) & short.graph.tensors.keys()):
        odd = {**tilings, name: columns if len(short.graph.tensors[name].shape) > 1 else whole_one}
        whole = short.expanded(odd, strategies)
        seen.add(whole is None)
        if whole is not None:
            stated = links_of(short.graph, odd, strategies)
            true = links_of(graph, whole.tilings, whole.strategies)
            assert {one: stated[whole.stands.get(one, one)] for one in true} == true, name
    assert seen == {True, False}


def test_blocks_that_are_planned_otherwise_do_not_stand_for_those_between() -> None:
    graph = in_order_of_places(zoo.build("gpt-12x64-2h"))
    ops = bound(graph)
    short = shortened(graph, ops)
    assert short is not None
    answer = decide(short.graph, short.ops, SearchRequest(4, effort="quick"))
    tilings = dict(answer.tilings)
    strategies = {name: one.tiling for name, one in answer.strategies.items()}
    assert short.expanded(tilings, strategies) is not None
    # One op has another strategy in every other block.
    alike = [one.op.name for one in short.ops if one.op.op_type == "Softmax"]
    others = sorted(set(strategies.values()), key=str)[:2]
    for number, name in enumerate(alike):
        strategies[name] = others[number % 2]
    assert short.expanded(tilings, strategies) is None
