"""What depends on positions alone, such as a mask, is made where it is needed: no worker is sent any of it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from planner import api, opdefs
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.decided import Decided
from planner.search.request import SearchRequest
from planner.training.doors.read import read_step

SEQUENCE = 2048
RANGE = f"""
    end = Constant <value_int = {SEQUENCE}> ()
    nought = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    key = Range(nought, end, one)
    column = Constant <value_ints = [1]> ()
    query = Unsqueeze(key, column)
    seen = LessOrEqual(key, query)
    zero = Constant <value_float = 0.0> ()
    never = Constant <value_float = -1e9> ()
    mask = Where(seen, zero, never)"""
TRILU = f"""
    shape = Constant <value_ints = [{SEQUENCE}, {SEQUENCE}]> ()
    full = ConstantOfShape <value = float[1] {{-1e9}}> (shape)
    above = Constant <value_int = 1> ()
    mask = Trilu <upper = 1> (full, above)"""


def written(text: str, opset: int) -> Path:
    path = Path(f"of{opset}.onnx")
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {text}'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def of_positions(plan: Decided) -> dict[str, int]:
    """By tensor that no input has a part in, what moves of it."""
    found: dict[str, int] = {}
    for op in plan.graph.ops:
        if all(not name or name in plan.graph.constants or name in found for name in op.inputs):
            found.update({name: plan.tensor_bytes.get(name, 0) for name in op.outputs})
    return found


@pytest.mark.parametrize("mask", [RANGE, TRILU], ids=["range", "trilu"])
def test_a_mask_is_made_where_it_is_needed(mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    heads = f"float[8, 8, {SEQUENCE}, 64]"
    text = f"""({heads} q, float[8, 8, 64, {SEQUENCE}] k, {heads} v) => ({heads} y) {{ {mask}
        scores = MatMul(q, k)
        masked = Add(scores, mask)
        weights = Softmax(masked)
        y = MatMul(weights, v)
    }}"""
    graph = canonical(read_model(written(text, 21))).graph
    plan = decide_with_bodies(graph, opdefs.standard(), SearchRequest(8, effort="quick"))
    assert "mask" in of_positions(plan)
    assert not any(of_positions(plan).values())
    assert plan.moved_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize(("length", "workers"), [(2048, 8), (8192, 64)])
def test_the_causal_mask_of_a_training_step_moves_nothing(
    length: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward and backward pass of ONNX's Attention as ``grad`` writes them."""
    monkeypatch.chdir(tmp_path)
    weights = ", ".join(f"float[256, 256] {name}" for name in ("wq", "wk", "wv"))
    text = f"""(float[8, {length}, 256] x, {weights}) => (float[8, {length}, 256] y) {{
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        y = Attention <q_num_heads = 8, kv_num_heads = 8, is_causal = 1> (q, k, v)
    }}"""
    api.grad(written(text, 23), loss="mse", optimizer="sgd", params=("w*",), output=Path("step.onnx"))
    graph = canonical(read_step(Path("step.onnx"))).graph
    plan = decide_with_bodies(graph, opdefs.standard(), SearchRequest(workers, effort="quick"))
    square = [name for name in of_positions(plan) if plan.graph.tensors[name].shape == (length, length)]
    assert len(square) > 1
    assert not any(of_positions(plan)[name] for name in square)
