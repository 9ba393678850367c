"""ONNX Runtime's mixture of experts, written so that every token goes through all experts."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import integer, number, text
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.reading.fused import gelu_of
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.decompositions.whole.few_bits import unpacked


@stands_for("com.microsoft.MoE", purpose=Purpose.WHOLE)
def mixture_of_experts(writer: Emitter, op: Op) -> tuple[str, ...]:
    """The sum over experts of W2 act(W1 x + b1) + b2 times the token's weight for the expert."""
    w1, b1, w2, b2 = [*op.inputs, ""][2:6]
    return (_mixed(writer, op, (w1, b1), (w2, b2)),)


@stands_for("com.microsoft.QMoE", purpose=Purpose.WHOLE)
def quantised_mixture_of_experts(writer: Emitter, op: Op) -> tuple[str, ...]:
    """The same of weights of few bits; a token's weights for its experts sum to 1."""
    inputs, bits = [*op.inputs, *[""] * 13], integer(op, "expert_weight_bits", 4)
    layers = []
    for slot, points in ((2, 11), (5, 12)):
        packed, scale, bias = inputs[slot : slot + 3]
        experts, rows, size = writer.shape(packed)
        depth = size * 8 // bits
        blocks = writer.tensor(scale).elements // (experts * rows)
        scale = writer.reshape(scale, (experts, rows, blocks), f"scales{slot}")
        places = writer.constant(np.arange(depth) // (integer(op, "block_size", 0) or depth), f"block_of{slot}")
        layers.append((unpacked(writer, packed, scale, inputs[points], bits, places), bias))
    return (_mixed(writer, op, layers[0], layers[1]),)


def _mixed(writer: Emitter, op: Op, first: tuple[str, str], second: tuple[str, str]) -> str:
    """The mixture of layers with weights [experts, rows, depth] and biases [experts, rows], "" for none."""
    x, router = op.inputs[:2]
    shape, (tokens, experts) = writer.shape(x), writer.shape(router)
    hidden = writer.reshape(x, (1, tokens, shape[-1]), "tokens")
    hidden = _activated(writer, op, _layer(writer, hidden, *first, "first"))
    results = _layer(writer, hidden, *second, "second")
    share = writer.cast(shares(writer, op, router), writer.dtype(x), "shares.narrow")
    share = writer.transpose(share, (1, 0), "shares.turned")
    weighted = writer.mul(results, writer.reshape(share, (experts, tokens, 1), "shares.column"), "weighted")
    return writer.reshape(writer.reduce_sum(weighted, (0,), hint="total"), shape, "mixed")


def shares(writer: Emitter, op: Op, router: str) -> str:
    """A token's weight for each expert, [tokens, experts], of 32 bits at least: 0 of those that it does not go to."""
    shape, count = writer.shape(router), integer(op, "k", 4)
    router = writer.cast(router, DType.FLOAT32, "scores") if writer.dtype(router).is_half else router
    dtype, chosen = writer.dtype(router), (shape[0], count)
    every = writer.one("Softmax", (router,), shape, dtype, hint="every", attributes={"axis": -1})
    operands, outputs = (every, writer.ints((count,), "count")), [dtype, DType.INT64]
    most, which = writer.emit("TopK", operands, [chosen] * 2, outputs, hint="most which", attributes={"axis": -1})
    if op.op_type == "QMoE" or integer(op, "normalize_routing_weights", 0):
        most = writer.div(most, writer.reduce_sum(most, (1,), keepdims=True, hint="all"), "normal")
    nought = writer.constant(np.zeros(shape, dtype.array_dtype), "nought")
    return writer.one("ScatterElements", (nought, which, most), shape, dtype, hint="shares", attributes={"axis": 1})


def _layer(writer: Emitter, x: str, weights: str, bias: str, part: str) -> str:
    """A layer of every expert, [experts, tokens, rows]."""
    y = writer.matmul(x, writer.transpose(weights, (0, 2, 1), f"{part}.turned"), part)
    experts, rows, _ = writer.shape(weights)
    return writer.add(y, writer.reshape(bias, (experts, 1, rows), f"{part}.bias"), f"{part}.sum") if bias else y


def _activated(writer: Emitter, op: Op, x: str) -> str:
    match text(op, "activation_type", "relu"):
        case "relu":
            return writer.unary("Relu", x, "relu")
        case "silu":
            return writer.mul(x, writer.unary("Sigmoid", x, "sigmoid"), "silu")
        case "gelu":
            return gelu_of(writer, x, is_fast=True)
        case "identity":
            return x
    # Gates lie between what they gate: swiglu.
    *lead, size = writer.shape(x)
    last, starts = len(lead), [0] * len(lead)
    gate = writer.every(x, {last: 2})
    value = writer.every(writer.slice(x, (*starts, 1), (*lead, size)), {last: 2})
    limit = op.attribute("swiglu_limit")
    if isinstance(limit, int | float):
        most, least = (writer.scalar(sign * limit, x, part) for sign, part in ((1, "most"), (-1, "least")))
        gate = writer.binary("Min", gate, most, "gate.limited")
        value = writer.binary("Max", writer.binary("Min", value, most, "value.below"), least, "value.limited")
    scaled = writer.scale(gate, number(op, "activation_alpha", 1.0), "gate.scaled")
    beta = writer.scalar(number(op, "activation_beta", 0.0), x, "beta")
    gated = writer.mul(gate, writer.unary("Sigmoid", scaled, "sigmoid"), "gated")
    return writer.mul(gated, writer.add(value, beta, "value.shifted"), "swiglu")
