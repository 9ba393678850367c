"""Megatron-LM's tensor parallelism."""

from pathlib import Path

import pytest

from fast_suite import chosen
from planner import api, opdefs
from planner.algebra.tiling import Replicate, Shard
from planner.errors import UnsupportedError
from planner.features.zoo import models as zoo
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest

MODELS = Path(__file__).parent.parent / "models"
FOLDER = MODELS / "world"
BY_COUNT = {"vit-h": 0, "dit-xl": 1, "world/hf-gpt2": 1, "fresh/gpt-2": 2}
"""All-reduces beside those of blocks, by model."""


def planned(graph: Graph, workers: int, strategy: str = "megatron") -> Decision:
    return decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, strategy=strategy))


def test_four_all_reduces_for_a_block() -> None:
    """Two forward and two backward (Shoeybi et al. 2019, section 3), each of 2 (k - 1) times the activations."""
    blocks, width, batch, tokens = 2, 64, 2, 1024
    graph = zoo.build(f"gpt-{blocks}x{width}-4h", batch=batch)
    plan = planned(graph, 2)
    assert plan.moved_bytes == blocks * 4 * 2 * (batch * tokens * width * 4)
    for name, tiling in plan.tilings.items():
        if name.endswith((".qkv.weight", ".wide.weight")):
            assert str(tiling) == "S(1)/2"
        elif name.endswith((".out.weight", ".narrow.weight")):
            assert str(tiling) == "S(0)/2"
        elif ".norm" in name and name.endswith(".scale"):
            assert str(tiling) == "R/2"


def test_data_across_groups() -> None:
    """With little to a sample and many of them, groups are as small as they may be: 2."""
    plan = planned(zoo.build("gpt-2x64-4h", batch=2), 4)
    assert plan.cuts == (2, 2)
    assert str(plan.tilings["block1.wide.weight"]) == "R/2 S(1)/2"
    assert str(plan.tilings["block1.narrow.weight"]) == "R/2 S(0)/2"


def test_the_vocabulary_is_divided() -> None:
    plan = planned(zoo.build("gpt-1x64-4h-lm", batch=1), 2)
    assert str(plan.tilings["words"]) == "S(0)/2"
    assert str(plan.tilings["positions"]) == "R/2"


def test_state_is_cut_across_groups() -> None:
    """FSDP across two groups of two: what Megatron-LM divides is so within, and all state is divided across."""
    plan = planned(zoo.build("gpt-2x64-4h", batch=4), 4, "fsdp-megatron")
    across, within = plan.tilings["block1.wide.weight"].placements
    assert isinstance(across, Shard)
    assert within == Shard(1)
    assert plan.tilings["block1.narrow.weight"].placements[1] == Shard(0)
    norm = plan.tilings["block1.norm1.scale"].placements
    assert isinstance(norm[0], Shard)
    assert norm[1] == Replicate()


@pytest.mark.parametrize("model", ["mlp-2x24", "lenet-5"])
def test_networks_without_attention_are_refused(model: str) -> None:
    with pytest.raises(UnsupportedError, match="no attention whose heads"):
        planned(zoo.build(model, batch=8), 2)


def test_a_forward_model_has_its_two_all_reduces_for_a_block() -> None:
    """Of a Llama's two blocks over 4 samples of 12 tokens and a width of 16; the vocabulary's result is cut, too."""
    graph = read_model(FOLDER / "hf-llama.onnx", operators=opdefs.standard())
    plan = planned(canonical(graph).graph, 2)
    all_reduce = 2 * (4 * 12 * 16 * 4)
    assert 4 * all_reduce <= plan.moved_bytes <= 5 * all_reduce


@pytest.mark.parametrize(("name", "others"), chosen(BY_COUNT.items(), fast=[("world/hf-gpt2", 1)]))
def test_what_moves_is_counted_by_hand(name: str, others: int, tmp_path: Path) -> None:
    """Four all-reduces for a block, and others: of looked-up words, and of the gradient behind a divided vocabulary."""
    if name in zoo.names():
        forward = graph = zoo.build(name, optimizer="sgd", batch=1, layers=2)
    else:
        forward, step = read_model(MODELS / f"{name}.onnx"), tmp_path / "step.onnx"
        batch = 2 if name.startswith("fresh") else None
        target = next(made for made in forward.outputs if forward.tensors[made].shape)
        api.grad(MODELS / f"{name}.onnx", loss="mse", optimizer="sgd", loss_input=target, batch=batch, output=step)
        graph = read_model(step)
    graph = canonical(graph).graph
    residual = next(op for op in graph.ops if op.op_type.endswith("Normalization"))
    blocks = sum(op.op_type == "Softmax" for op in forward.ops)
    activations = graph.tensors[residual.inputs[0]].size_bytes
    assert planned(graph, 2).moved_bytes == pytest.approx((4 * blocks + others) * 2 * activations, rel=0.01)
