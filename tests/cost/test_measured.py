"""Times by a profile: measured, scaled, by the roofline; and the plans that follow them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner import opdefs
from planner.algebra.tiling import Only, Tiling
from planner.cost.roofline import Roofline
from planner.cost.seconds.estimate import estimate
from planner.cost.seconds.measured import From, Measured
from planner.cost.seconds.parts import different_parts
from planner.cost.seconds.tables import PICOSECONDS, TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import CostTables
from planner.errors import UsageError
from planner.graph.core.model import DType, Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.device_profile import DeviceProfile, MeasuredDevice, MeasuredOp
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink, Level, Topology
from planner.partition.build import partition
from planner.records import plain, reader
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.strict_json import parse_json
from planner.tdl.bind import BoundOp

SPEEDS = ((DType.FLOAT32, 1e12),)
DEVICE = Device(2**40, SPEEDS, 100e9)
HERE = MeasuredDevice("cpu", "made up", 1, "onnxruntime 0", 0.0)
TWO = Topology("two", DEVICE, (Level("link", 2, 1e12),))


def graph_of(*nodes: tuple[str, list[str], str], constants: dict[str, float] | None = None, size: int = 64) -> Graph:
    """Ops on square matrices; what none of them makes is an input, and what the last makes is the result."""
    made = {output for _, _, output in nodes}
    read = dict.fromkeys(name for _, names, _ in nodes for name in names)
    known = constants or {}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size])
        for name in read
        if name not in made and name not in known
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, [output], name=f"{output}_op") for op, names, output in nodes],
        "g",
        inputs,
        [helper.make_tensor_value_info(nodes[-1][2], TensorProto.FLOAT, [size, size])],
        initializer=[helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in known.items()],
    )
    return graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def bound(graph: Graph) -> tuple[BoundOp, ...]:
    return opdefs.standard().bind_all(graph)


def measured(op: BoundOp, strategy: Tiling, seconds: float) -> list[MeasuredOp]:
    """All parts of a strategy take as long."""
    return [
        MeasuredOp(part.signature, part.shapes, part.operations, part.touched_bytes, seconds, 5)
        for part in different_parts(op, strategy)
    ]


def profile(*ops: list[MeasuredOp]) -> DeviceProfile:
    return DeviceProfile(HERE, "g", "", tuple({(op.signature, op.shapes): op for some in ops for op in some}.values()))


WHOLE = Tiling((), ())


def along(op: BoundOp, variable: int, ways: int = 2) -> Tiling:
    assert not op.variables[variable].obstacle
    return Tiling.parse(f"S({variable})", (ways,))


def test_parts_are_told_apart_by_their_shapes_alone() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])
    sizes = {"x": [2, 3, 9, 9], "w": [4, 3, 3, 3]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 9, 9])]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, result), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    (op,) = bound(graph_from_proto(model))
    _, _, height, _ = op.analysis.outputs[0] or ()
    border, inner = different_parts(op, along(op, height, 3))
    assert (border.workers, inner.workers) == ((0, 2), (1,)), "upper and lower border read as many rows"
    assert border.shapes.inputs[0] == (2, 3, 4, 9)
    assert inner.shapes.inputs[0] == (2, 3, 5, 9)
    assert border.shapes.outputs == inner.shapes.outputs == ((2, 4, 3, 9),)
    assert border.signature == inner.signature
    assert border.signature.attributes == "pads=[1, 1, 1, 1]"


def test_no_launch_is_added_to_what_was_measured() -> None:
    graph = graph_of(("MatMul", ["a", "b"], "c"))
    (op,) = bound(graph)
    (part,) = different_parts(op, WHOLE)
    measured = MeasuredOp(part.signature, part.shapes, part.operations, part.touched_bytes, 2e-6, 5)
    device = replace(DEVICE, launch_seconds=1.0)
    assert Measured(DeviceProfile(HERE, "m", "", (measured,)), [device]).seconds(op, WHOLE)[0] == 2e-6


def test_measured_then_scaled_then_the_roofline() -> None:
    product, other = bound(graph_of(("MatMul", ["a", "b"], "c"), ("Exp", ["c"], "d")))
    halves = along(product, 0)
    known = profile(measured(product, halves, 3e-6))
    times = Measured(known, [DEVICE] * 2)
    seconds, source = times.seconds_and_source(product, halves)
    np.testing.assert_array_equal(seconds, 3e-6)
    assert source is From.MEASURED
    one = Measured(known, [DEVICE])
    seconds, source = one.seconds_and_source(product, WHOLE)
    # Operations are more than bytes here: twice as many as those of a half.
    np.testing.assert_allclose(seconds, 6e-6)
    assert source is From.SCALED
    seconds, source = one.seconds_and_source(other, WHOLE)
    factor = one.roofline_factor
    assert factor == pytest.approx(3e-6 / max(2 * 32 * 64 * 64 / 1e12, 4 * (32 * 64 * 2 + 64 * 64) / 100e9))
    np.testing.assert_allclose(seconds, factor * Roofline([DEVICE]).seconds(other, WHOLE))
    assert source is From.ROOFLINE
    assert one.assumptions == ()


def test_the_nearest_shapes_are_scaled() -> None:
    (product,) = bound(graph_of(("MatMul", ["a", "b"], "c")))
    rows, columns = along(product, 0, 4), along(product, 1, 4)
    times = Measured(profile(measured(product, rows, 1e-6), measured(product, columns, 9e-6)), [DEVICE] * 8)
    assert times.seconds(product, along(product, 0, 8))[0] == pytest.approx(0.5e-6)
    assert times.seconds(product, along(product, 1, 8))[0] == pytest.approx(4.5e-6)


def test_idle_workers_take_no_time() -> None:
    (op,) = bound(graph_of(("Exp", ["a"], "b")))
    idle = Tiling((Only(1),), (2,))
    times = Measured(profile(measured(op, WHOLE, 2e-6)), [DEVICE] * 2)
    np.testing.assert_array_equal(times.seconds(op, idle), [0, 2e-6])


def test_what_neither_profile_nor_topology_says_is_refused() -> None:
    product, other = bound(graph_of(("MatMul", ["a", "b"], "c"), ("Exp", ["c"], "d")))
    mute = Measured(profile(measured(product, WHOLE, 1e-6)), [Device(2**40)])
    assert mute.seconds(product, WHOLE)[0] == 1e-6
    with pytest.raises(UsageError, match="the profile has no Exp like one of the model"):
        mute.seconds(other, WHOLE)
    empty = Measured(profile(), [DEVICE])
    np.testing.assert_array_equal(empty.seconds(other, WHOLE), Roofline([DEVICE]).seconds(other, WHOLE))


def test_a_profile_is_of_one_device() -> None:
    faster = Device(2**40, ((DType.FLOAT32, 2e12),), 100e9)
    machine = DeviceGraph("two", (DEVICE, faster), (DeviceLink((0, 1), 1e9),))
    with pytest.raises(UsageError, match="devices of 2 speeds, and a profile is of one device"):
        TimeTables(machine, (2,), profile=profile())
    larger = replace(DEVICE, memory_bytes=2**41)
    TimeTables(replace(machine, devices=(DEVICE, larger)), (2,), profile=profile())


def planned(graph: Graph, known: DeviceProfile, machine: Topology = TWO) -> dict[str, str]:
    """The strategies of the plan for the least time, by op."""
    ops = bound(graph)
    times = TimeTables(machine, (2,), profile=known)
    plan = decide(graph, ops, SearchRequest(2, tables=TimedTables(CostTables(), times)))
    return {name: str(strategy.tiling) for name, strategy in plan.strategies.items()}


@pytest.mark.parametrize(("quick", "slow"), [(0, 1), (1, 0)])
def test_the_plan_turns_to_what_was_measured_to_be_quick(quick: int, slow: int) -> None:
    """Nothing has to move for either: inputs arrive as the plan wants them."""
    graph = graph_of(("MatMul", ["a", "b"], "c"))
    (product,) = bound(graph)
    known = profile(
        measured(product, WHOLE, 10e-6),
        measured(product, along(product, quick), 5e-6),
        measured(product, along(product, slow), 50e-6),
        measured(product, along(product, 2), 50e-6),
    )
    assert planned(graph, known) == {"c_op": f"S({quick})/2"}


def test_an_op_that_is_slow_when_cut_one_way_turns_its_neighbours() -> None:
    """One way is quick for the product, the other for what follows: over a quick link each has its own."""
    graph = graph_of(("MatMul", ["a", "b"], "c"), ("Exp", ["c"], "d"))
    product, other = bound(graph)

    def with_times(rows: float, columns: float) -> DeviceProfile:
        return profile(
            measured(product, along(product, 0), 1e-6),
            measured(product, along(product, 1), 2e-6),
            measured(product, along(product, 2), 9e-6),
            measured(other, along(other, 0), rows),
            measured(other, along(other, 1), columns),
        )

    assert planned(graph, with_times(1e-6, 1e-6)) == {"c_op": "S(0)/2", "d_op": "S(0)/2"}
    assert planned(graph, with_times(4e-6, 1e-6)) == {"c_op": "S(0)/2", "d_op": "S(1)/2"}
    slow_link = replace(TWO, levels=(Level("link", 2, 1e6),))
    assert planned(graph, with_times(4e-6, 1e-6), slow_link) == {"c_op": "S(1)/2", "d_op": "S(1)/2"}
    assert planned(graph, with_times(1.5e-6, 1e-6), slow_link) == {"c_op": "S(0)/2", "d_op": "S(0)/2"}


def test_an_estimate_says_how_much_was_measured() -> None:
    graph = graph_of(("MatMul", ["a", "b"], "c"), ("Exp", ["c"], "d"), ("Neg", ["d"], "e"))
    ops = bound(graph)
    plan = decide(graph, ops, SearchRequest(2))
    program = partition(graph, ops, plan).program
    strategy = plan.strategies["c_op"].tiling
    known = profile(measured(ops[0], strategy, 7e-6), measured(ops[1], WHOLE, 4e-6))
    found = estimate(graph, ops, plan.strategies, plan.cuts, program, TWO, known)
    sources = found.sources
    assert sources is not None
    assert (sources.measured_ops, sources.scaled_ops, sources.roofline_ops, sources.ops) == (1, 1, 1, 3)
    assert sources.measured_seconds == pytest.approx(7e-6)
    assert sources.scaled_seconds == pytest.approx(2e-6)
    parts = sources.measured_seconds + sources.scaled_seconds + sources.roofline_seconds
    assert found.compute_seconds == pytest.approx(parts)
    assert reader(type(found))(parse_json(json.dumps(plain(found)))) == found
    assert estimate(graph, ops, plan.strategies, plan.cuts, program, TWO).sources is None


def test_powers_are_told_apart_and_a_search_adds_up_all_the_same() -> None:
    """To the search both are one op; what it adds up must be what it says, and the estimate is right."""
    graph = graph_of(("Pow", ["a", "two"], "b"), ("Pow", ["b", "half"], "c"), constants={"two": 2.0, "half": 0.5})
    ops = bound(graph)
    strategy = along(ops[0], 0)
    other = along(ops[0], 1)
    known = profile(
        measured(ops[0], strategy, 1e-6),
        measured(ops[0], other, 1e-6),
        measured(ops[1], strategy, 8e-6),
        measured(ops[1], other, 8e-6),
    )
    assert len(known.ops) == 4
    tables = TimedTables(CostTables(), TimeTables(TWO, (2,), profile=known))
    plan = decide(graph, ops, SearchRequest(2, tables=tables))
    program = partition(graph, ops, decide(graph, ops, SearchRequest(2))).program
    assert plan.cost in {round(2 * one * PICOSECONDS) for one in (1e-6, 8e-6)}, "one of the two stands for both"
    found = estimate(graph, ops, plan.strategies, plan.cuts, program, TWO, known)
    assert found.compute_seconds == pytest.approx(9e-6)
