"""Llama 3, and the half of a block that Mixtral shares with it: attention with rotations and grouped queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.features.zoo.models.attention import attended, causal_mask
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.network import Network
from planner.graph.core.model import DType

_OPSET = 23
"""The first with RMSNormalization."""

Inner: TypeAlias = Callable[[Forward, str, str], str]
"""The second half of a block: from a model, the half's name and normalised rows to what is added to the rows."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a decoder whose queries share keys and values in groups."""

    blocks: int
    width: int
    inner: int
    """Columns of the gated layer; Mixtral: of each expert's."""
    heads: int
    """Of queries."""
    groups: int
    """Heads of keys and values, each shared by heads / groups heads of queries."""
    vocabulary: int
    theta: float
    """The base of the rotations' angles."""
    sequence: int
    """Tokens of a sample, where not said."""


LLAMA_3: Final[Mapping[str, DecoderShape]] = MappingProxyType(
    {
        "llama3-8b": DecoderShape(32, 4096, 14336, 32, 8, 128256, 5e5, 4096),
        "llama3-70b": DecoderShape(80, 8192, 28672, 64, 8, 128256, 5e5, 4096),
        "llama3-405b": DecoderShape(126, 16384, 53248, 128, 8, 128256, 5e5, 4096),
    }
)
"""Dubey et al. 2024, table 3. Samples of 4,096 tokens, where most of the pre-training had 8,192: without a fused
attention, scores are what is largest."""


def llama(name: str, shape: DecoderShape, *, batch: int) -> Network:
    """Llama 3 (Dubey et al. 2024): SwiGLU, RMSNorm before each half of a block, no biases, an embedding of its own.

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
    """

    def inner(model: Forward, layer: str, x: str) -> str:
        """SwiGLU (Shazeer 2020): W₂ (silu(W₁ x) W₃ x)."""
        gate = model.silu(layer, model.project(f"{layer}.gate", x, shape.inner))
        x = model.each(f"{layer}.gated", "Mul", gate, model.project(f"{layer}.up", x, shape.inner))
        return model.project(f"{layer}.down", x, shape.width)

    return decoder(name, shape, inner, batch=batch)


def decoder(name: str, shape: DecoderShape, inner: Inner, *, batch: int) -> Network:
    """Blocks between an embedding and a product with the vocabulary, trained to give the next token.

    Outside attention, samples and tokens are one dim of rows, and so they are in the labels.

    Args:
        name: of the graph.
        shape: its sizes.
        inner: the second half of a block.
        batch: samples.
    """
    model = Forward(name, opset=_OPSET)
    length, width = shape.sequence, shape.width
    tokens = model.input("tokens", batch, length, dtype=DType.INT64)
    table = model.parameter("words", shape.vocabulary, width)
    x = model.op("embedding", "Gather", [table, tokens], (batch, length, width), axis=0)
    x = model.reshape("rows", x, batch * length, width)
    mask = causal_mask(model, length)
    _rotations(model, length, width // shape.heads, shape.theta)
    for number in range(1, shape.blocks + 1):
        block = f"block{number}"
        attention = _attention(model, f"{block}.attention", model.rms_norm(f"{block}.norm1", x), shape, batch, mask)
        x = model.each(f"{block}.add1", "Add", x, attention)
        residual = inner(model, f"{block}.inner", model.rms_norm(f"{block}.norm2", x))
        x = model.each(f"{block}.add2", "Add", x, residual)
    logits = model.project("head", model.rms_norm("norm", x), shape.vocabulary)
    return Network(model, logits, "softmax_cross_entropy")


def _attention(model: Forward, layer: str, x: str, shape: DecoderShape, batch: int, mask: str) -> str:
    """Grouped-query attention (Ainslie et al. 2023).

    A group's queries, its key and its value stand beside each other in one product, as in Megatron-LM, so that a piece
    of it is whole groups: [batch, tokens, groups, queries + 2, head].
    """
    queries, head = shape.heads // shape.groups, shape.width // shape.heads
    length = shape.sequence
    qkv = model.project(f"{layer}.qkv", x, shape.groups * (queries + 2) * head)
    qkv = model.reshape(f"{layer}.groups", qkv, batch, length, shape.groups, queries + 2, head)
    qk, v = model.parted(f"{layer}.turning", qkv, (queries + 1, 1), axis=3)
    q, k = model.parted(f"{layer}.split", _rotated(model, layer, qk), (queries, 1), axis=3)
    q = model.transpose(f"{layer}.q", q, 0, 2, 3, 1, 4)
    k = model.transpose(f"{layer}.k", k, 0, 2, 3, 4, 1)
    v = model.transpose(f"{layer}.v", v, 0, 2, 3, 1, 4)
    mixed = attended(model, layer, q, k, v, mask)
    mixed = model.transpose(f"{layer}.back", mixed, 0, 3, 1, 2, 4)
    mixed = model.reshape(f"{layer}.joined", mixed, batch * length, shape.width)
    return model.project(f"{layer}.out", mixed, shape.width)


def _rotations(model: Forward, length: int, head: int, theta: float) -> None:
    """Cosines and sines of each position's angles, [tokens, 1, 1, head]; the first half of sines is negated."""
    angles = np.outer(np.arange(length), theta ** (-np.arange(0, head, 2) / head))
    cos = np.concatenate([np.cos(angles), np.cos(angles)], axis=-1)
    sin = np.concatenate([-np.sin(angles), np.sin(angles)], axis=-1)
    for name, values in (("rotation.cos", cos), ("rotation.sin", sin)):
        model.known(name, values.astype(np.float32).reshape(length, 1, 1, head))


def _rotated(model: Forward, layer: str, x: str) -> str:
    """Rotations of pairs of elements by angles that grow with the position (Su et al. 2021).

    The pairs are element i and i + head/2; (a, b) becomes (a cos - b sin, b cos + a sin), which is x cos + x' sin with
    the halves of x exchanged in x' and the first half of sin negated.
    """
    low, high = model.split(f"{layer}.halves", x, 2)
    exchanged = model.concat(f"{layer}.exchanged", [high, low], axis=4)
    along = model.each(f"{layer}.cos", "Mul", x, "rotation.cos")
    across = model.each(f"{layer}.sin", "Mul", exchanged, "rotation.sin")
    return model.each(f"{layer}.rotated", "Add", along, across)
