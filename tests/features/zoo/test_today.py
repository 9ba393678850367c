"""Networks of today: as many parameters as published, the options they have, steps that are verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from fast_suite import chosen
from planner import api, opdefs
from planner.errors import UsageError
from planner.features.zoo import models as zoo
from planner.features.zoo.models.catalogue import TODAY
from planner.features.zoo.models.llama import DecoderShape, llama
from planner.features.zoo.models.mixture import Experts, mixture
from planner.features.zoo.models.network import Network
from planner.features.zoo.models.step import training_step
from planner.features.zoo.models.today import network
from planner.features.zoo.models.unet import UNetShape, unet
from planner.features.zoo.models.vision import ImageShape, dit, positions_2d, vit
from planner.features.zoo.models.whisper import SpeechShape, whisper
from planner.graph.core.model import DType, Graph
from planner.graph.files.to_onnx import to_model, write_model
from planner.search.decide import decide
from planner.search.request import SearchRequest

NAMES = zoo.names(TODAY)
PUBLISHED = {
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "vit-h": 632_045_800,
    "dit-xl": 675_129_632,
    "sd-unet": 859_520_964,
    "whisper-large": 1_543_490_560,
    "moe-8x7b": 46_702_792_704,
}
"""As the published weights have them; of ViT-H with a classifier of 1,000."""
FIXED = {"dit-xl": 256 * 1152, "whisper-large": 1500 * 1280}
"""Sinusoids of positions that are counted there and never trained."""

DECODER = DecoderShape(1, 16, 24, 4, 2, 40, 1e4, 6)
IMAGE = ImageShape(1, 16, 4, 3, 8, 4)
TINY = {
    "llama": lambda: llama("tiny", DECODER, batch=4),
    "mixture": lambda: mixture("tiny", DECODER, Experts(4, 2, 1.25), batch=4),
    "vit": lambda: vit("tiny", IMAGE, batch=4),
    "dit": lambda: dit("tiny", replace(IMAGE, channels=4, patch=2), batch=4),
    "whisper": lambda: whisper("tiny", SpeechShape(1, 16, 4, 6, 10, 40, 6), batch=4),
    "unet": lambda: unet("tiny", UNetShape((8, 16), 1, 2, 4, 8, 12, 5, groups=4), batch=4),
}
_HEADS = (".q.weight", ".k.weight", ".v.weight", ".out.weight")
_WIDE = (".wide.weight", ".narrow.weight")
MEGATRON = {
    "llama": (".qkv.weight", ".out.weight", ".gate.weight", ".up.weight", ".down.weight"),
    "mixture": (".qkv.weight", ".out.weight"),
    "vit": (*_HEADS, *_WIDE),
    "dit": (*_HEADS, *_WIDE),
    "whisper": (*_HEADS, *_WIDE),
}
"""How the names end of the weights that Megatron-LM divides."""


def trained(net: Network, **options: object) -> Graph:
    return training_step(net.model, net.output, loss=net.loss, optimizer="adamw", **options)


def test_every_network_is_listed() -> None:
    assert set(NAMES) == set(PUBLISHED)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert network(name, batch=1).model.parameters + FIXED.get(name, 0) == PUBLISHED[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("sd-unet", "llama3-70b", "llama3-405b")])
def test_one_block_of_each_is_a_step_of_all_its_weights(name: str) -> None:
    graph = zoo.build(name, batch=2, layers=1, precision="bfloat16")
    forward = network(name, batch=2, layers=1).model
    assert sum(graph.tensors[weight].elements for weight in zoo.trained(graph)) == forward.parameters
    assert {graph.tensors[weight].dtype for weight in zoo.trained(graph)} == {DType.FLOAT32}
    products = [op for op in graph.ops if op.op_type in ("Gemm", "MatMul")]
    assert {graph.tensors[op.outputs[0]].dtype for op in products} == {DType.BFLOAT16}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama3-8b", "vit-h", "dit-xl", "whisper-large", "moe-8x7b"])
def test_shapes_are_those_that_onnx_infers(name: str, precision: str) -> None:
    onnx.checker.check_model(to_model(zoo.build(name, layers=1, precision=precision)), full_check=True)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name == "unet" else pytest.mark.slow) for name in TINY],
)
def test_small_ones_are_planned_run_and_verified(name: str, tmp_path: Path) -> None:
    write_model(trained(TINY[name]()), tmp_path / "model.onnx")
    api.plan(tmp_path / "model.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified
    assert result.predicted_bytes == result.moved_bytes
    assert all(np.isfinite(loss) for loss in result.losses)


@pytest.mark.slow
def test_experts_are_divided_and_tokens_sent_all_to_all() -> None:
    shape = replace(DECODER, width=64, inner=256, sequence=16)
    graph = trained(mixture("tiny", shape, Experts(4, 1, 1.0), batch=4))
    tilings = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(2, effort="quick")).tilings
    weights = [name for name in zoo.trained(graph) if ".expert." in name]
    assert len(weights) == 3
    assert {str(tilings[name]) for name in weights} == {"S(0)/2"}
    assert str(tilings["block1.inner.samples.y"]) == "S(0)/2", "samples are divided before they are sent"


@pytest.mark.parametrize("name", chosen(MEGATRON, fast={"llama", "mixture"}))
def test_the_plan_of_megatron_lm_divides_heads_and_wide_layers(name: str) -> None:
    graph = trained(TINY[name]())
    request = SearchRequest(2, effort="quick", strategy="megatron")
    tilings = decide(graph, opdefs.standard().bind_all(graph), request).tilings
    halves = {weight: str(tilings[weight]) for weight in zoo.trained(graph) if weight.endswith(MEGATRON[name])}
    assert halves
    rows = ("out.weight", "down.weight", "narrow.weight")
    columns = {tiling for weight, tiling in halves.items() if not weight.endswith(rows)}
    assert columns == {"S(1)/2"}, "the first product of each half is cut by columns"
    assert set(halves.values()) - columns == {"S(0)/2"}, "the second by rows"


def test_what_is_asked_is_built() -> None:
    graph = zoo.build("llama3-8b", batch=2, seq=128, layers=2, precision="float32", optimizer="sgd")
    assert graph.tensors["tokens"].shape == (2, 128)
    assert {tensor.dtype for tensor in graph.tensors.values() if tensor.dtype.is_float} == {DType.FLOAT32}
    assert len(graph.state) == len(zoo.trained(graph)) == 2 * 7 + 3


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("sd-unet", {"layers": 2}, "sd-unet has no --layers"),
        ("vit-h", {"seq": 100}, "vit-h has no --seq"),
        ("alexnet", {"precision": "bfloat16"}, "alexnet has no --precision"),
        ("llama3-8b", {"precision": "float8"}, "unknown precision 'float8'"),
    ],
)
def test_what_a_network_does_not_have_is_refused(name: str, asked: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        zoo.build(name, **asked)


def test_tokens_beyond_an_experts_places_are_dropped() -> None:
    assert Experts(8, 2, 1.25).capacity(4096) == 1280
    assert Experts(8, 2, 1.25).capacity(1) == 1
    assert Experts(2, 2, 2.0).capacity(6) == 6, "no more than there are tokens"


def test_positions_of_an_image_tell_rows_from_columns() -> None:
    positions = positions_2d(4, 16)
    assert positions.shape == (16, 16)
    assert len(np.unique(positions.round(5), axis=0)) == 16
    assert np.array_equal(positions[1, :8], positions[0, :8])
    assert np.array_equal(positions[4, 8:], positions[0, 8:])
