"""Attention: what transformers of every kind share."""

from __future__ import annotations

import math

import numpy as np

from planner.features.zoo.models.forward import Forward
from planner.graph.core.model import DType

_VERY_LOW = -1e9
"""A score whose softmax is 0 in float32."""


def attended(model: Forward, layer: str, q: str, k: str, v: str, mask: str = "") -> str:
    """Softmax of (Q Kᵀ / √head), times V, for each head: [..., queries, head].

    Args:
        model: that it becomes part of.
        layer: its name.
        q: queries, [..., queries, head].
        k: keys, transposed, [..., head, keys]; leading dims of size 1 are broadcast, as for keys that heads share.
        v: values, [..., keys, head].
        mask: booleans that are broadcast to the scores, false where a key is left out; "": none is.
    """
    *lead, queries, head = np.broadcast_shapes(model.shape(q), (*model.shape(v)[:-2], 1, 1))
    square = (*lead, queries, model.shape(k)[-1])
    scores = model.op(f"{layer}.scores", "MatMul", [q, k], square)
    scale = model.known(f"attention.scale.{head}", np.full((), 1 / math.sqrt(head), np.float32))
    scores = model.each(f"{layer}.scaled", "Mul", scores, scale)
    if mask:
        low = model.known("attention.low", np.full((), _VERY_LOW, np.float32))
        scores = model.op(f"{layer}.masked", "Where", [mask, scores, low], square)
    weights = model.op(f"{layer}.softmax", "Softmax", [scores], square, axis=-1)
    return model.op(f"{layer}.mixed", "MatMul", [weights, v], (*lead, queries, head))


def joined(model: Forward, layer: str, mixed: str, *, bias: bool) -> str:
    """The heads [batch, heads, queries, head] side by side in rows, and the output's product."""
    batch, heads, queries, head = model.shape(mixed)
    mixed = model.transpose(f"{layer}.back", mixed, 0, 2, 1, 3)
    mixed = model.reshape(f"{layer}.joined", mixed, batch * queries, heads * head)
    return model.project(f"{layer}.out", mixed, heads * head, bias=bias)


def multi_head(
    model: Forward,
    layer: str,
    x: str,
    source: str,
    *,
    batch: int,
    heads: int,
    width: int,
    bias: tuple[bool, bool, bool, bool],
    mask: str = "",
) -> str:
    """Attention of rows to rows, with a product each for queries, keys and values (Vaswani et al. 2017, section 3.2).

    Args:
        model: that it becomes part of.
        layer: its name.
        x: rows that ask, [batch * queries, ...].
        source: rows that are asked, [batch * keys, ...]; ``x`` itself for self-attention.
        batch: samples, whose rows attend to their own.
        heads: how many.
        width: of all heads together, and of the output.
        bias: whether the products of queries, keys, values and output have one.
        mask: see ``attended``.
    """

    def part(name: str, rows: str, has_bias: bool, *order: int) -> str:
        proj = model.project(f"{layer}.{name}", rows, width, bias=has_bias)
        proj = model.reshape(f"{layer}.{name}.heads", proj, batch, model.shape(rows)[0] // batch, heads, width // heads)
        return model.transpose(f"{layer}.{name}.turned", proj, *order)

    q = part("q", x, bias[0], 0, 2, 1, 3)
    k = part("k", source, bias[1], 0, 2, 3, 1)
    v = part("v", source, bias[2], 0, 2, 1, 3)
    return joined(model, layer, attended(model, layer, q, k, v, mask), bias=bias[3])


def causal_mask(model: Forward, length: int) -> str:
    """Booleans [length, length]: a position attends to itself and to those before it. An op makes them."""
    positions = np.arange(length, dtype=np.int64)
    queries = model.known("attention.queries", positions.reshape(length, 1))
    keys = model.known("attention.keys", positions)
    return model.each("attention.mask", "LessOrEqual", keys, queries, dtype=DType.BOOL)
