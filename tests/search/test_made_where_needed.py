"""What depends on positions alone, such as a mask, is made where it is needed: no worker is sent any of it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from planner import api, opdefs
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.decision import Decision
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

ANGLES = """
    column = Constant <value_ints = [1]> ()
    at = Unsqueeze(position, column)
    nought = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 32.0> ()
    base = Constant <value_float = 10000.0> ()
    index = Range(nought, half, one)
    share = Div(index, half)
    power = Pow(base, share)
    angle = Div(at, power)
    both = Concat <axis = 1> (angle, angle)
    cosine = Cos(both)
    sine = Sin(both)"""
"""Rotary tables (Su et al. 2021) of positions, for heads of 64."""


def turned(name: str) -> str:
    """Heads turned by their positions."""
    return f"""
        parts_{name} = Constant <value_ints = [32, 32]> ()
        {name}_first, {name}_second = Split <axis = -1> ({name}, parts_{name})
        {name}_negative = Neg({name}_second)
        {name}_swapped = Concat <axis = -1> ({name}_negative, {name}_first)
        {name}_straight = Mul({name}, cosine)
        {name}_across = Mul({name}_swapped, sine)
        {name}_turned = Add({name}_straight, {name}_across)"""


def written(text: str, opset: int) -> Path:
    path = Path(f"of{opset}.onnx")
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {text}'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def planned(text: str, *, partitioned_inputs: bool = False) -> Decision:
    """A quick plan for eight workers."""
    graph = canonical(read_model(written(text, 21))).graph
    ask = SearchRequest(8, effort="quick", partitioned_inputs=partitioned_inputs)
    return decide_with_bodies(graph, opdefs.standard(), ask)


def of_positions(plan: Decision) -> dict[str, int]:
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
    plan = planned(text)
    assert "mask" in of_positions(plan)
    assert not any(of_positions(plan).values())
    assert plan.moved_bytes == 0


@pytest.mark.parametrize(("heads", "source"), [(8, "range"), (2, "ids")])
def test_rotary_tables_are_made_where_they_are_needed(
    heads: int, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two heads on eight workers, each has some queries, and makes the rows of the tables for these alone."""
    monkeypatch.chdir(tmp_path)
    length = 32_768
    end, step = (f"{name} = Constant <value_float = {value}> ()" for name, value in (("end", 32768.0), ("step", 1.0)))
    ids = "" if source == "range" else f", int64[{length}] ids"
    made = "begin = Sub(end, end) position = Range(begin, end, step)" if not ids else "position = Cast <to = 1> (ids)"
    of_head = f"float[1, {heads}, {length}, 64]"
    text = f"""({of_head} q, {of_head} k, {of_head} v{ids}) => ({of_head} y) {{ {end} {step} {made} {ANGLES}
        {turned("q")} {turned("k")}
        columns = Transpose <perm = [0, 1, 3, 2]> (k_turned)
        scores = MatMul(q_turned, columns)
        weights = Softmax(scores)
        y = MatMul(weights, v)
    }}"""
    plan = planned(text)
    assert not any(plan.tensor_bytes[name] for name in ("cosine", "sine", "both"))
    assert not any(of_positions(plan).values())
    table = 2 * length * 64 * 4
    assert plan.excess_bytes < 7 * table, "more than to make the tables once and to bring them to all"
    assert str(plan.tilings["cosine"]) == ("R/2 R/2 R/2" if heads == 8 else "R/2 S(0)/2 S(0)/2")


@pytest.mark.parametrize(("rows", "classes", "source"), [(2048, 2048, "range"), (128, 65_536, "ids")])
def test_ones_are_made_where_they_are_needed(
    rows: int, classes: int, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup that is written as a product with ones at places: each worker makes those that it multiplies."""
    monkeypatch.chdir(tmp_path)
    ids = "" if source == "range" else f", int64[{rows}] ids"
    text = f"""(float[{classes}, 256] w{ids}) => (float[{rows}, 256] y) {{
        end = Constant <value_int = {rows}> ()
        nought = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        {"position = Range(nought, end, one)" if not ids else "position = Identity(ids)"}
        depth = Constant <value_int = {classes}> ()
        values = Constant <value_floats = [0.0, 1.0]> ()
        ones = OneHot(position, depth, values)
        y = MatMul(ones, w)
    }}"""
    plan = planned(text, partitioned_inputs=True)
    assert plan.tensor_bytes["ones"] == 0


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
