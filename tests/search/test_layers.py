"""Layer-wise parallelism: configurations, costs, and the plan of the paper's network."""

from pathlib import Path

import numpy as np
import pytest

from planner import api, opdefs
from planner.algebra.tiling import Only, Tiling
from planner.cost.seconds.tables import PICOSECONDS, TimeTables
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import write_model
from planner.search.decide import decide
from planner.search.literature.layers import Forward, configurations, machine_of_the_paper
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest


def test_configurations_are_equal_degrees_of_outputs_on_some_devices() -> None:
    graph = mlp(1, 24, 36)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 4)
    layer = problem.variables[problem.variable_of_op["x1_op"]]
    assert layer.op is not None
    names = [variable.name for variable in layer.op.variables]
    found = {
        "".join("-" if isinstance(part, Only) else names[part.dim] for part in tiling.placements)
        for tiling in configurations(problem, layer, (2, 2))
    }
    assert found == {"mm", "mn", "nn", "-m", "-n", "--"}


def test_copies_of_a_weight_are_synchronised() -> None:
    """A product that is bound by its operations takes as long by rows as by columns, but for its weight's copies."""
    size, workers = 4096, 4
    graph = mlp(1, size, size)
    problem = Problem(graph, opdefs.standard().bind_all(graph), workers)
    forward = Forward(problem, (2, 2), TimeTables(machine_of_the_paper(4), (2, 2)))
    (costs,) = forward.layer_costs()
    options = dict(
        zip(map(str, configurations(problem, problem.variables[forward.layers[0]], (2, 2))), costs, strict=True)
    )
    # From two other devices a quarter each at once, from the third a quarter after that, and the way back.
    copies = 2 * (2 * size * size * 4 / (workers * 20e9) + 3e-6)
    layer = problem.variables[forward.layers[0]].op
    assert layer is not None
    m, n = layer.variable_number("m"), layer.variable_number("n")
    by_rows, by_columns = options[f"S({m})/2 S({m})/2"], options[f"S({n})/2 S({n})/2"]
    assert by_rows - by_columns == pytest.approx(copies * PICOSECONDS, rel=1e-9)
    alone = options["O(0)/2 O(0)/2"]
    assert alone == pytest.approx(4 * by_columns, rel=1e-9)


def test_transfers_between_nodes_wait_for_their_adapter() -> None:
    """ICML'18, section 4: a transfer takes what the links between its two devices take, not the fastest ones."""
    size, workers = 4096, 8
    graph = mlp(2, size, size)
    problem = Problem(graph, opdefs.standard().bind_all(graph), workers)
    forward = Forward(problem, (2, 2, 2), TimeTables(machine_of_the_paper(8), (2, 2, 2)))
    (number, other), costs = next((pair, costs) for pair, costs in forward.edge_costs().items() if costs.any())
    rows, columns = (
        {str(tiling): place for place, tiling in enumerate(configurations(problem, variable, (2, 2, 2)))}
        for variable in (problem.variables[forward.layers[place]] for place in (number, other))
    )
    layer = problem.variables[forward.layers[other]].op
    assert layer is not None
    m, n = layer.variable_number("m"), layer.variable_number("n")
    # Whoever computes columns needs all rows: four devices of a node share its adapter for the other node's half.
    moved = costs[rows[f"S({m})/2 S({m})/2 S({m})/2"], columns[f"S({n})/2 S({n})/2 S({n})/2"]] / PICOSECONDS
    between = 2 * 4 * (size * size * 4 / 2) / 12.5e9
    assert between < moved < 1.3 * between


def test_idle_devices_are_explained(tmp_path: Path) -> None:
    write_model(zoo.build("lenet-5", batch=32), tmp_path / "lenet.onnx")
    planned = api.plan(tmp_path / "lenet.onnx", gpus=4, strategy="layer-wise", out=tmp_path / "plan")
    assert "conv1" in str(api.explain(planned.directory, subject="conv1"))
    api.report(planned.directory, output=tmp_path / "plan.html")
    assert "conv1" in (tmp_path / "plan.html").read_text()


def test_vgg_on_four_devices() -> None:
    """ICML'18, table 5: convolutions by samples, then dense layers by channels."""
    graph = zoo.build("vgg-16", batch=128)
    plan = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(4, strategy="layer-wise"))
    assert all(str(plan.strategies[f"conv{layer}"]) == "b/2 b/2" for layer in ("1_1", "1_2", "2_1", "3_3", "4_3"))
    assert str(plan.strategies["fc1"]) == str(plan.strategies["fc2"]) == "n/2 n/2"
    assert str(plan.tilings["conv1_1.weight"]) == "R/2 R/2"
    assert str(plan.tilings["fc1.weight"]) == "S(0)/2 S(0)/2"


def test_small_layers_leave_devices_idle_and_the_plan_runs(tmp_path: Path) -> None:
    write_model(zoo.build("lenet-5", batch=16), tmp_path / "lenet.onnx")
    planned = api.plan(tmp_path / "lenet.onnx", gpus=4, strategy="layer-wise", out=tmp_path / "plan")
    assert planned.plan.strategies["fc3"].tiling == Tiling((Only(0), Only(0)), (2, 2))
    result = api.run(planned.directory, steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes == planned.plan.moved_bytes
    assert np.isfinite(result.losses).all()
