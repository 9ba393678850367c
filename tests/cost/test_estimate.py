"""Estimates of time, against what a pencil gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner import opdefs
from planner.artifacts.estimate import TimeEstimate
from planner.cost.roofline import Roofline
from planner.cost.seconds.estimate import estimate, synchronised
from planner.cost.seconds.exchange import ExchangeTimes
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Device, Level, Topology, load_topology
from planner.partition.build import partition
from planner.records import plain, reader
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.strict_json import parse_json

FLOAT32 = ((DType.FLOAT32, 1e12),)
SLOW = Level("slow", 2, 1e9, 10e-6, shared_by=2)
FAST = Level("fast", 2, 10e9, 1e-6)
MACHINE = Topology("four", Device(2**40, FLOAT32, 100e9), (SLOW, FAST))


def estimated(graph: Graph, machine: Topology, strategy: str = "tofu") -> TimeEstimate:
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(machine.device_count, strategy=strategy))
    program = partition(graph, ops, plan).program
    return estimate(graph, ops, plan.strategies, plan.cuts, program, machine)


def test_an_op_takes_the_longer_of_computing_and_memory() -> None:
    graph = mlp(1, 128, 64)
    product = next(bound for bound in opdefs.standard().bind_all(graph) if bound.op.op_type == "Gemm")
    plan = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(2, strategy="data"))
    strategy = plan.strategies[product.op.name].tiling
    operations, touched = 2 * 32 * 128 * 128, 4 * (32 * 128 * 2 + 128 * 128)
    fast_memory = Roofline([Device(1, FLOAT32, 1e15)] * 2)
    np.testing.assert_allclose(fast_memory.seconds(product, strategy), operations / 1e12)
    slow_memory = Roofline([Device(1, FLOAT32, 1e6)] * 2)
    np.testing.assert_allclose(slow_memory.seconds(product, strategy), touched / 1e6)
    mixed = Roofline([Device(1, FLOAT32, 1e15), Device(1, ((DType.FLOAT32, 4e12),), 1e15)])
    np.testing.assert_allclose(mixed.seconds(product, strategy), [operations / 1e12, operations / 4e12])
    assert fast_memory.assumptions == ()


def test_what_a_topology_does_not_say_is_assumed_aloud() -> None:
    graph = mlp(1, 128, 64)
    product = next(bound for bound in opdefs.standard().bind_all(graph) if bound.op.op_type == "Gemm")
    strategy = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(1)).strategies[product.op.name].tiling
    other = Roofline([Device(1, ((DType.FLOAT16, 8e12), (DType.FLOAT64, 1e12)), 1e15)])
    assert other.seconds(product, strategy)[0] == pytest.approx(2 * 64 * 128 * 128 / 1e12)
    assert other.assumptions == ("the topology gives no speed for float32: float64's was taken",)
    nothing = Roofline([Device(1)])
    assert nothing.seconds(product, strategy)[0] == 0
    assert len(nothing.assumptions) == 2


def test_an_exchange_takes_what_its_busiest_port_takes() -> None:
    times = ExchangeTimes(Interconnect(MACHINE), (0, 1, 2, 3))
    assert times.of({(1, 0): 1000}).seconds == pytest.approx(1000 / 10e9 + 1e-6)
    both = times.of({(2, 0): 1000, (3, 1): 1000})
    assert both.seconds == pytest.approx(2000 / 1e9 + 10e-6), "two transfers over the adapter that 0 and 1 share"
    assert both.level_bytes == {"slow": 2000}
    apart = times.of({(0, 1): 1000, (1, 0): 1000})
    assert apart.seconds == pytest.approx(1000 / 10e9 + 1e-6), "there and back at the same time"


def test_data_parallelism_is_synchronisation_and_computing() -> None:
    graph = mlp(2, 128, 64)
    found = estimated(graph, MACHINE, "data")
    # Two weights of 64 KiB, each an all-reduce among 4: every worker takes 3 quarters of a weight twice, 2 of the 3
    # from the other side of the slow level, where two workers share the adapter.
    quarter = 128 * 128 * 4 // 4
    each = 2 * (2 * 2 * quarter / 1e9 + 10e-6)
    assert found.synchronisation_seconds == pytest.approx(2 * each)
    # The loss of an iteration is a scalar, joined and spread: latency, and a few bytes.
    assert found.transfer_seconds == pytest.approx(0, abs=25e-6)
    assert sum(level.moved_bytes for level in found.levels) == pytest.approx(2 * 2 * 3 * quarter * 4, rel=1e-3)
    assert found.estimated_seconds == pytest.approx(
        found.compute_seconds + found.transfer_seconds + found.synchronisation_seconds
    )


@pytest.mark.parametrize("strategy", ["tofu", "data", "model", "fsdp"])
def test_overlap_is_between_computing_alone_and_one_after_the_other(strategy: str) -> None:
    graph = mlp(4, 256, 512)
    found = estimated(graph, load_topology("p2.8xlarge"), strategy)
    assert max(found.worker_compute_seconds) <= found.overlapped_seconds <= found.estimated_seconds
    assert found.compute_seconds >= max(found.worker_compute_seconds) * (1 - 1e-12)


def test_overlap_goes_on_beside_computing_that_does_not_wait_for_it() -> None:
    found = estimated(mlp(4, 512, 2048), load_topology("p2.8xlarge"), "data")
    assert found.overlapped_seconds < 0.999 * found.estimated_seconds


def test_an_estimate_reads_back_as_it_was_written() -> None:
    found = estimated(mlp(2, 128, 64), MACHINE)
    assert reader(TimeEstimate)(parse_json(json.dumps(plain(found)))) == found


def test_gradients_are_found_behind_movement_and_not_behind_reductions() -> None:
    node = helper.make_node
    model = helper.make_model(
        helper.make_graph(
            [
                node("MatMul", ["x", "w"], ["y"]),
                node("Transpose", ["x"], ["xt"], perm=[1, 0]),
                node("MatMul", ["y", "xt"], ["gt"]),
                node("Transpose", ["gt"], ["g"], perm=[1, 0]),
                node("Mul", ["g", "rate"], ["step"]),
                node("Sub", ["w", "step"], ["w.next"]),
            ],
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8]),
                helper.make_tensor_value_info("rate", TensorProto.FLOAT, []),
                helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 8]),
            ],
            [helper.make_tensor_value_info("w.next", TensorProto.FLOAT, [8, 8])],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    graph = graph_from_proto(model, state_pairs=[("w", "w.next")])
    assert [pair.following for pair in graph.state] == ["w.next"]
    assert synchronised(graph, opdefs.standard().bind_all(graph)) == {"w", "w.next", "step", "g", "gt"}
