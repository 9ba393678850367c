"""States that products, cells, norms and element-wise ops update: NumPy's numbers, and equal bits in every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from drawn_states import Planned, steps
from fast_suite import chosen, draws
from planner import api
from planner.runtime.plan_files import load_plan
from ranks import launch, launcher

Array = np.ndarray
Update = Callable[[Array, Array, Array], Array]
CELL = """<ir_version: 10, opset_import: ["": 21]>
cell (float[16,8] h, float[8,8] a, float[8] b, float[256,256] u, float[256] x) => (float[16,8] h_next, float[256] y) {
  c = Constant <value = float {0.5}> ()  %s  y = MatMul(u, x)
}"""
CELLS: dict[str, tuple[str, Update]] = {
    "sum": ("m = MatMul(h, a)  h_next = Add(m, b)", lambda h, a, b: h @ a + b),
    "scale": ("m = MatMul(h, a)  h_next = Mul(m, c)", lambda h, a, b: h @ a * 0.5),
    "copy": ("m = MatMul(h, a)  h_next = Identity(m)", lambda h, a, b: h @ a),
    "relu": ("m = Gemm(h, a, b)  h_next = Relu(m)", lambda h, a, b: np.maximum(h @ a + b, 0)),
    "tanh": ("m = Gemm(h, a, b)  h_next = Tanh(m)", lambda h, a, b: np.tanh(h @ a + b)),
    "silu": ("s = Sigmoid(h)  h_next = Mul(h, s)", lambda h, a, b: h / (1 + np.exp(-h))),
}
"""Updates of h that the runtime makes one kernel of, beside a product whose size lets them be one segment."""


@pytest.mark.parametrize(
    ("name", "workers", "engine"),
    chosen(
        [
            (name, workers, engine)
            for name in CELLS
            for workers, engine in ((1, "local"), (2, "processes"), (4, "local"), (4, "mpi"))
            if name in ("sum", "silu") or engine == "local"
        ],
        fast=[("sum", 1, "local")],
    ),
)
def test_a_state_is_not_written_while_it_is_read(name: str, workers: int, engine: str, tmp_path: Path) -> None:
    """A plain run, as users have it: nobody compares it with anything."""
    text, update = CELLS[name]
    onnx.save(onnx.parser.parse_model(CELL % text), tmp_path / "cell.onnx")
    (tmp_path / "pairs.yaml").write_text("h: h_next\n")
    plan, given = tmp_path / "plan", tmp_path / "given.npz"
    api.plan(tmp_path / "cell.onnx", gpus=workers, state=tmp_path / "pairs.yaml", effort="quick", out=plan)
    draw = np.random.default_rng(0)
    tensors = load_plan(plan).graph.tensors
    values = {one: draw.standard_normal(tensors[one].shape).astype(np.float32) / 3 for one in ("h", "a", "b", "u", "x")}
    np.savez(given, **values)
    if engine == "mpi":
        if launcher() is None:
            pytest.skip("there is no mpi4py, or no mpiexec")
        result = tmp_path / "result.npz"
        options = ("--engine", "mpi", "--steps", 3, "--inputs", given, "-o", result)
        done = launch(workers, "run", plan, *options)
        assert done.code == 0, done.err
        found = np.load(result)["h_next"]
    else:
        found = api.run(plan, steps=3, inputs=given, engine=engine).results["h_next"]
    h = values["h"]
    for _ in range(3):
        h = update(h, values["a"], values["b"])
    np.testing.assert_allclose(found, h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", draws(3, 400))
@pytest.mark.gpu_emulation
def test_drawn_steps_have_the_same_bits_in_place_in_every_engine(count: int) -> None:
    in_place = 0
    for number, graph in enumerate(steps(count, 1)):
        for workers in (1, 2, 4):
            planned = Planned.of(graph, workers)
            assert planned.faults() == [], f"step {number} on {workers}"
            in_place += planned.in_place
    assert in_place > count
