"""Sums of partial results in the search: what may be partial, what that saves, and that it is the best."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounded_plan import bounded
from fast_suite import draws
from integer_programme import least_of_all
from partial_plans import all_kinds, graph_of, plan_of, separate_gpt, sums, two_products
from planner import opdefs
from planner.algebra.tiling import UNCUT, Replicate, Shard, Tiling
from planner.cost.seconds.tables import TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError, UsageError
from planner.features.zoo import models as zoo
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import DType, Graph, Op
from planner.machine.topology_file import Device, Level, Topology
from planner.partition.build import partition
from planner.partition.lower import Lowering
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.partial_sums import PartialSums, find_partial_sums, impossible_entry
from planner.search.model.problem import Problem, SearchVariable, no_restriction
from planner.search.moves.recursion import search_recursively
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from planner.tdl.builder import NodeView, TensorArg, op

DESCRIPTIONS = opdefs.standard()


def candidates(graph: Graph) -> set[str]:
    ops = DESCRIPTIONS.bind_all(graph)
    found = find_partial_sums(graph, ops)
    assert found.ops == {op.name for op in graph.ops if set(op.inputs) - set(graph.constants) <= found.tensors}
    return set(found.tensors)


def test_what_may_be_partial() -> None:
    assert candidates(two_products()) == {"p", "q"}
    every = {"p", "q", "qt", "r", "rs", "n", "v", "s1", "s2", "s3", "mean"}
    assert candidates(all_kinds()) == every


def test_operators_of_a_users_own_join_what_they_read() -> None:
    @op("MyAdd", domain="mine")
    def my_add(node: NodeView, A: TensorArg, B: TensorArg) -> object:
        return lambda *i: A[i] + B[i]

    graph = two_products()
    mine = replace(graph, ops=(*graph.ops[:2], replace(graph.ops[2], op_type="MyAdd", domain="mine")))
    ops = opdefs.standard(my_add).bind_all(mine)
    assert find_partial_sums(mine, ops) == PartialSums()


@pytest.mark.slow
@pytest.mark.parametrize("sums", ["S(0)", "S(1)", "R"])
def test_every_entry_is_what_the_program_moves_or_cannot_be_lowered(sums: str) -> None:
    graph = two_products(4, 6, 3)
    ops = DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, 3, with_partial_sums=True)
    limit = impossible_entry(graph, 3, problem.links, 0, len(problem.links), problem.tables)
    held = {"a": "S(1)", "b": "S(0)", "c": "S(1)", "d": "S(0)", "y": sums}
    fixed = {problem.variable_of_tensor[name]: (Tiling.parse(text, (3,)),) for name, text in held.items()}

    def keep(variable: SearchVariable, options: Candidates) -> Candidates:
        return fixed.get(variable.number, options)

    options = [keep(variable, problem.extensions(variable, UNCUT, 3)) for variable in problem.variables]
    costs, impossible = [], 0
    for composites in itertools.product(*options):
        plan = plan_of(problem, composites)
        if plan.moved_bytes < limit:
            assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes
            costs.append(plan.cost)
        else:
            with pytest.raises(AssertionError, match=r"cannot read|is made as"):
                Lowering(graph, plan).run(ops)
            impossible += 1
    # Tilings of p and q, strategies of both products and of the sum; or p, q, sum and products all partial.
    assert len(costs) == 3 * 3 * 4 * 4 * 3 + 1
    assert len(costs) + impossible == 4 * 4 * 4 * 4 * 4
    found = search_recursively(problem, (3,), keep)
    assert found.cost == min(costs) == problem.cost(found.tilings)
    assert {name for name in "pqy" if found.tilings[problem.variable_of_tensor[name]].has_partial} == {"p", "q"}
    whole = Problem(graph, ops, 3)
    joined = search_recursively(whole, (3,), keep).tilings
    scattered = 2 * graph.tensors["y"].size_bytes
    assert sum(whole.link_bytes(joined)) == sum(problem.link_bytes(found.tilings)) + scattered, "both, not their sum"


def check(graph: Graph, cuts: tuple[int, ...], divide: Sequence[int], tables: CostTables | None = None) -> bool:
    """Holds a search against the integer programme; whether its plan has something partial.

    Args:
        graph: sums of products.
        cuts: the ways of each cut.
        divide: by cut how products are divided: 0 rows, 1 columns, 2 the inner dim. Their inputs lie so already.
        tables: of time; None: of bytes, which must be those of the program, too.
    """
    workers, ops = int(np.prod(cuts)), DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, workers, with_partial_sums=True, tables=tables or CostTables())
    left = {problem.variable_of_tensor[name] for name in graph.inputs if name.startswith("a")}
    right = {problem.variable_of_tensor[name] for name in graph.inputs if name.startswith("b")}

    def keep(variable: SearchVariable, options: Candidates) -> Candidates:
        along = divide[len(options[0].ways) - 1]
        if variable.op is not None and variable.op.op.op_type == "MatMul":
            dim = {0: 0, 1: 1, 2: 2}
        elif variable.number in left | right:
            dim = {0: 0, 2: 1} if variable.number in left else {1: 1, 2: 0}
        else:
            return options
        wanted = [one for one in options if one.placements[-1] == (Shard(dim[along]) if along in dim else Replicate())]
        return tuple(wanted) or options[-1:]

    found = search_recursively(problem, cuts, keep)
    if tables is None:
        found = bounded(problem, cuts, found, restrict=keep)
        assert found.lower == found.cost
    assert found.cost == least_of_all(problem, cuts, keep)
    plan = plan_of(problem, found.tilings)
    if tables is None:
        assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes
        assert plan.cost == found.cost
    return any(tiling.has_partial for tiling in plan.tilings.values())


def times(cuts: tuple[int, ...]) -> CostTables:
    machine = Topology("one", Device(2**30, ((DType.FLOAT32, 1e9),), 1e9), (Level("link", cuts[0], 1e9, 1e-7),))
    return TimedTables(CostTables(), TimeTables(machine, cuts))


def sampled(
    count: int,
    cuts: Sequence[tuple[int, ...]],
    tables: Callable[[tuple[int, ...]], CostTables | None] = lambda cuts: None,
) -> Counter[bool]:
    seen = Counter[bool]()

    @settings(max_examples=count, deadline=None)
    @given(sums(), st.sampled_from(cuts), st.lists(st.sampled_from([2, 2, 2, 1, 0]), min_size=3, max_size=3))
    def run(graph: Graph, cuts: tuple[int, ...], divide: list[int]) -> None:
        seen[check(graph, cuts, divide, tables(cuts))] += 1

    run()
    return seen


@pytest.mark.slow
def test_plans_are_as_good_as_an_integer_programme_finds() -> None:
    assert sampled(40, [(2,), (3,), (2, 2)])[True] > 2


def test_plans_of_the_least_time_are_as_good_as_an_integer_programme_finds() -> None:
    assert sampled(40, [(2,), (3,), (5,)], times)[True] > 2


@pytest.mark.parametrize("count", draws(80, 250))
def test_many_plans(count: int) -> None:
    assert sampled(count, [(2,), (3,), (4,), (2, 2), (3, 2), (2, 3), (2, 2, 2)])[True] > count // 13


# What the user decides


def planned(graph: Graph, workers: int, strategy: str = "tofu", **rules: object) -> Decision:
    return decide(graph, DESCRIPTIONS.bind_all(graph), SearchRequest(workers, strategy=strategy, rules=Rules(**rules)))


def partial_ones(plan: Decision) -> dict[str, str]:
    return {name: str(tiling) for name, tiling in plan.tilings.items() if tiling.has_partial}


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_pin_and_a_prohibition(workers: int) -> None:
    graph = separate_gpt(1, 24, 4, 12, 2)
    products = [f"block1.{name}.backward.gemm" for name in ("query", "key", "value")]
    plan = planned(graph, workers, pins=dict.fromkeys(products, "P"))
    assert set(products) < partial_ones(plan).keys()
    assert partial_ones(planned(graph, workers, forbidden=(("*", "P"),))) == {}


def test_a_pin_that_cannot_be_kept_says_why() -> None:
    graph = all_kinds()
    with pytest.raises(UsageError) as caught:
        planned(graph, 2, pins=dict.fromkeys("aybuzp", "P") | {"q": "P(Max)"})
    assert caught.value.facts == (
        "a=P: it cannot be partial: it is data",
        "y=P: it cannot be partial: it is result of the graph",
        "b=P: it cannot be partial: it is data",
        "u=P: it cannot be partial: u_ (Tanh), which makes it, has no partial sums",
        "z=P: it cannot be partial: it is result of the graph",
        "q=P(Max): P(Max) cannot be pinned",
    )
    alone = graph_of(
        {"a": (8, 12), "b": (12, 10), "c": (8, 10), "p": (8, 10), "y": (8, 10)},
        [Op("product", "MatMul", ("a", "b"), ("p",)), Op("sum", "Add", ("p", "c"), ("y",))],
        ("y",),
    )
    with pytest.raises(UsageError, match="p=P: it cannot be partial: what is added to it cannot be partial as well"):
        planned(alone, 2, pins={"p": "P"})
    with pytest.raises(UsageError, match="p=P: it cannot be partial: this strategy joins partial sums at once"):
        planned(two_products(), 2, strategy="soybean", pins={"p": "P"})


def test_pins_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="to be P are so at cut 1, of 2 ways"):
        planned(two_products(), 2, pins={"p": "P", "q": "S(0)"})
    with pytest.raises(InfeasibleError, match="to be P are so at cut 1, of 5 ways"):
        planned(two_products(8, 3, 10), 5, pins={"p": "P"})


@pytest.mark.parametrize("replicate", ["none", "weights"])
def test_what_is_always_to_be_cut_is_not_partial(replicate: str) -> None:
    graph = rnn(1, 12, batch=12, steps=5)
    assert partial_ones(planned(graph, 4)), "the gradients of its weights are"
    assert partial_ones(planned(graph, 4, replicate=replicate)) == {}


# The literature's strategies


def test_data_parallelism_joins_a_gradient_once() -> None:
    """Two layers of twenty steps; a weight's gradient is all-reduced once: 2 (k - 1) times its bytes."""
    graph, workers = rnn(2, 12, batch=12), 3
    plan = planned(graph, workers, strategy="data")
    for name in ("layer1.recurrent", "layer2.recurrent", "layer2.weight"):
        size = graph.tensors[name].size_bytes
        moved = sum(amount for tensor, amount in plan.tensor_bytes.items() if tensor.startswith((f"{name}.grad", name)))
        assert moved == 2 * (workers - 1) * size
    at_once = planned(graph, workers, strategy="data", forbidden=(("*", "P"),))
    assert at_once.moved_bytes > 15 * plan.moved_bytes


