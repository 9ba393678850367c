"""``--value``: an input that decides a branch, from ``grad`` over ``plan`` to a verified run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, parser

from planner.commands import main as cli


@pytest.fixture
def sampled(tmp_path: Path) -> Path:
    """A model of two sample rates, as speech detectors are shipped."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x, int64 sr) => (float[4, 2] y) <int64 fast = {16000}, float[6, 2] w> {
            c = Equal(sr, fast)
            z = If (c) <then_branch = t () => (float[4, 6] p) { p = Abs(x) },
                        else_branch = f () => (float[4, 6] q) { q = Neg(x) }>
            y = MatMul(z, w)
        }"""
    )
    weights = np.random.default_rng(0).standard_normal(12).astype(np.float32)
    del model.graph.initializer[1:]
    model.graph.initializer.append(helper.make_tensor("w", 1, [6, 2], weights))
    path = tmp_path / "vad.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_forward_model(sampled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data, result = (str(tmp_path / name) for name in ("plan", "x.npz", "y.npz"))
    assert cli.main(["plan", str(sampled), "--gpus", "2", "--value", "sr=16000", "-o", out]) == 0
    assert "constant inputs sr = 16000" in " ".join(capsys.readouterr().out.split())
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    np.savez(data, x=x)
    assert cli.main(["run", out, "--inputs", data, "-o", result, "--verify"]) == 0
    w = np.random.default_rng(0).standard_normal(12).astype(np.float32).reshape(6, 2)
    np.testing.assert_allclose(np.load(result)["y"], abs(x) @ w, atol=1e-5)
    np.savez(data, x=x, sr=np.int64(16000))
    assert cli.main(["run", out, "--inputs", data]) == 2
    assert "sr: fixed at 16000 when the model was planned (--value); leave it out" in capsys.readouterr().err


def test_a_step_of_training(sampled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, out = str(tmp_path / "train.onnx"), str(tmp_path / "plan")
    line = ["grad", str(sampled), "--loss", "mse", "--optimizer", "sgd", "-o", train]
    assert cli.main(line) == 2
    assert "hint: decide it before the plan is made: --value sr=NUMBER" in capsys.readouterr().err
    assert cli.main([*line, "--value", "sr=8000", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["values"] == {"sr": "8000"}
    assert made["inputs"] == ["x", "target", "learning_rate"]
    assert cli.main(["plan", train, "--gpus", "2", "-o", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"] == {"sr": "8000"}
    assert cli.main(["run", out, "--verify"]) == 0


def test_data_that_is_the_same_for_ever_is_warned_of(
    sampled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = str(tmp_path / "train.onnx")
    line = ["grad", str(sampled), "--loss", "mse", "--optimizer", "sgd", "-o", train, "--value", "sr=8000", "--json"]
    assert cli.main([*line, "--value", "x=3"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [
        "input x, float32 [4, 6], is 3 in every step (--value): where it is data, leave that out, and give it with "
        "tofu run --inputs"
    ]
    assert cli.main(line) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
