"""Tables of time, against the times of programs on graphs of two ops."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.cost.seconds.tables import PICOSECONDS, TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import CostTables, Request
from planner.errors import UsageError
from planner.graph.core.model import DType, Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink, Level, Topology, load_topology
from planner.search.model.problem import Problem

DEVICE = Device(2**40, ((DType.FLOAT32, 1e12),), 100e9)
MACHINE = Topology("four", DEVICE, (Level("slow", 2, 1e9, 10e-6, shared_by=2), Level("fast", 2, 10e9, 1e-6)))
CUTS = (2, 2)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Two products, one after the other."""
    node, info = helper.make_node, helper.make_tensor_value_info
    inputs = [info(name, TensorProto.FLOAT, [16, 16]) for name in ("a", "b", "c")]
    nodes = [node("MatMul", ["a", "b"], ["ab"], name="one"), node("MatMul", ["ab", "c"], ["abc"], name="two")]
    made = helper.make_graph(nodes, "g", inputs, [info("abc", TensorProto.FLOAT, [16, 16])])
    return graph_from_proto(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def candidates(problem: Problem, number: int) -> tuple[Tiling, ...]:
    variable = problem.variables[number]
    outer = problem.extensions(variable, Tiling((), ()), 2)
    return tuple(inner for prefix in outer for inner in problem.extensions(variable, prefix, 2))


def by_hand(moved: np.ndarray, machine: Topology) -> float:
    """Seconds of the worker that waits longest, bytes [receiver, sender]; on four workers of two levels."""
    slow, fast = machine.levels
    waits = []
    for receiver in range(4):
        near, far = receiver ^ 1, [other for other in range(4) if other // 2 != receiver // 2]
        seconds = moved[receiver, near] / fast.bandwidth_bytes_per_s
        seconds += moved[receiver, far].sum() * slow.shared_by / slow.bandwidth_bytes_per_s
        latencies = [fast.latency_seconds] * bool(moved[receiver, near])
        latencies += [slow.latency_seconds] * bool(moved[receiver, far].sum())
        waits.append(seconds + max(latencies, default=0.0))
    return max(waits)


def test_reading_an_input_takes_what_its_boxes_take(graph: Graph) -> None:
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, 4)
    bound = ops[1]
    tilings = candidates(problem, problem.variable_of_tensor["ab"])
    strategies = candidates(problem, problem.variable_of_op["two"])
    table = TimeTables(MACHINE, CUTS).input_table(bound, 0, graph.tensors["ab"], tilings, strategies)
    bytes_moved = CostTables().input_bytes(bound, 0, graph.tensors["ab"], tilings, strategies)
    assert ((table > 0) == (bytes_moved > 0)).all()
    for (row, tiling), (column, strategy) in product(enumerate(tilings), enumerate(strategies)):
        owned, needed = tiling.boxes((16, 16)), bound.reads(bound.ranges(strategy))[0].boxes
        moved = np.zeros((4, 4))
        for receiver in range(4):
            missing = {
                point
                for point in np.ndindex(16, 16)
                if _holds(needed, receiver, point) and not _holds(owned, receiver, point)
            }
            for sender in sorted(range(4), key=lambda other: receiver ^ other):
                taken = {point for point in missing if _holds(owned, sender, point)}
                moved[receiver, sender] += 4 * len(taken)
                missing -= taken
        assert table[row, column] == pytest.approx(by_hand(moved, MACHINE) * PICOSECONDS, abs=1)
        assert moved.sum() == bytes_moved[row, column]


def _holds(boxes, worker: int, point: tuple[int, ...]) -> bool:
    inside = zip(boxes.lo[worker], point, boxes.hi[worker], strict=True)
    return all(lo <= place < hi for lo, place, hi in inside)


def test_joining_partial_sums_takes_two_phases(graph: Graph) -> None:
    ops = opdefs.standard().bind_all(graph)
    names = [variable.name for variable in ops[0].variables]
    reduction = names.index(ops[0].analysis.reduction_variables[0])
    partial = Tiling.parse(f"S({reduction})", CUTS)
    whole, rows = Tiling.parse("R", CUTS), Tiling.parse("S(0)", CUTS)
    table = TimeTables(MACHINE, CUTS).output_table(ops[0], 0, graph.tensors["ab"], (whole, rows), (partial,))
    quarter = 16 * 16 * 4 / 4
    one_phase = quarter / 10e9 + 2 * quarter * 2 / 1e9 + 10e-6
    assert table[1, 0] == pytest.approx(one_phase * PICOSECONDS, abs=1)
    assert table[0, 0] == pytest.approx(2 * one_phase * PICOSECONDS, abs=2)


def test_computing_is_the_slowest_workers(graph: Graph) -> None:
    ops = opdefs.standard().bind_all(graph)
    slower = Device(2**40, ((DType.FLOAT32, 5e11),), 1e15)
    faster = Device(2**40, ((DType.FLOAT32, 2e12),), 1e15)
    machine = DeviceGraph("two", (faster, slower), (DeviceLink((0, 1), 1e9),))
    tables = TimeTables(machine, (2,))
    split, repeated = Tiling.parse("S(0)", (2,)), Tiling.parse("R", (2,))
    operations = 2 * 16**3
    np.testing.assert_allclose(
        tables.op_table(ops[0], (split, repeated)) / PICOSECONDS, [operations / 2 / 5e11, operations / 5e11], rtol=1e-4
    )


def test_a_plan_of_the_first_cut_counts_all_devices(graph: Graph) -> None:
    ops = opdefs.standard().bind_all(graph)
    machine = replace(MACHINE, device=replace(DEVICE, memory_bandwidth_bytes_per_s=1e15))
    tables = TimeTables(machine, CUTS)
    first = (Tiling.parse("S(0)", (2,)),)
    both = (Tiling.parse("S(0)", CUTS),)
    assert tables.op_table(ops[0], first) == pytest.approx(tables.op_table(ops[0], both), abs=1)
    rows, columns = (Tiling.parse("S(0)", (2,)),), (Tiling.parse("S(1)", (2,)),)
    moved = 16 * 16 * 4 / 4  # a quarter of the tensor to each half, which two devices take together
    entry = tables.output_table(ops[0], 0, graph.tensors["ab"], columns, rows)[0, 0]
    assert entry == pytest.approx((moved / 2 * 2 / 1e9 + 10e-6) * PICOSECONDS, abs=1)


def test_timed_tables_have_the_computing_in_them_once(graph: Graph) -> None:
    """It is what an op is charged, and in no table of what is brought or arrives."""
    ops = opdefs.standard().bind_all(graph)
    times = TimeTables(MACHINE, CUTS)
    timed = TimedTables(CostTables(), times)
    tilings = strategies = (Tiling.parse("S(0)", CUTS), Tiling.parse("S(1)", CUTS))
    charged = timed.charges(ops[0], strategies)
    np.testing.assert_array_equal(charged, times.op_table(ops[0], strategies))
    assert (charged > 0).all()
    tensor = graph.tensors["ab"]
    made = [Request(ops[0], False, 0, tensor, tilings, strategies)]
    np.testing.assert_array_equal(
        timed.bytes_of(made)[0],
        times.output_table(ops[0], 0, tensor, tilings, strategies),
    )
    np.testing.assert_array_equal(
        timed.input_bytes(ops[0], 1, graph.tensors["b"], tilings, strategies),
        times.input_table(ops[0], 1, graph.tensors["b"], tilings, strategies),
    )
    assert timed.bytes_of(made)[0] is timed.bytes_of(made)[0]


def test_a_machine_without_speeds_is_refused_for_time() -> None:
    machine = Topology("mute", Device(2**30), (Level("link", 2, 1e9),))
    with pytest.raises(UsageError, match="topology mute does not say how fast its devices compute"):
        TimeTables(machine, (2,))


def test_tables_are_for_any_shipped_machine_of_some_size(graph: Graph) -> None:
    ops = opdefs.standard().bind_all(graph)
    for name in ("icml18-p100", "dgx-a100"):
        machine = load_topology(name)
        cuts = (2,) * (machine.device_count.bit_length() - 1)
        tables = TimeTables(machine, cuts)
        tilings = (Tiling.parse("S(0)", cuts), Tiling.parse("R", cuts))
        table = tables.input_table(ops[0], 1, graph.tensors["b"], tilings, tilings)
        assert table[0, 0] > 0
        assert table[1, 0] == 0
