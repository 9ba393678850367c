"""A graph with shared deliveries: who reads what, and when it is delivered."""

import pytest

from planner.errors import ModelError
from planner.features.zoo.models import mlp
from planner.graph.core.check import check_graph
from planner.graph.step.deliveries import SharedDelivery, is_delivery, with_deliveries

GRAPH = mlp(3, 8, 8)


def order(*names: str) -> list[str]:
    deliveries = [
        SharedDelivery("w2@1", "w2", ("x1.grad_op", "w2@2")),
        SharedDelivery("w2@2", "w2@1", ("x2_op", "w2.next_op")),
    ]
    graph = with_deliveries(GRAPH, deliveries)
    check_graph(graph)
    return [op.name for op in graph.ops if not names or op.name in names]


def test_a_delivery_comes_before_the_first_op_that_reads_it() -> None:
    assert order("x1_op", "x2_op", "x3_op", "w2@1", "w2@2") == ["x1_op", "w2@1", "w2@2", "x2_op", "x3_op"]


def test_its_readers_read_it_and_nobody_else_does() -> None:
    delivery = SharedDelivery("again", "x1", ("w2.grad_op", "x2_op"))
    graph = with_deliveries(GRAPH, [delivery])
    readers = {op.name for op in graph.consumers["again"]}
    assert readers == set(delivery.readers)
    left = {op.name for op in GRAPH.consumers["x1"]} - readers
    assert {op.name for op in graph.consumers["x1"]} == {"again", *left}
    assert is_delivery(graph.producer["again"])
    assert graph.tensors["again"].shape == GRAPH.tensors["x1"].shape
    kept = [op for op in graph.ops if not is_delivery(op)]
    assert [(op.name, op.outputs) for op in kept] == [(op.name, op.outputs) for op in GRAPH.ops]


def test_a_delivery_of_a_delivery_is_read_in_the_place_of_the_tensor() -> None:
    assert len(order()) == len(GRAPH.ops) + 2


def test_a_delivery_that_nobody_reads_is_a_mistake() -> None:
    with pytest.raises(ModelError, match="nobody reads the deliveries never"):
        with_deliveries(GRAPH, [SharedDelivery("never", "x1", ())])