def test_three_all_reduces_are_one_under_megatron() -> None:
    """With a product each for query, key and value, a block has 4 all-reduces as with one for all three."""
    blocks, width, sequence, batch = 2, 32, 64, 2
    graph = separate_gpt(blocks, width, 4, sequence, batch)
    activation = batch * sequence * width * 4
    assert planned(graph, 2, strategy="megatron").moved_bytes == blocks * 4 * 2 * activation
    apart = planned(graph, 2, strategy="megatron", forbidden=(("*", "P"),))
    assert apart.moved_bytes == blocks * (4 + 2) * 2 * activation


@pytest.mark.parametrize("strategy", ["tofu-recursion", "soybean", "soybean-levels", "model", "icml18", "equalchop"])
def test_the_others_join_at_once(strategy: str) -> None:
    assert partial_ones(planned(rnn(1, 8, batch=8, steps=4), 4, strategy=strategy)) == {}


@pytest.mark.parametrize("name", ["mlp-5x300", "lenet-5", "alexnet", "gpt-2x1024"])
def test_a_network_without_such_sums_is_searched_as_before(name: str) -> None:
    graph = zoo.build(name)
    ops = DESCRIPTIONS.bind_all(graph)
    plain, offered = Problem(graph, ops, 8), Problem(graph, ops, 8, with_partial_sums=True)
    assert plain.variables == offered.variables
    assert plain.content == offered.content
    one, other = (search_recursively(problem, (2, 2, 2), no_restriction) for problem in (plain, offered))
    assert one == other
    assert plain.tables.entries == offered.tables.entries
