"""Which parts of a graph are found to be copies of one step."""

import pytest

import opdefs
from planner import zoo
from planner.graph.model import Graph
from planner.partition.build import partition
from planner.search.decide import decide
from planner.search.problem import Problem
from planner.search.unrolled import Copies, find_copies
from planner.zoo.recurrent import rnn

LAYERS = 3


def unrolled(steps: int) -> Graph:
    return rnn(LAYERS, 16, batch=8, steps=steps)


def copies_of(graph: Graph) -> Copies:
    return find_copies(graph, opdefs.standard().bind_all(graph))


def test_time_steps_are_copies_and_layers_are_not() -> None:
    copies = copies_of(unrolled(6))
    for layer in range(1, LAYERS + 1):
        for cell in ("recurrent", "gates", "split", "f", "kept", "c", "tanh", "h"):
            assert {copies.ops[f"layer{layer}.step{step}.{cell}"] for step in range(6)} == {
                f"layer{layer}.step0.{cell}"
            }


def test_an_activation_is_no_copy_of_its_gradient() -> None:
    copies = copies_of(unrolled(6))
    for name, first in copies.tensors.items():
        assert ("grad" in name or "backward" in name) == ("grad" in first or "backward" in first), (name, first)


def test_more_steps_are_no_more_variables() -> None:
    few, many = unrolled(6), unrolled(12)
    count = [len(Problem(graph, opdefs.standard().bind_all(graph), 2).variables) for graph in (few, many)]
    # Slices of the outputs' gradient are one for each step, and each step has its own offset.
    assert count[1] - count[0] <= 3 * 6


@pytest.mark.parametrize("name", ["mlp-5x300", "lenet-5"])
def test_layers_with_weights_of_their_own_are_no_copies(name: str) -> None:
    copies = copies_of(zoo.build(name))
    assert not copies.tensors
    assert not copies.ops


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_plan_of_tied_steps_moves_what_it_says(workers: int) -> None:
    graph = unrolled(4)
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, workers).plan
    assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes > 0
    assert plan.tilings["layer2.step1.h.y"] == plan.tilings["layer2.step2.h.y"]
