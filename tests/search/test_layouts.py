"""[sequence, batch, width] costs what [batch, sequence, width] does, and data parallelism only what gradients do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser, save_model

from planner import api, opdefs
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.decision import Decision
from planner.search.request import SearchRequest

STANDARD = opdefs.standard()
SAMPLES, POSITIONS, WIDTH, HEADS = 16, 8, 32, 4
WEIGHTS = {"q": 32, "k": 32, "v": 32, "o": 32, "w1": 32, "w2": 32, "b1": 0}
"""Rows of each weight of so many columns; 0: a bias."""
NETWORKS = {
    "linear": "y = MatMul(x, w1)",
    "Gemm between Reshapes": "r = Reshape(x, rows) p = Gemm(r, w1, b1) y = Reshape(p, apart)",
    "MLP": "h = MatMul(x, w1) hb = Add(h, b1) a = Relu(hb) y = MatMul(a, w2)",
    "MLP on rows": "r = Reshape(x, rows) p = Gemm(r, w1, b1) a = Relu(p) m = MatMul(a, w2) y = Reshape(m, apart)",
    "attention": """
        qx = MatMul(x, q) kx = MatMul(x, k) vx = MatMul(x, v)
        qh = Reshape(qx, heads) kh = Reshape(kx, heads) vh = Reshape(vx, heads)
        qt = Transpose <perm = {q}> (qh) kt = Transpose <perm = {k}> (kh) vt = Transpose <perm = {q}> (vh)
        s = MatMul(qt, kt) p = Softmax(s) c = MatMul(p, vt)
        ct = Transpose <perm = {back}> (c) cr = Reshape(ct, rows) oo = Gemm(cr, o, b1) y = Reshape(oo, apart)""",
}


def step(network: str, folder: Path, *, samples_first: bool) -> Graph:
    """A training step of a network on [samples, positions, width], or on [positions, samples, width]."""
    lead = (SAMPLES, POSITIONS) if samples_first else (POSITIONS, SAMPLES)
    order = (
        ("[0, 2, 1, 3]", "[0, 2, 3, 1]", "[0, 2, 1, 3]")
        if samples_first
        else ("[1, 2, 0, 3]", "[1, 2, 3, 0]", "[2, 0, 1, 3]")
    )
    body = NETWORKS[network]
    for key, perm in zip(("q", "k", "back"), order, strict=True):
        body = body.replace(f"{{{key}}}", perm)
    size = "{}, {}".format(*lead)
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> net (float[{size}, {WIDTH}] x) => (float[{size}, {WIDTH}] y)
            <int64[2] rows = {{{SAMPLES * POSITIONS}, {WIDTH}}}, int64[3] apart = {{{size}, {WIDTH}}},
             int64[4] heads = {{{size}, {HEADS}, {WIDTH // HEADS}}}> {{ {body} }}"""
    )
    read = {name for node in model.graph.node for name in node.input}
    roll = np.random.default_rng(1)
    for name, rows in WEIGHTS.items():
        if name in read:
            value = roll.standard_normal((rows, WIDTH) if rows else (WIDTH,)).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    save_model(model, folder / "m.onnx")
    api.grad(folder / "m.onnx", loss="mse", optimizer="sgd", output=folder / f"{samples_first}.onnx")
    return canonical(read_model(folder / f"{samples_first}.onnx")).graph


def planned(graph: Graph, strategy: str) -> Decision:
    return decide_with_bodies(graph, STANDARD, SearchRequest(4, strategy=strategy, effort="quick"))


@pytest.mark.parametrize("network", NETWORKS)
def test_layouts_cost_the_same_and_data_parallelism_the_gradients(network: str, tmp_path: Path) -> None:
    costs = []
    for samples_first in (True, False):
        graph = step(network, tmp_path, samples_first=samples_first)
        trained = sum(graph.tensors[pair.current].size_bytes for pair in graph.state)
        by_data, found = planned(graph, "data"), planned(graph, "tofu")
        assert 1 <= by_data.moved_bytes / (2 * 3 * trained) <= 1.05
        assert found.cost <= by_data.cost
        costs.append((by_data.cost, found.cost))
    assert costs[0] == costs[1]


def test_either_leading_dim_divides_layers_at_the_same_cost(tmp_path: Path) -> None:
    """Contributions to the weights are summed, and each worker gets the sums."""
    step("MLP", tmp_path, samples_first=True)
    moved = []
    for dim in ("S(0)", "S(1)"):
        pins, folder = {"x": dim, "h": dim, "y": dim}, tmp_path / dim
        found = api.plan(tmp_path / "True.onnx", gpus=4, inputs="partitioned", pin=pins, out=folder, models=False)
        moved.append(found.plan.moved_bytes)
    assert moved[0] == moved[1] <= 1.01 * 2 * 3 * found.state_bytes
