"""A state that is taken apart wherever it is read is several states, and the step computes what it did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fast_suite import spread
from packed import CONVOLVED, FORMS, step, with_wholes
from planner.algebra.region import Region, tile
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph, Op, Tensor
from planner.graph.rewriting.packing import Packing, WholeError
from planner.graph.rewriting.parts import by_parts, whole_name
from planner.runtime.judge.compare import errors
from planner.runtime.judge.whole import WholeModel
from planner.runtime.values.state import starting_values

CASES = [(form, optimizer, bias) for form in FORMS for optimizer in ("sgd", "adam") for bias in (False, True)]
CASES.append((CONVOLVED, "sgd", True))


@pytest.mark.parametrize("case", spread(CASES, one_of=3))
def test_a_step_by_parts_computes_what_the_step_does(case: tuple[str, str, bool]) -> None:
    form, optimizer, bias = case
    graph = step(form, is_packed=True, optimizer=optimizer, has_bias=bias)
    found, in_parts = by_parts(graph)
    check_graph(found)
    packed = {pair.current for pair in graph.state if pair.current.startswith(("first.", "second."))}
    packed = {name for name in packed if ".down." not in name}
    assert packed
    assert packed <= in_parts.keys()
    assert {len(in_parts[name]) for name in packed} == {3}
    assert not {"Split", "Slice", "Gather", "Pad", "Concat"}.intersection(op.op_type for op in found.ops)
    whole = with_wholes(found, graph, in_parts)
    check_graph(whole)
    values = starting_values(graph)
    right, made = WholeModel(graph).step(values), WholeModel(whole).step(values)
    assert right.keys() == made.keys()
    for name, value in right.items():
        if optimizer == "sgd" or name == "loss":  # Adam divides by roots of squares that are nearly 0
            assert errors(made[name], value)[0] < 1e-5, name


@pytest.mark.parametrize("form", FORMS)
def test_parts_are_boxes_that_make_up_the_whole(form: str) -> None:
    graph = step(form, is_packed=True, optimizer="momentum", has_bias=True)
    found, in_parts = by_parts(graph)
    for whole, parts in in_parts.items():
        if whole in (*graph.inputs, *graph.outputs):
            assert tile(tuple(parts.values()), Region.whole(graph.tensors[whole].shape))
            assert all(box.shape == found.tensors[part].shape for part, box in parts.items())
    assert {whole_name(name, graph.tensors) for name in found.tensors} <= graph.tensors.keys() | found.constants.keys()


@pytest.mark.parametrize("form", FORMS)
def test_a_step_with_weights_apart_stays_itself(form: str) -> None:
    graph = step(form, is_packed=False, optimizer="momentum")
    assert by_parts(graph)[0] is graph


def test_what_is_to_stay_whole_stays() -> None:
    graph = step("Split", is_packed=True)
    assert "first.weight" not in by_parts(graph, ["first.weight"])[1]
    assert "second.weight" in by_parts(graph, ["first.weight"])[1]
    assert by_parts(graph, ["first.weight", "second.y"])[0] is graph


def _with_reader(graph: Graph, op: Op, *made: Tensor) -> Graph:
    tensors = {**graph.tensors, **{one.name: one for one in made}}
    return replace(graph, tensors=tensors, ops=(*graph.ops, op), outputs=(*graph.outputs, *(one.name for one in made)))


@pytest.mark.parametrize("op_type", ["Softmax", "Gelu", "LogSoftmax", "ReduceMean", "LpNormalization"])
def test_a_reader_of_the_whole_keeps_it_whole(op_type: str) -> None:
    """Gelu reads each part by itself, but what it makes is a result, and results are the model's."""
    graph = step("Split", is_packed=True)
    weight = graph.tensors["first.weight"]
    made = replace(weight, name="seen", shape=(1, 1) if op_type == "ReduceMean" else weight.shape)
    read = _with_reader(graph, Op("read", op_type, ("first.weight",), ("seen",)), made)
    check_graph(read)
    _, in_parts = by_parts(read)
    assert "first.weight" not in in_parts
    assert "second.weight" in in_parts


def test_a_norm_of_a_gradient_is_that_of_its_parts() -> None:
    """Clipping by the global norm sums squares over all of a gradient."""
    graph = step("Split", is_packed=True)
    gradient = graph.tensors["first.weight.grad"]
    op = Op("norm", "ReduceSumSquare", ("first.weight.grad",), ("squares",), (("keepdims", 0),))
    graph = _with_reader(graph, op, replace(gradient, name="squares", shape=()))
    found, in_parts = by_parts(graph)
    assert "first.weight" in in_parts
    values = starting_values(graph)
    made = WholeModel(with_wholes(found, graph, in_parts)).step(values)
    assert errors(made["squares"], WholeModel(graph).step(values)["squares"])[0] < 1e-5


@pytest.mark.parametrize(
    ("before", "own", "after", "found"),
    [
        ((8, 12), Packing(1, 1, (4, 4, 4)), (8, 3, 4), Packing(1, 1, (1, 1, 1))),
        ((8, 12), Packing(1, 1, (8, 4)), (8, 3, 4), Packing(1, 1, (2, 1))),
        ((2, 4, 12), Packing(2, 1, (8, 4)), (8, 12), Packing(1, 1, (8, 4))),
        ((8, 3, 4), Packing(1, 1, (1, 1, 1)), (2, 4, 12), Packing(2, 1, (4, 4, 4))),
        ((8, 12), Packing(1, 2, (2, 4)), (8, 2, 6), Packing(2, 1, (2, 4))),
        ((8, 2, 6), Packing(2, 1, (2, 4)), (8, 12), Packing(1, 2, (2, 4))),
        ((8, 12), Packing(1, 1, (5, 7)), (8, 3, 4), None),
        ((8, 12), Packing(1, 2, (2, 4)), (8, 3, 4), None),
    ],
)
def test_a_reshape_of_parts(
    before: tuple[int, ...], own: Packing, after: tuple[int, ...], found: Packing | None
) -> None:
    if found is None:
        with pytest.raises(WholeError):
            own.reshaped(before, after)
        return
    assert own.reshaped(before, after) == found
    array, seen = np.arange(np.prod(before)).reshape(before), set()
    for part, (start, end) in enumerate(own.places):
        split = array.reshape(*before[: own.dim], own.blocks, -1, *before[own.dim + 1 :])
        mine = set(np.take(split, range(start, end), own.dim + 1).flat)
        lo, hi = found.places[part]
        other = array.reshape(*after[: found.dim], found.blocks, -1, *after[found.dim + 1 :])
        assert mine == set(np.take(other, range(lo, hi), found.dim + 1).flat)
        seen |= mine
    assert len(seen) == array.size
