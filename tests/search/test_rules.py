"""Pins, prohibitions and replication: kept by every plan, refused with every fault named, and priced."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import chosen, examples
from planner import opdefs
from planner.algebra.tiling import Replicate, Shard, Tiling, parse_placement
from planner.errors import InfeasibleError, UsageError
from planner.features.zoo.models import build, mlp
from planner.graph.core.model import Graph, Role
from planner.planning.bodies import decide_with_bodies
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.prices import ForbidPrice, PinPrice, prices
from planner.search.user_rules.rules import Limits, Rules, matching

DESCRIPTIONS = opdefs.standard()


def planned(graph: Graph, workers: int, rules: Rules, **options: object) -> Decision:
    return decide(graph, DESCRIPTIONS.bind_all(graph), SearchRequest(workers, rules=rules, **options))  # type: ignore[arg-type]


def faults(graph: Graph, workers: int, rules: Rules, **options: object) -> list[str]:
    with pytest.raises(UsageError, match="cannot be kept") as caught:
        planned(graph, workers, rules, **options)
    return list(caught.value.facts)


GRAPH = mlp(2, 24, 36)


# Patterns


def test_a_pattern_pins_all_that_match_and_a_name_stands_above_it() -> None:
    plan = planned(GRAPH, 4, Rules({"w*": "R", "w2": "S(0)", "x?": "S(0)"}))
    assert str(plan.tilings["w1"]) == str(plan.tilings["w1.grad"]) == "R/2 R/2"
    assert str(plan.tilings["w2"]) == str(plan.tilings["w2.next"]) == "S(0)/2 S(0)/2"
    assert str(plan.tilings["w2.grad"]) == "R/2 R/2"
    for name in ("x0", "x1", "x2"):
        assert str(plan.tilings[name]) == "S(0)/2 S(0)/2"


def test_a_name_with_the_characters_of_a_pattern_is_that_tensor() -> None:
    names = ["a[0]", "a0", "b*", "bc"]
    assert matching("a[0]", names, None) == ("a[0]",)
    assert matching("a[01]", names, None) == ("a0",)
    assert matching("b*", names, None) == ("b*",)
    assert matching("?c", names, None) == ("bc",)
    assert matching("*", names, ["a0"]) == ("a0",)


def test_a_pattern_matches_nothing_inside_of_a_body() -> None:
    graph = build("gpt-1x64-2h", batch=2)
    inside = decide_with_bodies(graph, DESCRIPTIONS, SearchRequest(2, rules=Rules({"*": "R"})))
    assert set(inside.tilings.values()) == {Tiling.parse("R", (2,))}


# Prohibitions


@pytest.mark.parametrize("strategy", ["tofu", "tofu-recursion", "soybean", "data", "spartan", "icml18"])
def test_a_forbidden_placement_is_in_no_tiling(strategy: str) -> None:
    rules = Rules(forbidden=(("w*", "R"), ("x*", "S(0)"), ("w1", "S(1)")))
    plan = planned(GRAPH, 4, rules, strategy=strategy)
    for name, tiling in plan.tilings.items():
        if name.startswith("w"):
            assert Replicate() not in tiling.placements
        if name.startswith("x"):
            assert Shard(0) not in tiling.placements
    assert set(plan.tilings["w1"].placements) == set(plan.tilings["w1.next"].placements) == {Shard(0)}


def test_a_cut_leaves_room_for_those_that_follow() -> None:
    """3 x 4 on 3 x 2 x 2 workers: only dim 0 first, then dim 1 twice."""
    limits = Limits((3, 4), (3, 2, 2), [Replicate()], may_replicate=True)
    assert limits.allows(Tiling((Shard(0),), (3,)))
    assert not limits.allows(Tiling((Shard(1),), (3,)))
    plan = planned(mlp(1, 4, 3), 12, Rules(forbidden=(("x0", "R"),)))
    assert str(plan.tilings["x0"]) == "S(0)/3 S(1)/2 S(1)/2"


@examples(60)
@given(
    st.lists(st.integers(1, 6), max_size=3),
    st.sampled_from([(2,), (2, 2), (3, 2), (2, 2, 2)]),
    st.sets(st.sampled_from(["R", "S(0)", "S(1)", "S(2)"])),
    st.booleans(),
    st.booleans(),
)
def test_limits_against_enumeration(
    shape: list[int], cuts: tuple[int, ...], texts: set[str], may: bool, is_charged: bool
) -> None:
    """What is allowed is what begins a full tiling that keeps to the rules at every cut."""
    forbidden = [parse_placement(text)[0] for text in texts]
    limits = Limits(tuple(shape), cuts, forbidden, may, is_charged)

    def offered(prefix: Tiling, ways: int) -> list[Shard | Replicate]:
        """By the search."""
        least = [min(region.shape[dim] for region in prefix.boxes(tuple(shape))) for dim in range(len(shape))]
        splits = [Shard(dim) for dim in range(len(shape)) if least[dim] >= ways]
        return splits if splits and is_charged else [*splits, Replicate()]

    def after(prefix: Tiling, ways: int) -> list[Tiling]:
        kept = [placement for placement in offered(prefix, ways) if placement not in forbidden]
        room = [placement for placement in kept if isinstance(placement, Shard)]
        return [prefix.extend(placement, ways) for placement in (kept if may or not room else room)]

    full = [Tiling((), ())]
    for ways in cuts:
        full = [longer for prefix in full for longer in after(prefix, ways)]
    good = {Tiling(one.placements[:depth], cuts[:depth]) for one in full for depth in range(len(cuts) + 1)}
    every = (Replicate(), *(Shard(dim) for dim in range(len(shape))))
    assert Tiling((), ()) in good or forbidden
    for depth in range(len(cuts) + 1):
        for placements in itertools.product(every, repeat=depth):
            one = Tiling(placements, cuts[:depth])
            room = Tiling((), ())
            possible = True
            for placement, ways in zip(placements, cuts, strict=False):
                possible = possible and placement in offered(room, ways)
                if possible:
                    room = room.extend(placement, ways)
            if possible:
                assert limits.allows(one) == (one in good), one


def test_blocks() -> None:
    limits = Limits((64,), (3,), [Shard(0, 16)], may_replicate=True)
    assert limits.allows(Tiling((Shard(0),), (3,)))
    assert not limits.allows(Tiling((Shard(0, 16),), (3,)))
    limits = Limits((64,), (3,), [Shard(0)], may_replicate=True)
    assert not limits.allows(Tiling((Shard(0, 16),), (3,)))


# What cannot be kept


def test_every_fault_is_named_at_once() -> None:
    rules = Rules(
        {"w9*": "R", "x?": "S(2)", "w1": "S(0)"},
        (
            ("w1", "S(0)"),
            ("x1.grda*", "R"),
            ("x1", "Q"),
            ("x1", "R/2"),
            ("x1", "P(Max)"),
            ("w*", "S(2)"),
            ("w1.grda", "R"),
        ),
    )
    found = faults(GRAPH, 2, rules)
    assert found == [
        "no tensor matches 'w9*'",
        f"x?=S(2): x0: there is no dim 2: the tensor is {list(GRAPH.tensors['x0'].shape)}",
        f"x?=S(2): x1: there is no dim 2: the tensor is {list(GRAPH.tensors['x1'].shape)}",
        f"x?=S(2): x2: there is no dim 2: the tensor is {list(GRAPH.tensors['x2'].shape)}",
        "no tensor matches 'x1.grda*'; did you mean 'x1.grad'?",
        "x1=Q: placement 'Q' cannot be read; write S(dim), R or P",
        "x1=R/2: a prohibition is of every cut; write R",
        "x1=P(Max): no tensor is ever P(Max); write S(dim), R or P",
        "w*=S(2): none of its tensors has a dim 2",
        "tensor 'w1.grda' is not in the model; did you mean 'w1.grad'?",
        "w1: is pinned to S(0)/2, and S(0) is forbidden",
    ]


def test_prohibitions_that_leave_a_tensor_nothing() -> None:
    found = faults(GRAPH, 4, Rules(forbidden=(("x1", "R"), ("x1", "S(0)"), ("x1", "S(1)"))))
    assert found == ["x1: without R and S(0) and S(1), [36, 24] cannot be cut 2 x 2 ways"]
    found = faults(mlp(1, 3, 5), 8, Rules(forbidden=(("w1", "R"),)))
    assert found == ["w1: without R, [3, 3] cannot be cut 2 x 2 x 2 ways"]


def test_prohibitions_that_leave_data_no_disjoint_tiles() -> None:
    """Data that may not be replicated, 36 x 24, has dim 1 left: 4 workers can share it, 7 x 5 cannot."""
    rules = Rules(forbidden=(("x0", "S(0)"),))
    found = faults(GRAPH, 35, rules, partitioned_inputs=True)
    tiles = "data arrives in disjoint tiles (--input-tiling partitioned)"
    assert found == [f"x0: without S(0), [36, 24] cannot be cut 7 x 5 ways, and {tiles}"]
    assert str(planned(GRAPH, 4, rules, partitioned_inputs=True).tilings["x0"]) == "S(1)/2 S(1)/2"


def test_two_patterns_that_disagree() -> None:
    found = faults(GRAPH, 2, Rules({"w1*": "R", "*.next": "S(0)"}))
    assert found == ["*.next=S(0): w1.next: w1*=R pins it differently"]


def test_a_constant_has_no_tiling() -> None:
    graph = build("lenet-5", batch=8)
    constant = next(iter(graph.constants))
    assert "a constant" in faults(graph, 2, Rules(forbidden=((constant, "R"),)))[0]


def test_many_faults_are_counted() -> None:
    graph = build("lenet-5", batch=8)
    found = faults(graph, 2, Rules({"*": "S(7)"}))
    assert len(found) == len(set(found)) > 20


# Replication


def replicated(plan: Decision) -> set[str]:
    return {name for name, tiling in plan.tilings.items() if Replicate() in tiling.placements}


@pytest.mark.parametrize("name", chosen(["mlp-3x64", "lenet-5"], fast=["mlp-3x64"]))
def test_replication(name: str) -> None:
    graph = build(name, batch=64)
    all_, weights, none = (planned(graph, 4, Rules(replicate=which)) for which in ("all", "weights", "none"))
    roles = graph.roles

    def could_be_cut(plan: Decision) -> set[str]:
        """What is replicated at a cut where some dim has room for it."""
        found = set()
        for tensor, tiling in plan.tilings.items():
            prefix = Tiling((), ())
            for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
                sizes = [region.shape for region in prefix.boxes(graph.tensors[tensor].shape)]
                has_room = any(min(column) >= ways for column in zip(*sizes, strict=True))
                if placement == Replicate() and has_room and graph.tensors[tensor].shape:
                    found.add(tensor)
                prefix = prefix.extend(placement, ways)
        return found

    assert could_be_cut(none) == set()
    assert {roles[tensor] for tensor in could_be_cut(weights)} <= {Role.STATE, Role.NEXT_STATE, Role.DATA}
    assert all_.cost <= weights.cost <= none.cost
    assert none.cost <= planned(graph, 4, Rules(), strategy="tofu-recursion").cost


def test_nothing_replicated_is_the_setting_of_tofu() -> None:
    """Section 5: cut by cut, every tensor cut at every step: SoyBean's recursion with that rule is Tofu's."""
    graph = build("mlp-4x64", batch=32)
    ours = planned(graph, 8, Rules(replicate="none"), strategy="soybean")
    assert ours.tilings == planned(graph, 8, Rules(), strategy="tofu-recursion").tilings


def test_no_rule_changes_nothing() -> None:
    assert not Rules()
    assert not Rules({}, (), "all")
    assert planned(GRAPH, 4, Rules()) == planned(GRAPH, 4, Rules({}, (), "all", frozenset({"w1"})))


# Prices


def moved_by(table: Mapping[tuple[str, ...], int]) -> tuple[list[Rules], object]:
    seen: list[Rules] = []

    def moved(rules: Rules) -> int:
        seen.append(rules)
        return table[(*rules.pins, *(name for name, _ in rules.forbidden))]

    return seen, moved


def test_each_rule_is_priced_with_all_others_kept() -> None:
    rules = Rules({"a": "R", "b": "S(0)"}, (("c", "R"), ("d", "R")), "none", frozenset("abcd"))
    seen, moved = moved_by({("b", "c", "d"): 70, ("a", "c", "d"): 100, ("a", "b", "d"): 110, ("a", "b", "c"): 0})
    told: list[str] = []
    found = prices(rules, 100, moved, lambda line, **numbers: told.append(line))  # type: ignore[arg-type]
    assert found == (
        PinPrice("a=R", 30),
        PinPrice("b=S(0)", 0),
        ForbidPrice("c=R", 0),
        ForbidPrice("d=R", 100),
    )
    assert all((other.replicate, other.names) == ("none", frozenset("abcd")) for other in seen)
    assert told[0] == "price 1 of 4: planning without --pin a=R"
    assert told[3] == "price 4 of 4: planning without --forbid d=R"


def test_a_rule_without_which_there_is_no_plan_has_no_price() -> None:
    def moved(_rules: Rules) -> int:
        raise InfeasibleError("too entangled")

    assert prices(Rules({"a": "R"}), 100, moved) == (PinPrice("a=R", None),)


def test_nothing_is_planned_without_a_rule_to_price() -> None:
    def moved(_rules: Rules) -> int:
        raise AssertionError("planned")

    assert prices(Rules(replicate="none"), 100, moved) == ()


def test_a_price_is_what_the_plan_would_save() -> None:
    pins = Rules({"w1": "R", "x1": "S(0)"}, (("w2", "S(1)"),))
    plan = planned(GRAPH, 4, pins)
    found = prices(pins, plan.cost, lambda rules: planned(GRAPH, 4, rules).cost)
    without = planned(GRAPH, 4, Rules({"x1": "S(0)"}, (("w2", "S(1)"),))).cost
    assert found[0] == PinPrice("w1=R", plan.cost - without)
    assert found[0].price_bytes
