"""GPT: decoder blocks with causal attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.errors import UsageError
from planner.features.zoo.models.attention import attended, joined
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import DType, Graph

VOCABULARY = 50257
"""Of GPT-2 and GPT-3 (Radford et al. 2019; Brown et al. 2020)."""


@dataclass(frozen=True, slots=True)
class GptShape:
    """The sizes of a GPT."""

    blocks: int
    width: int
    heads: int
    sequence: int
    """Tokens of a sample."""
    language: bool = False
    """Whether tokens go in and come out: an embedding of words and positions at the bottom, a last normalisation and
    the embedding of words again at the top. Without them, activations go in and their blocks' output comes out."""
    bias: bool = False
    """Whether products and normalisations have biases, as in GPT-2."""


def gpt(name: str, shape: GptShape, *, batch: int, optimizer: str = "sgd") -> Graph:
    """GPT with normalisation before each half of a block (Radford et al. 2019), in float32.

    Query, key and value of a head stand beside each other in one product of 3 * width columns, as in Megatron-LM and
    GPT-NeoX, so that a piece of it is heads with all three. Outside attention, samples and tokens are one dim of rows.

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
        optimizer: its name.

    Raises:
        UsageError: the heads do not divide the width.
    """
    if shape.width % shape.heads:
        raise UsageError(f"{name}: {shape.heads} heads do not divide the width {shape.width}")
    model = Forward(name)
    model.known("attention.mask", np.tril(np.ones((shape.sequence, shape.sequence), np.bool_)))
    rows = batch * shape.sequence
    if not shape.language:
        x = model.input("x", rows, shape.width)
        for number in range(1, shape.blocks + 1):
            x = _block(model, f"block{number}", x, shape)
        return training_step(model, x, loss="mse", optimizer=optimizer)
    tokens = model.input("tokens", batch, shape.sequence, dtype=DType.INT64)
    table = model.parameter("words", VOCABULARY, shape.width)
    words = model.op("embedding", "Gather", [table, tokens], (batch, shape.sequence, shape.width), axis=0)
    words = model.each("embedding.add", "Add", words, model.parameter("positions", shape.sequence, shape.width))
    x = model.reshape("rows", words, rows, shape.width)
    for number in range(1, shape.blocks + 1):
        x = _block(model, f"block{number}", x, shape)
    x = model.layer_norm("norm", x, bias=shape.bias)
    logits = model.op("head", "Gemm", [x, table], (rows, VOCABULARY), transB=1)
    return training_step(model, logits, loss="softmax_cross_entropy", optimizer=optimizer)


def _block(model: Forward, block: str, x: str, shape: GptShape) -> str:
    attended = _attention(model, f"{block}.attention", model.layer_norm(f"{block}.norm1", x, bias=shape.bias), shape)
    x = model.each(f"{block}.add1", "Add", x, attended)
    inner = model.layer_norm(f"{block}.norm2", x, bias=shape.bias)
    inner = model.project(f"{block}.wide", inner, 4 * shape.width, bias=shape.bias)
    inner = model.each(f"{block}.gelu", "Gelu", inner, approximate="tanh")
    inner = model.project(f"{block}.narrow", inner, shape.width, bias=shape.bias)
    return model.each(f"{block}.add2", "Add", x, inner)


def _attention(model: Forward, layer: str, x: str, shape: GptShape) -> str:
    """Softmax of (Q Kᵀ / √head), future positions left out, times V, for each head; then the output's product."""
    rows, width = model.shape(x)
    sequence, head = shape.sequence, width // shape.heads
    batch = rows // sequence
    qkv = model.project(f"{layer}.qkv", x, 3 * width, bias=shape.bias)
    qkv = model.reshape(f"{layer}.heads", qkv, batch, sequence, shape.heads, 3 * head)
    q, k, v = model.split(f"{layer}.split", qkv, 3)
    q = model.transpose(f"{layer}.q", q, 0, 2, 1, 3)
    k = model.transpose(f"{layer}.k", k, 0, 2, 3, 1)
    v = model.transpose(f"{layer}.v", v, 0, 2, 1, 3)
    return joined(model, layer, attended(model, layer, q, k, v, "attention.mask"), bias=shape.bias)
