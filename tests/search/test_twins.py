"""Dims that are interchangeable: a quick search cuts one of them first, and loses little by it."""

import numpy as np
import pytest

import opdefs
from planner import zoo
from planner.algebra.tiling import UNCUT, Replicate, Shard, Tiling
from planner.graph.model import DType, Graph, Op, Tensor
from planner.search import decide as module
from planner.search.decide import decide
from planner.search.model.dims import Directions, find_directions
from planner.search.model.problem import Problem
from planner.search.model.space import Space
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules


def directions_of(graph: Graph) -> tuple[Directions, dict[str, Op]]:
    ops = opdefs.standard().bind_all(graph)
    return find_directions(graph, ops), {bound.op.name: bound.op for bound in ops}


def test_height_and_width_of_square_images_are_twins() -> None:
    graph = zoo.build("resnet-50", batch=4)
    directions, ops = directions_of(graph)
    found = {ops[name].op_type: directions.twins_of("op", name) for name in ops if ops[name].op_type in ("Relu", "Add")}
    assert found["Relu"] == (False, False, False, True)
    images = [name for name, tensor in graph.tensors.items() if len(tensor.shape) == 4 and name in graph.producer]
    twins = [name for name in images if directions.twins_of("tensor", name) == (False, False, False, True)]
    assert len(twins) > 0.9 * len(images)
    for name, tensor in graph.tensors.items():
        for dim, is_twin in enumerate(directions.twins_of("tensor", name)):
            assert not is_twin or tensor.shape[dim] == tensor.shape[dim - 1]


@pytest.mark.parametrize("model", ["mlp-4x8192", "gpt-2x1024"])
def test_directions_that_lie_elsewhere_are_no_twins(model: str) -> None:
    """Though they are as long: a square weight's inputs and outputs."""
    graph = zoo.build(model)
    directions, ops = directions_of(graph)
    squares = [name for name, tensor in graph.tensors.items() if len(set(tensor.shape)) < len(tensor.shape)]
    assert squares
    assert not any(any(directions.twins_of("tensor", name)) for name in graph.tensors)
    assert not any(any(directions.twins_of("op", name)) for name in ops)


@pytest.mark.parametrize(("axes", "are_twins"), [((2, 3), True), ((3,), False), ((1, 2), False)])
def test_where_one_is_the_other_is_as_well(axes: tuple[int, ...], are_twins: bool) -> None:
    """Height and width of an image are no twins where an op sums over one of them."""
    shapes = {
        "x": (4, 3, 8, 8),
        "y": (4, 3, 8, 8),
        "sum": tuple(n for d, n in enumerate((4, 3, 8, 8)) if d not in axes),
    }
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    tensors["axes"] = Tensor("axes", (len(axes),), DType.INT64)
    ops = (Op("relu", "Relu", ("x",), ("y",)), Op("add", "ReduceSum", ("y", "axes"), ("sum",), (("keepdims", 0),)))
    graph = Graph("drawn", tensors, ops, ("x",), ("sum",), {"axes": np.array(axes)})
    assert directions_of(graph)[0].twins_of("tensor", "y") == (False, False, False, are_twins)


def test_twins_are_as_long() -> None:
    shape = (4, 3, 8, 6)
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name in ("x", "y")}
    graph = Graph("drawn", tensors, (Op("relu", "Relu", ("x",), ("y",)),), ("x",), ("y",), {})
    assert not any(directions_of(graph)[0].twins_of("tensor", "y"))


def test_the_second_of_twins_is_proposed_where_the_first_is_cut() -> None:
    space = Space((4, 8, 8), (), (), True, False, (False, False, True))

    def proposed(prefix: Tiling) -> list[str]:
        return [str(option.placements[-1]) for option in space.proposals(prefix, 2)]

    assert proposed(UNCUT) == ["S(0)", "S(1)", "R"]
    assert proposed(Tiling((Shard(0),), (2,))) == ["S(0)", "S(1)", "R"]
    assert proposed(Tiling((Shard(1),), (2,))) == ["S(0)", "S(1)", "S(2)", "R"]
    assert space.can_be(Tiling((Shard(2), Replicate()), (2, 2))), "that is not proposed, and would be no mistake"
    fixed = Space((4, 8, 8), (), (False, True, False), True, False, (False, False, True))
    assert [str(option) for option in fixed.proposals(UNCUT, 2)] == ["S(0)/2", "S(2)/2", "R/2"]


def test_only_quick_searches_of_large_graphs_leave_twins_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where one cut is solved exactly and said to be, nor where the user says what is to be cut."""
    asked: list[bool] = []

    def problem(*args: object, one_of_twins: bool, **others: object) -> Problem:
        asked.append(one_of_twins)
        return Problem(*args, one_of_twins=one_of_twins, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "Problem", problem)
    large, small = (zoo.build(name, batch=8) for name in ("resnet-50", "lenet-5"))

    def leaves_out(graph: Graph, workers: int, **others: object) -> bool:
        asked.clear()
        decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, **others))  # type: ignore[arg-type]
        return any(asked)

    assert leaves_out(large, 4, effort="quick")
    assert not leaves_out(large, 2, effort="quick")
    assert not leaves_out(large, 4, effort="quick", strategy="soybean")
    assert not leaves_out(large, 4, effort="quick", rules=Rules({next(iter(large.tensors)): "R"}))
    assert not leaves_out(small, 4, effort="quick")
    assert not leaves_out(small, 4)


@pytest.mark.parametrize(("model", "workers"), [("resnet-50", 4), ("wresnet-50-4", 8)])
def test_to_leave_them_out_loses_nothing(model: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = zoo.build(model)
    ops = opdefs.standard().bind_all(graph)
    found = decide(graph, ops, SearchRequest(workers, effort="quick"))
    monkeypatch.setattr(Problem, "_twins_of", lambda self, kind, name: ())
    both = decide(graph, ops, SearchRequest(workers, effort="quick"))
    assert found.cost == both.cost
    assert found.eliminated_entries < 0.8 * both.eliminated_entries
