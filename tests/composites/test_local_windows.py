"""Attention whose queries see keys near them alone: over a border between positions, only those keys are brought."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from attentions import Arrays, graph_of
from fast_suite import chosen
from planner import api
from planner.graph.core.model import Graph
from planner.graph.decompositions import expand
from planner.runtime.judge.whole import WholeModel

SIZE = 8


def attention(random: np.random.Generator, mask: str) -> tuple[Graph, Graph, Arrays]:
    """Twice one with a window, by a constant mask of flags or numbers or by attributes."""
    heads, own = [(1, 1), (4, 2), (3, 3)][random.integers(3)]
    positions, batch, attributes = int(random.integers(33, 60)), int(random.integers(1, 3)), {}
    left, right = (int(random.integers(0, 12)) for _ in range(2))
    shapes = [(batch, many, positions, SIZE) for many in (heads, own, own)]
    if random.random() < 0.5:
        shapes = [(batch, positions, many * SIZE) for many in (heads, own, own)]
        attributes = {"q_num_heads": heads, "kv_num_heads": own}
    given: dict[str, np.ndarray | None] = {
        name: random.normal(size=shape).astype(np.float32) for name, shape in zip("qkv", shapes, strict=True)
    }
    far = np.arange(positions)[:, None] - np.arange(positions)
    seen = np.broadcast_to((far <= left) & (far >= -right), [(1, heads), (heads,), ()][random.integers(3)] + far.shape)
    bias = random.normal(size=seen.shape).astype(np.float32)
    low = np.float32(-np.inf if random.random() < 0.5 else np.finfo(np.float32).min)
    masked = {**given, "mask": np.where(seen, bias, low) if mask == "numbers" else seen}
    graph, values = graph_of("Attention", masked, {"y": given["q"].shape}, attributes, constants=("mask",))
    if mask != "window":
        return graph, graph, values
    # The runtime has no kernel for its attributes.
    attributes |= {"left_window_size": left, "right_window_size": right}
    return graph, *graph_of("Attention", given, {"y": given["q"].shape}, attributes)


def prompt(random: np.random.Generator) -> tuple[Graph, Graph, Arrays]:
    """Twice a prompt of GroupQueryAttention, turned, capped, with a sink, with lengths that are data or known."""
    heads, own = [(1, 1), (4, 2), (3, 3)][random.integers(3)]
    positions, batch = int(random.integers(33, 60)), int(random.integers(1, 3))
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": own}
    attributes["local_window_size"] = int(random.integers(1, 20))
    inputs: dict[str, np.ndarray | None] = {
        name: random.normal(size=(batch, positions, many * 16)).astype(np.float32)
        for name, many in zip("qkv", (heads, own, own), strict=True)
    }
    is_whole = random.random() < 0.5
    lengths = np.full(batch, positions - 1) if is_whole else random.integers(20, positions, batch)
    inputs |= {"past_key": None, "past_value": None, "lengths": lengths.astype(np.int32)}
    inputs |= {
        "total": np.array(positions, np.int32),
        **dict.fromkeys(("cosine", "sine", "positions", "added", "sink")),
    }
    if random.random() < 0.5:
        attributes["do_rotary"] = 1
        inputs |= {name: random.normal(size=(64, 8)).astype(np.float32) for name in ("cosine", "sine")}
    if random.random() < 0.5:
        inputs["sink"] = random.normal(size=heads).astype(np.float32)
    if random.random() < 0.3:
        attributes["softcap"] = 2.0
    cache = (batch, own, positions, 16)
    outputs = {"y": inputs["q"].shape, "key": cache, "value": cache}
    constants = ("total", "lengths") if is_whole else ("total",)
    graph, values = graph_of(
        "GroupQueryAttention", inputs, outputs, attributes, domain="com.microsoft", opset=21, constants=constants
    )
    return graph, graph, values


@pytest.mark.parametrize("kind", ["window", "flags", "numbers", "prompt"])
def test_blocks_of_queries_give_what_the_op_gives(kind: str) -> None:
    in_blocks = 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        whole, graph, values = prompt(random) if kind == "prompt" else attention(random, kind)
        body = expand(graph, workers=int(random.integers(2, 6))).graph
        in_blocks += "y.blocks" in " ".join(body.tensors)
        wanted, found = (WholeModel(one).step(values) for one in (whole, body))
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=0, atol=2e-5, err_msg=f"{name} {seed}")
    assert in_blocks >= 4


def of_positions(form: str, folder: Path, before: int = 15) -> Path:
    """192 positions of one head; a query sees so many keys before its own."""
    positions, inputs, domain = 192, ["a", "k", "v"], ""
    stated: dict[str, Any] = {"left_window_size": before, "right_window_size": 0}
    known = {}
    if form == "GroupQueryAttention":
        known = {"ends": np.array([positions - 1], np.int32), "total": np.array([positions], np.int32)}
        inputs, domain = [*inputs, "", "", *known], "com.microsoft"
        stated = {"num_heads": 1, "kv_num_heads": 1, "local_window_size": before + 1}
    elif form == "mask":
        far = np.arange(positions)[:, None] - np.arange(positions)
        known, stated = {"mask": (far >= 0) & (far <= before)}, {}
        inputs.append("mask")
    shape = [1, positions, 16] if domain else [1, 1, positions, 16]
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node(form if domain else "Attention", inputs, ["b"], domain=domain, **stated),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        "near", [helper.make_tensor_value_info(name, 1, shape) for name in "xkv"],
        [helper.make_tensor_value_info("y", 1, shape)],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
        value_info=[helper.make_tensor_value_info(name, 1, shape) for name in "ab"],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    (folder / "near.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    return folder / "near.onnx"


@pytest.mark.parametrize(
    ("form", "workers"),
    chosen(
        [(form, workers) for form in ("GroupQueryAttention", "mask") for workers in (2, 3, 4, 8)],
        fast=[("GroupQueryAttention", 2)],
        night=[("GroupQueryAttention", 8), ("mask", 2), ("mask", 8)],
    ),
)
def test_a_window_of_keys_and_values_crosses_each_border(form: str, workers: int, tmp_path: Path) -> None:
    model = of_positions(form, tmp_path)
    dim = 1 if form == "GroupQueryAttention" else 2
    result = api.plan(model, gpus=workers, out=tmp_path / "p", pin=dict.fromkeys("abkv", f"S({dim})"))
    assert result.plan.moved_bytes == (workers - 1) * 2 * 15 * 16 * 4
    assert api.run(tmp_path / "p", verify=True).verified
    assert api.prove(tmp_path / "p").is_proven


@pytest.mark.slow
def test_a_window_over_several_blocks_brings_them(tmp_path: Path) -> None:
    """Of 8 blocks of 24 positions a query sees 2 and a half before its own."""
    model = of_positions("mask", tmp_path, before=60)
    result = api.plan(model, gpus=8, out=tmp_path / "p", pin=dict.fromkeys("abkv", "S(2)"))
    assert result.plan.moved_bytes == (24 + 48 + 5 * 60) * 2 * 16 * 4
