"""What may be a state and was not paired is said where one plans, and where one lacks it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from planner import api
from planner.errors import UsageError
from planner.records import plain_record

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8, 6] x, float[6, 4] W, float[6] k) => (float loss, float[6, 4] W2, float[6] k2)
<float lr = {0.1}, int64[1] last = {1}> {
    h = MatMul(x, W)  q = Mul(h, h)  loss = ReduceMean <keepdims = 0> (q)
    xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, h)  u = Mul(g, lr)  W2 = Sub(W, u)
    c = Unsqueeze(k, last)  wt = Transpose <perm = [1, 0]> (W)  p = MatMul(wt, c)  w = MatMul(W, p)
    n = ReduceL2 <keepdims = 1> (w)  d = Div(w, n)  k2 = Squeeze(d, last)
}
"""


def test_what_may_be_a_state_is_said(tmp_path: Path) -> None:
    model, plan = tmp_path / "step.onnx", tmp_path / "plan"
    model.write_bytes(parser.parse_model(TEXT).SerializeToString())
    found = api.plan(model, gpus=2, out=plan)
    (warning,) = plain_record(found)["warnings"]
    assert "write 'k: k2' in a file for --state" in warning
    with pytest.raises(UsageError, match="lacks inputs of the model") as raised:
        api.run(plan, inputs=_npz(tmp_path / "x.npz", x=np.ones((8, 6), np.float32)))
    assert raised.value.facts == (
        "k: float32 [6]; if it is a state, plan again with 'k: k2' and the other pairs in --state",
    )
    pairs = tmp_path / "pairs.yaml"
    pairs.write_text("W: W2\nk: k2\n")
    assert api.plan(model, gpus=2, state=pairs, out=plan, force=True).warnings == ()


FORWARD = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8, 6] x, float[6, 4] W) => (float[8, 4] y, float loss)
    { y = MatMul(x, W)  loss = ReduceSum <keepdims = 0> (y) }
"""
CARRIED = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8, 6] x, float[8, 6] h) => (float[8, 6] h_next, float[8, 6] y) { h_next = Add(x, h)  y = Tanh(h_next) }
"""


@pytest.mark.parametrize(("text", "count"), [(FORWARD, 1), (TEXT, 0), (CARRIED, 0)])
def test_a_graph_that_only_infers_is_called_so_once(text: str, count: int, tmp_path: Path) -> None:
    model, pairs, told = tmp_path / "m.onnx", tmp_path / "pairs.yaml", list[str]()
    model.write_bytes(parser.parse_model(text).SerializeToString())
    pairs.write_text("h: h_next\n")
    state = {"state": pairs} if text is CARRIED else {}
    api.plan(model, gpus=2, effort="quick", out=tmp_path / "plan", notice=told.append, **state)
    assert told.count("note: this graph only infers; `tofu grad` makes a training step") == len(told) == count


def _npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path
