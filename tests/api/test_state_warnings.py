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


def _npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path
