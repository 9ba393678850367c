"""Whisper: an encoder of spectra and a decoder of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.features.zoo.models.attention import causal_mask, multi_head
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.network import Network
from planner.features.zoo.models.vision import sinusoids
from planner.graph.core.model import DType

_BIASES = (True, False, True, True)
"""Keys have none: a number that all scores of a query have in common changes no softmax."""


@dataclass(frozen=True, slots=True)
class SpeechShape:
    """The sizes of an encoder and decoder of speech."""

    blocks: int
    """Of each of the two."""
    width: int
    heads: int
    mels: int
    frames: int
    vocabulary: int
    sequence: int
    """Tokens of a sample."""


WHISPER_LARGE: Final = SpeechShape(32, 1280, 20, 128, 3000, 51866, 448)
"""Radford et al. 2023, table 1, in its third version, of 128 mel channels: 1.55 B parameters."""


def whisper(name: str, shape: SpeechShape, *, batch: int) -> Network:
    """Whisper (Radford et al. 2023): the head is the embedding of words; the encoder's positions are fixed sinusoids.

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
    """
    model, width = Forward(name), shape.width
    heard = _encoder(model, shape, batch)
    tokens = model.input("tokens", batch, shape.sequence, dtype=DType.INT64)
    table = model.parameter("words", shape.vocabulary, width)
    x = model.op("embedding", "Gather", [table, tokens], (batch, shape.sequence, width), axis=0)
    x = model.each("embedding.add", "Add", x, model.parameter("positions", shape.sequence, width))
    x = model.reshape("rows", x, batch * shape.sequence, width)
    mask = causal_mask(model, shape.sequence)
    for number in range(1, shape.blocks + 1):
        block = f"decoder.block{number}"
        inner = model.layer_norm(f"{block}.norm1", x, bias=True)
        x = _attending(model, f"{block}.self", x, inner, inner, shape, batch, mask)
        inner = model.layer_norm(f"{block}.norm2", x, bias=True)
        x = _attending(model, f"{block}.cross", x, inner, heard, shape, batch)
        x = _mlp(model, block, x)
    x = model.layer_norm("norm", x, bias=True)
    rows = (batch * shape.sequence, shape.vocabulary)
    return Network(model, model.op("head", "Gemm", [x, table], rows, transB=1), "softmax_cross_entropy")


def _encoder(model: Forward, shape: SpeechShape, batch: int) -> str:
    """Rows of what is heard: two convolutions, the second of which halves the frames, and blocks of attention."""
    x = model.input("mels", batch, shape.mels, shape.frames)
    x = model.each("gelu1", "Gelu", model.conv("conv1", x, shape.width, 3, pad=1, bias=True))
    x = model.each("gelu2", "Gelu", model.conv("conv2", x, shape.width, 3, stride=2, pad=1, bias=True))
    length = model.shape(x)[2]
    x = model.transpose("heard", x, 0, 2, 1)
    x = model.each("heard.add", "Add", x, model.known("heard.positions", sinusoids(length, shape.width)))
    x = model.reshape("heard.rows", x, batch * length, shape.width)
    for number in range(1, shape.blocks + 1):
        block = f"encoder.block{number}"
        inner = model.layer_norm(f"{block}.norm1", x, bias=True)
        x = _mlp(model, block, _attending(model, f"{block}.self", x, inner, inner, shape, batch))
    return model.layer_norm("encoder.norm", x, bias=True)


def _attending(
    model: Forward, layer: str, x: str, queries: str, keys: str, shape: SpeechShape, batch: int, mask: str = ""
) -> str:
    """What is residual plus what attention gives."""
    mixed = multi_head(
        model, layer, queries, keys, batch=batch, heads=shape.heads, width=shape.width, bias=_BIASES, mask=mask
    )
    return model.each(f"{layer}.add", "Add", x, mixed)


def _mlp(model: Forward, block: str, x: str) -> str:
    """What is residual plus what a layer of four times the width makes of it, normalised."""
    width = model.shape(x)[1]
    inner = model.project(f"{block}.wide", model.layer_norm(f"{block}.norm", x, bias=True), 4 * width, bias=True)
    inner = model.each(f"{block}.gelu", "Gelu", inner)
    return model.each(f"{block}.add", "Add", x, model.project(f"{block}.narrow", inner, width, bias=True))
