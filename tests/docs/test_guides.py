"""The lines of pages for users do and print what the pages say, typed in their order in one folder for each page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from typed_lines import try_commands

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("run", "verify", "export", "ci", "python", "plan", "read-a-plan")
"""Pages with blocks ``console`` whose lines the fixture's files are enough for."""
ROWS, BATCH, FEATURES, CLASSES = 128, 32, 64, 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a forward model, its training step, a plan for four workers, and data."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shapes = {"fc1.weight": (FEATURES, 256), "fc2.weight": (256, CLASSES)}
    weights = [(rng.standard_normal(shape) / 16).astype(np.float32) for shape in shapes.values()]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "fc1.weight"], ["fc1"], "fc1"),
            helper.make_node("Relu", ["fc1"], ["hidden"], "act"),
            helper.make_node("MatMul", ["hidden", "fc2.weight"], ["logits"], "fc2"),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(values, name) for name, values in zip(shapes, weights, strict=True)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "model.onnx")
    planner.grad("model.onnx", loss="softmax_cross_entropy", optimizer="sgd", dim={"batch": BATCH}, output="train.onnx")
    planner.plan("train.onnx", gpus=4, out="plan", effort="quick")
    x, labels = rng.standard_normal((ROWS, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=ROWS)
    np.savez("data.npz", x=x, labels=labels)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_typed_lines_print_what_the_page_shows(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        try_commands(block, capsys)
