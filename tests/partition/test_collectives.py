"""Fetches that are collectives, and tilings as annotations."""

import numpy as np
import onnx
import pytest

from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.artifacts.program import Program
from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import to_model
from planner.partition.build import partition
from planner.partition.collectives import collectives, counted
from planner.partition.sharding import sharding_of, with_annotations
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules


def program_of(workers: int, **options: object) -> Program:
    graph = mlp(3, 16, 64)
    ops = opdefs.standard().bind_all(graph)
    return partition(graph, ops, decide(graph, ops, SearchRequest(workers, **options))).program  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_data_parallelism_reduces_each_gradient_among_all(workers: int) -> None:
    found = collectives(program_of(workers, strategy="data"))
    assert {item.kind for item in found} == {"all-reduce"}
    assert {item.tensor for item in found} <= {f"w{layer}{part}" for layer in (1, 2, 3) for part in (".grad", ".step")}
    for item in found:
        assert item.workers == tuple(range(workers))
        assert item.moved_bytes == 2 * (workers - 1) * 16 * 16 * 4


@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("strategy", ["tofu", "data"])
def test_what_collectives_move_is_what_the_program_moves(workers: int, strategy: str) -> None:
    program = program_of(workers, strategy=strategy)
    assert sum(total["moved_bytes"] for total in counted(collectives(program)).values()) == program.predicted_bytes


def test_one_worker_has_none() -> None:
    assert collectives(program_of(1)) == ()


def test_groups_are_apart() -> None:
    """Two cuts, each with its own groups of two."""
    found = collectives(program_of(4, rules=Rules({"w1": "S(0)/2 R/2"})))
    assert any(len(item.workers) == 2 for item in found)


@pytest.mark.parametrize("text", ["R/4", "S(0)/4", "S(0)/2 R/2", "R/2 S(1)/2", "S(0)/2 S(1)/2", "S(1)/2 S(0)/2"])
@pytest.mark.parametrize("shape", [(8, 6), (7, 5)])
def test_annotations_say_who_holds_what(text: str, shape: tuple[int, ...]) -> None:
    cuts = (4,) if text.count("/") == 1 else (2, 2)
    tiling = Tiling.parse(text, cuts)
    spec = sharding_of("x", tiling, shape)
    assert spec is not None
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    devices = [groups.get(device, [device]) for device in spec.device]
    assert sorted(worker for group in devices for worker in group) == [0, 1, 2, 3]
    counts = [1, 1]
    for dim in spec.sharded_dim:
        (simple,) = dim.simple_sharding
        assert simple.dim_value == shape[dim.axis]
        counts[dim.axis] = simple.num_shards
    grid = np.arange(len(devices)).reshape(counts)
    boxes = list(tiling.boxes(shape))
    for row, column in np.ndindex(*grid.shape):
        held = {boxes[worker] for worker in devices[grid[row, column]]}
        assert len(held) == 1
        (box,) = held
        assert sorted({b.lo[0] for b in boxes}).index(box.lo[0]) == row
        assert sorted({b.lo[1] for b in boxes}).index(box.lo[1]) == column


def test_what_is_no_grid_has_no_annotation() -> None:
    assert sharding_of("x", Tiling.parse("S(0)/2 S(0)/3", (2, 3)), (7, 4)) is not None


def test_an_annotated_model_is_valid() -> None:
    graph = mlp(3, 16, 64)
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(4))
    model = to_model(graph)
    annotated, left_out = with_annotations(model, plan, {name: t.shape for name, t in graph.tensors.items()})
    assert not left_out
    onnx.checker.check_model(annotated)
    assert annotated.ir_version >= 11
    assert annotated.configuration[0].num_devices == 4
    for node in annotated.graph.node:
        (configuration,) = node.device_configurations
        names = {spec.tensor_name for spec in configuration.sharding_spec}
        assert names == {name for name in (*node.input, *node.output) if name in plan.tilings}
    assert not model.configuration, "the original is left as it is"
