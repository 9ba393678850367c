"""The unpartitioned model in the stock runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.runtime.judge import whole
from planner.runtime.judge.whole import WholeModel


def test_constants_that_no_file_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "q": rng.integers(-8, 8, (6, 5)).astype(ml_dtypes.int4),
        "s": rng.uniform(1, 2, 5).astype(np.float32),
        "v": rng.standard_normal((5, 3)).astype(np.float32),
    }
    shapes = {"x": (2, 6), "w": (6, 5), "h": (2, 5), "y": (2, 3)}
    tensors = {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in constants.items()}
    tensors |= {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    graph = Graph(
        "g",
        tensors,
        (
            Op("a", "Cast", ("q",), ("w",), (("to", 1),)),
            Op("b", "Gemm", ("x", "w", "s"), ("h",)),
            Op("c", "MatMul", ("h", "v"), ("y",)),
        ),
        ("x",),
        ("y", "v"),
        constants,
    )
    x = {"x": rng.standard_normal((2, 6)).astype(np.float32)}
    wanted = WholeModel(graph).step(x)
    monkeypatch.setattr(whole, "_MOST_CONSTANT_BYTES", 100)
    monkeypatch.setattr(whole, "_LARGE_CONSTANT_BYTES", 21)
    made = []
    to_model = whole.to_model
    monkeypatch.setattr(whole, "to_model", lambda graph: made.append(to_model(graph)) or made[-1])
    found = WholeModel(graph).step(x)
    assert [tensor.name for tensor in made[0].graph.initializer] == ["s"]
    assert found["v"] is constants["v"]
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-6)
