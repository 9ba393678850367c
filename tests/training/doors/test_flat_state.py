"""A flat step from the command line: states inferred and explained, refused with candidates, given in a file."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from planner import api
from planner.commands import main as cli

CLEAR = """g (float[8, 4] x, float[4, 4] W, float[4, 4] m) => (float loss, float[4, 4] moved, float[4, 4] W_next)
    <float lr = {0.1}, float keep = {0.9}> {
    h = MatMul(x, W)  q = Mul(h, h)  loss = ReduceMean <keepdims = 0> (q)
    t = Transpose <perm = [1, 0]> (x)  g = MatMul(t, h)
    old = Mul(m, keep)  moved = Add(old, g)
    u = Mul(moved, lr)  W_next = Sub(W, u)
}"""
UNCLEAR = """g (float[8, 4] x, float[4, 4] W, float[4, 4] V) => (float loss, float[4, 4] A)
    <float lr = {0.1}> {
    s = Add(W, V)  h = MatMul(x, s)  q = Mul(h, h)  loss = ReduceMean <keepdims = 0> (q)
    t = Transpose <perm = [1, 0]> (x)  g = MatMul(t, h)  u = Mul(g, lr)  A = Sub(s, u)
}"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
        (tmp_path / "step.onnx").write_bytes(model.SerializeToString())
        return "step.onnx"

    return write


def test_inferred_pairs_are_explained(written, capsys):
    assert cli.main(["plan", written(CLEAR), "--gpus", "2", "-o", "plan"]) == 0
    capsys.readouterr()
    assert cli.main(["explain", "plan", "--json"]) == 0
    state = json.loads(capsys.readouterr().out)["state"]
    assert [(row["input"], row["output"], row["evidence"]) for row in state] == [
        ("m", "moved", ["shape", "dataflow"]), ("W", "W_next", ["name", "shape", "dataflow"]),
    ]  # fmt: skip
    assert state[0]["why"] == "its update keeps the input times 0.9"
    assert cli.main(["explain", "plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 tensors, 2 of them inferred" in next(line for line in lines if line.startswith("state "))
    assert cli.main(["explain", "plan", "--view", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("m ") and "moved" in line)
    assert "shape dataflow" in row
    assert row.endswith("its update keeps the input times 0.9")
    assert cli.main(["explain", "plan", "W", "--json"]) == 0
    assert [row["input"] for row in json.loads(capsys.readouterr().out)["state"]] == ["W"]


@pytest.mark.parametrize("command", ["plan", "compare", "grad"])
def test_what_cannot_be_told_is_refused_until_it_is_said(written, tmp_path, capsys, command):
    step = written(UNCLEAR)
    arguments = {"plan": ["--gpus", "2"], "compare": ["--gpus", "2"], "grad": ["-o", "train.onnx"]}[command]
    assert cli.main([command, step, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: which input output 'A' replaces cannot be told\n")
    assert "\n  'A' [4, 4]: 'W', 'V'\n" in error
    assert "--state pairs.yaml" in error
    (tmp_path / "pairs.yaml").write_text("V: A\n")
    planned = ["plan", step, "--gpus", "2", "-o", "plan", "--state", "pairs.yaml"]
    assert cli.main(planned if command == "compare" else [command, step, *arguments, "--state", "pairs.yaml"]) == 0
    assert command != "compare" or cli.main(["compare", "plan"]) == 0


def test_pairs_that_are_given_are_explained_as_such(written, tmp_path, capsys):
    (tmp_path / "pairs.yaml").write_text("V: A\n")
    assert cli.main(["plan", written(UNCLEAR), "--gpus", "2", "-o", "plan", "--state", "pairs.yaml"]) == 0
    (row,) = api.explain(tmp_path / "plan").state
    assert (row.current, row.following, row.evidence) == ("V", "A", ("stated",))
    capsys.readouterr()
    assert cli.main(["explain", "plan"]) == 0
    assert "replaced by" not in capsys.readouterr().out
    assert api.run(tmp_path / "plan", steps=2, verify=True).verified


def test_no_state_at_all(written, tmp_path):
    (tmp_path / "none.yaml").write_text("{}\n")
    for text in (CLEAR, UNCLEAR):
        assert cli.main(["plan", written(text), "--gpus", "2", "-o", "plan", "--state", "none.yaml"]) == 0
        assert api.explain(tmp_path / "plan").state == ()
        for file in (tmp_path / "plan").iterdir():
            file.unlink()
        (tmp_path / "plan").rmdir()


def test_a_flat_step_goes_on_from_its_own_state(written, tmp_path):
    """Two steps of a plan are two steps of the update, so that the pairs are the right ones."""
    assert cli.main(["plan", written(CLEAR), "--gpus", "2", "-o", "plan"]) == 0
    rng = np.random.default_rng(0)
    first = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (8, 4)), ("W", (4, 4)))}
    np.savez(tmp_path / "first.npz", m=np.zeros((4, 4), np.float32), **first)
    api.run(tmp_path / "plan", inputs=tmp_path / "first.npz", steps=2, result=tmp_path / "out.npz")
    x, w, m = first["x"].astype(np.float64), first["W"].astype(np.float64), np.zeros((4, 4))
    for _ in range(2):
        m = 0.9 * m + x.T @ (x @ w)
        w = w - 0.1 * m
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["W_next"], w, rtol=1e-4)
