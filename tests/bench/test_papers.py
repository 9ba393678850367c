"""What stands behind the papers' figures: the ways to train that are estimated, and the searches that are timed."""

from __future__ import annotations

import itertools

import layer_wise
import numpy as np
import placement
import pytest
import soybean_figures
import strategies
import swapping
from paper_row import Row, Verdict, close, slower

from planner import opdefs
from planner.features.zoo.models import mlp
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import DType
from planner.machine.topology_file import Device, Level, Topology, load_topology
from planner.runtime.values.state import starting_values
from planner.search.literature import layers
from planner.search.literature.layer_elimination import least
from planner.search.model.problem import Problem


def machine(flop_per_s: float, bytes_per_s: float) -> Topology:
    """Four devices whose memory takes no time."""
    device = Device(1 << 30, ((DType.FLOAT32, flop_per_s),), float("inf"))
    return Topology("four", device, (Level("bus", 4, bytes_per_s),))


def test_cost_and_moved_bytes_of_a_strategy_stand_under_their_heads() -> None:
    (cost,) = strategies.costs(strategies.Model.of("mlp-2x1024", 7), 2, ("data",))
    assert cost.plan is not None
    cells = dict(zip(strategies.HEADS, strategies.shown(cost, 1.0), strict=True))
    assert cost.plan.excess_bytes > 0, "seven samples on two workers"
    assert cells["moved MB"] == f"{cost.plan.moved_bytes / 1e6:.1f}"
    assert cells["cost, MB"] == f"{(cost.plan.moved_bytes + cost.plan.excess_bytes) / 1e6:.1f}"
    assert cells["cost, MB"] != cells["moved MB"]


def test_layers_are_on_workers_in_turn() -> None:
    graph = rnn(3, 8, batch=2, steps=3)
    owner = placement.owners(graph, 2)
    of_layer = {
        layer: {owner[op.name] for op in graph.ops if op.name.startswith(f"layer{layer}.")} for layer in (1, 2, 3)
    }
    assert of_layer == {1: {0}, 2: {1}, 3: {0}}
    held = placement.state_bytes(graph, owner, 2)
    matrix = 8 * 32 * 4
    assert held == [3 * 3 * matrix, 2 * 3 * matrix], "weight, gradient and history; the first layer has one matrix"


def test_layers_in_turn_work_as_a_pipeline() -> None:
    """With links that take no time two layers on two workers take half of what one takes, but for the first steps."""
    graph = rnn(2, 64, batch=64, steps=8)
    ops = opdefs.standard().bind_all(graph)
    fast = machine(1e9, 1e18)
    together = placement.pipelined_seconds(ops, dict.fromkeys((op.name for op in graph.ops), 0), fast)
    apart = placement.pipelined_seconds(ops, placement.owners(graph, 2), fast)
    assert 0.5 < apart / together < 0.75
    with_links = placement.pipelined_seconds(ops, placement.owners(graph, 2), machine(1e9, 1e6))
    assert with_links > 2 * apart


def test_what_is_counted_is_what_swapping_copies() -> None:
    graph = mlp(3, 24, 36)
    limit = swapping.largest_op_bytes(graph) + 100
    model = swapping.SwappingModel(graph, starting_values(graph), limit)
    model.step()
    ran, counted = model.step(), swapping.counted(graph, limit)
    assert ran.in_bytes > 0
    assert (counted.in_bytes, counted.out_bytes, counted.peak_bytes) == (ran.in_bytes, ran.out_bytes, ran.peak_bytes)


def test_depth_first_search_finds_what_elimination_finds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        own = [rng.integers(0, 50, 3) for _ in range(5)]
        edges = {
            pair: rng.integers(0, 50, (3, 3)) for pair in itertools.combinations(range(5), 2) if rng.random() < 0.6
        }
        assert layer_wise.depth_first(own, edges) == least(own, edges).total


def test_one_weird_trick_leaves_a_layer_one_configuration() -> None:
    graph = mlp(2, 64, 32)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 4)
    layer = problem.variables[problem.variable_of_op["x1_op"]]
    assert len(layers.configurations(problem, layer, (2, 2))) > 1
    with layer_wise.one_weird_trick():
        assert [str(one) for one in layers.configurations(problem, layer, (2, 2))] == ["S(1)/2 S(1)/2"]


@pytest.mark.parametrize(("groups", "moved", "printed"), [(16, 54.0, 57.6), (1, 64.8, 69.12), (4, 23.76, 31.68)])
def test_the_plans_of_soybeans_section_2_2(groups: int, moved: float, printed: float) -> None:
    """With the gradient of the network's input, which no step needs: 54.0, 72.0 and 25.2, printed 57.6, 76.8, 33.6."""
    found, as_printed = soybean_figures.section_2_2(groups)
    assert (found / 1e6, as_printed / 1e6) == (moved, printed)


def test_a_slower_machine_attains_a_share() -> None:
    whole, half = load_topology("p2.8xlarge"), slower(load_topology("p2.8xlarge"), 0.5)
    assert dict(half.devices[0].compute_flop_per_s)[DType.FLOAT32] == 0.5 * 4.1e12
    assert half.devices[0].memory_bytes == whole.devices[0].memory_bytes


def test_verdicts() -> None:
    assert close(14.0, 14.8) is Verdict.REPRODUCED
    assert close(8.8, 12.2, order=True) is Verdict.ORDER
    assert close(8.8, 12.2) is Verdict.NOT
    assert Row("Figure 7", "", "", "", Verdict.NOT).figures == 1
