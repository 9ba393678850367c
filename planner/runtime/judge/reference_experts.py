"""ONNX Runtime's mixture of experts in NumPy, expert by expert."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import integer, number
from planner.graph.core.model import Op
from planner.runtime.judge.kernel_arguments import Arrays, maybe, operand, unpacked


def mixture_of_experts(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Tokens' weights for experts are their softmax's, or sum to 1 over those that are chosen."""
    weights, biases = (operand(inputs, 2), operand(inputs, 4)), (maybe(inputs, 3), maybe(inputs, 5))
    return _mixed(op, inputs, weights, biases, is_normal=bool(integer(op, "normalize_routing_weights", 0)))


def quantised_mixture_of_experts(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Weights as numbers first; tokens' weights always sum to 1."""
    bits, block = integer(op, "expert_weight_bits", 4), integer(op, "block_size", 0)
    weights = []
    for position, points in ((2, 11), (5, 12)):
        packed, zero = operand(inputs, position), maybe(inputs, points)
        numbers = unpacked(packed, bits).astype(np.float64)
        scale = operand(inputs, position + 1)
        blocks = 1 if scale.ndim == 2 else scale.shape[2]
        scale = scale.reshape(*scale.shape[:2], blocks)
        zeros = 2.0 ** (bits - 1) if zero is None else unpacked(zero.reshape(*scale.shape[:2], -1), bits)[..., :blocks]
        block_of = np.arange(numbers.shape[2]) // (block or numbers.shape[2])
        points_of = zeros if isinstance(zeros, float) else zeros[..., block_of]
        weights.append((numbers - points_of) * scale[..., block_of])
    return _mixed(op, inputs, (weights[0], weights[1]), (maybe(inputs, 4), maybe(inputs, 7)), is_normal=True)


def _mixed(
    op: Op,
    inputs: Arrays,
    weights: tuple[np.ndarray, np.ndarray],
    biases: tuple[np.ndarray | None, np.ndarray | None],
    *,
    is_normal: bool,
) -> tuple[np.ndarray, ...]:
    x, router = operand(inputs, 0), operand(inputs, 1)
    tokens = x.reshape(-1, x.shape[-1])
    shares = np.exp(router - router.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : integer(op, "k", 4)]
    token_weights = np.zeros_like(shares)
    np.put_along_axis(token_weights, chosen, np.take_along_axis(shares, chosen, axis=-1), axis=-1)
    if is_normal:
        token_weights /= token_weights.sum(axis=-1, keepdims=True)
    output = np.zeros_like(tokens)
    for expert in range(router.shape[-1]):
        inner = tokens @ weights[0][expert].T
        inner = _activated(op, inner if biases[0] is None else inner + biases[0][expert])
        result = inner @ weights[1][expert].T
        output += token_weights[:, expert, None] * (result if biases[1] is None else result + biases[1][expert])
    return (output.reshape(x.shape),)


def _activated(op: Op, x: np.ndarray) -> np.ndarray:
    kind = str(op.attribute("activation_type", "relu"))
    if kind == "relu":
        return np.asarray(np.maximum(x, 0.0))
    if kind == "silu":
        return np.asarray(x / (1 + np.exp(-x)))
    if kind == "gelu":
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    if kind == "identity":
        return x
    assert kind == "swiglu", "descriptions refuse other activations"
    gate, value = x[:, 0::2], x[:, 1::2]
    limit = op.attribute("swiglu_limit")
    if isinstance(limit, int | float):
        gate, value = np.minimum(gate, limit), np.clip(value, -limit, limit)
    alpha, beta = number(op, "activation_alpha", 1.0), number(op, "activation_beta", 0.0)
    return np.asarray(gate / (1 + np.exp(-alpha * gate)) * (value + beta))
