"""What launches, passes over memory and efficiency take, by hand; and estimates beside what a GPU took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from fast_suite import chosen
from planner import api, opdefs
from planner.algebra.tiling import UNCUT, Only, Replicate, Shard
from planner.cost.kernels import ONE_KERNEL, Kernels, kernels_of
from planner.cost.roofline import Roofline
from planner.cost.seconds.tables import TimeTables
from planner.features.zoo.models import build
from planner.graph.core.model import DType, Shape
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.topology_file import Device, Efficiency, Level, Topology
from planner.tdl.bind import BoundOp

LAUNCH = 10e-6
CPU = Device(2**40, ((DType.FLOAT32, 1e12),), 100e9)
GPU = replace(CPU, launch_seconds=LAUNCH)
PAGE = Path(__file__).parents[2] / "bench" / "results" / "gpu.md"


def bound(op_type: str, reads: dict[str, Shape], made: Shape, *axes: int, **attributes: object) -> BoundOp:
    inputs, output = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        for shapes in (reads, {"made": made})
    )
    constants = [helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)] if axes else []
    names = [*reads, *(constant.name for constant in constants)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["made"], **attributes)], "one", inputs, output, constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (op,) = opdefs.standard().bind_all(graph_from_proto(model))
    return op


def seconds(op: BoundOp, device: Device, workers: int = 1) -> np.ndarray:
    tiling = UNCUT if workers == 1 else UNCUT.extend(Shard(0), workers)
    return Roofline([device] * workers).seconds(op, tiling)


def test_an_op_takes_no_less_than_a_launch() -> None:
    small, large = (bound("Relu", {"x": (size,)}, (size,)) for size in (8, 10**6))
    assert seconds(small, CPU)[0] == pytest.approx(8 * 8 / 100e9)
    assert seconds(small, GPU)[0] == LAUNCH
    assert seconds(large, GPU)[0] == pytest.approx(8e6 / 100e9), "the host launches the next op meanwhile"
    np.testing.assert_allclose(seconds(large, GPU, 4), 2e6 / 100e9)
    np.testing.assert_allclose(seconds(small, GPU, 4), LAUNCH)


def test_an_idle_worker_launches_nothing() -> None:
    op = bound("Relu", {"x": (8,)}, (8,))
    np.testing.assert_array_equal(Roofline([GPU] * 2).seconds(op, UNCUT.extend(Only(0), 2)), [LAUNCH, 0])


def test_a_view_launches_nothing() -> None:
    op = bound("Flatten", {"x": (10, 10, 1000)}, (10, 10000))
    assert seconds(op, GPU)[0] == 0
    assert seconds(op, CPU)[0] == pytest.approx(8e5 / 100e9)


def test_devices_attain_a_share_of_their_peaks() -> None:
    device = replace(CPU, efficiency=Efficiency(compute=0.5, memory=0.8))
    product = bound("MatMul", {"a": (512, 512), "b": (512, 512)}, (512, 512))
    assert seconds(product, device)[0] == pytest.approx(2 * 512**3 / 0.5e12)
    assert seconds(bound("Relu", {"x": (1000,)}, (1000,)), device)[0] == pytest.approx(8000 / 80e9)


def test_the_gradient_of_a_filter_is_counted_as_it_is_executed() -> None:
    images, gradients, filters = (3, 8, 10, 10), (4, 8, 10, 10), (3, 4, 3, 3)
    op = bound("Conv", {"x": images, "w": gradients}, filters, pads=[1, 1, 1, 1])
    touched = 4 * (3 * 8 * 100 + 4 * 8 * 100 + 3 * 4 * 9)
    padded, box = 3 * 8 * 144, 3 * 8 * 100
    # A Pad, 9 Slices of a box each, their concatenation, one product, and its result turned.
    by_hand = 4 * (2 * padded + 9 * 2 * box + 2 * 9 * box + (9 * box + 3200 + 27 * 4) + 2 * 27 * 4)
    assert kernels_of(op, touched) == Kernels(13, by_hand / touched)
    assert seconds(op, GPU)[0] == pytest.approx(13 * LAUNCH)
    plain = bound("Conv", {"x": (8, 3, 10, 10), "w": (4, 3, 3, 3)}, (8, 4, 8, 8))
    assert kernels_of(plain, 1000) == ONE_KERNEL


def test_a_sum_over_rows_is_a_product_with_ones() -> None:
    op = bound("ReduceSum", {"x": (64, 512)}, (512,), 0, keepdims=0)
    touched = 4 * 65 * 512
    assert kernels_of(op, touched) == Kernels(1, (touched + 4 * 64) / touched)
    small = bound("ReduceSum", {"x": (64, 16)}, (16,), 0, keepdims=0)
    assert kernels_of(small, 4 * 65 * 16) == ONE_KERNEL


def test_later_cuts_divide_the_work_and_not_the_launch() -> None:
    machine = Topology("eight", GPU, (Level("link", 8, 1e9),))
    tables = TimeTables(machine, (2, 4))
    rows = (UNCUT.extend(Shard(0), 2), UNCUT.extend(Replicate(), 2))
    small, large = (bound("Relu", {"x": (size,)}, (size,)) for size in (8, 8 * 10**6))
    np.testing.assert_array_equal(tables.op_table(small, rows), [LAUNCH * 1e12] * 2)
    np.testing.assert_allclose(tables.op_table(large, rows), [8e6 / 100e9 * 1e12, 16e6 / 100e9 * 1e12])


@pytest.mark.parametrize(
    ("model", "batch", "measured_ms"),
    chosen([("gpt2", 4, 128), ("resnet-50", 64, 114), ("mlp-4x8192", 512, 16.9)], fast=[("gpt2", 4, 128)]),
)
def test_steps_on_an_h200_are_estimated_within_a_quarter(
    model: str, batch: int, measured_ms: float, tmp_path: Path
) -> None:
    """Of what the ops of each took by ``bench/results/gpu.md``, which has the estimate beside it."""
    write_model(build(model, batch=batch), tmp_path / "train.onnx")
    plan = api.plan(tmp_path / "train.onnx", gpus=1, topology="dgx-h200", models=False, out=tmp_path / "plan").plan
    assert plan.estimate is not None
    estimated_ms = 1e3 * plan.estimate.estimated_seconds
    assert estimated_ms == pytest.approx(measured_ms, rel=0.25)
    assert f"| `{model}`, batch {batch} | {measured_ms:g} | {estimated_ms:.3g} |" in PAGE.read_text()
