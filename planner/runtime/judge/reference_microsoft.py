"""ONNX Runtime's own operators in NumPy: what runs that have them are judged by, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from onnx.reference.ops.op_rotary_embedding import rotary_embedding

from planner.graph.core.attributes import integer, number
from planner.graph.core.model import Op
from planner.runtime.judge.kernel_arguments import Arrays, Kernel, maybe, operand, unpacked
from planner.runtime.judge.reference_experts import mixture_of_experts, quantised_mixture_of_experts
from planner.runtime.judge.reference_ops import KERNELS

_DOMAIN: Final = "com.microsoft"
_ACTIVATIONS: Final[Mapping[str, Callable[..., np.ndarray]]] = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0.0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Clip": lambda x, low=-np.inf, high=np.inf: np.clip(x, low, high),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0.0, 1.0),
}
"""What ONNX Runtime fuses into a product or a convolution, with its parameters in order."""


def _activated(op: Op, x: np.ndarray, parameters: Sequence[object]) -> np.ndarray:
    function = _ACTIVATIONS[str(op.attribute("activation", ""))]
    arity = len(getattr(function, "__defaults__", None) or ())
    return np.asarray(function(x, *parameters[:arity]))


def _like(op: Op, op_type: str, inputs: Arrays, **attributes: int | float | str) -> tuple[np.ndarray, ...]:
    """What an operator of ONNX makes of these inputs."""
    stated = tuple(sorted({**dict(op.attributes), **attributes}.items()))
    return KERNELS[op_type](replace(op, op_type=op_type, domain="", attributes=stated), inputs)


def _gelu(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Of the input, to which a bias may be added: exact, or by tanh."""
    x, bias = operand(inputs, 0), maybe(inputs, 1)
    how = "tanh" if op.op_type == "FastGelu" else "none"
    return _like(op, "Gelu", (x if bias is None else x + bias,), approximate=how)


def _quick_gelu(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    x = operand(inputs, 0)
    return (x / (1 + np.exp(-number(op, "alpha", 1.702) * x)),)


def _fused_matmul(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    turned = []
    for letter, slot in (("A", 0), ("B", 1)):
        x = operand(inputs, slot)
        if x.ndim > 1 and integer(op, f"transBatch{letter}", 0):
            x = np.moveaxis(x, 0, -2)
        turned.append(np.swapaxes(x, -1, -2) if x.ndim > 1 and integer(op, f"trans{letter}", 0) else x)
    return (number(op, "alpha", 1.0) * np.matmul(*turned),)


def _fused_gemm(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    names = [
        name for name in ("activation_alpha", "activation_beta", "activation_gamma") if op.attribute(name) is not None
    ]
    (y,) = _like(op, "Gemm", inputs)
    return (_activated(op, y, [op.attribute(name) for name in names]),)


def _fused_conv(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    (y,) = _like(op, "Conv", inputs[:3])
    addend = maybe(inputs, 3)
    parameters = op.attribute("activation_params", ())
    assert isinstance(parameters, tuple), "activation_params is a list"
    return (_activated(op, y if addend is None else y + addend, parameters),)


def _matmul_nbits(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Weights of few bits as numbers, and the product."""
    a, b, scales = (operand(inputs, position) for position in range(3))
    bits, block = integer(op, "bits", 4), integer(op, "block_size", 0)
    columns, depth = integer(op, "N", 0), integer(op, "K", 0)
    blocks = -(-depth // block)
    zero, group, bias = (maybe(inputs, position) for position in (3, 4, 5))
    points: np.ndarray | float = 2.0 ** (bits - 1)
    if zero is not None and zero.dtype == np.uint8:
        points = unpacked(zero.reshape(columns, -1), bits)[:, :blocks].astype(np.float64)
    elif zero is not None:
        points = zero.reshape(columns, blocks)
    numbers = unpacked(b, bits).reshape(columns, -1)[:, :depth].astype(np.float64)
    block_of = np.arange(depth) // block if group is None else group
    factor = scales.reshape(columns, blocks)[:, block_of]
    weights = (numbers - (points[:, block_of] if isinstance(points, np.ndarray) else points)) * factor
    y = np.matmul(a, weights.T)
    return (y if bias is None else y + bias,)


def _rotary_embedding(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """ONNX's, with angles by the position of each element, or by that of the first, from which the others count.

    ONNX Runtime's kernel takes no notice of ``scale``.
    """
    x, positions, cosine, sine = (operand(inputs, position) for position in range(4))
    samples, length, size = x.shape[0], x.shape[-2], 2 * cosine.shape[1]
    if positions.ndim == 1:
        positions = np.broadcast_to(positions[0] + np.arange(length), (samples, length))
    heads = integer(op, "num_heads", 0) or x.shape[-1] // size
    return (rotary_embedding(x, cosine, sine, positions, integer(op, "interleaved", 0), size, heads),)


_KERNELS: Final[Mapping[tuple[str, str], Kernel]] = {
    (_DOMAIN, "BiasGelu"): _gelu,
    (_DOMAIN, "FastGelu"): _gelu,
    (_DOMAIN, "FusedConv"): _fused_conv,
    (_DOMAIN, "FusedGemm"): _fused_gemm,
    (_DOMAIN, "FusedMatMul"): _fused_matmul,
    (_DOMAIN, "Gelu"): _gelu,
    (_DOMAIN, "MatMulNBits"): _matmul_nbits,
    (_DOMAIN, "MoE"): mixture_of_experts,
    (_DOMAIN, "QMoE"): quantised_mixture_of_experts,
    (_DOMAIN, "QuickGelu"): _quick_gelu,
    (_DOMAIN, "RotaryEmbedding"): _rotary_embedding,
}
"""By (domain, op type). Each returns all outputs that the operator has, wanted or not."""


def microsoft_kernel(op: Op) -> Kernel | None:
    """An op of ONNX Runtime's own in NumPy; None if it is another's."""
    return _KERNELS.get((op.domain, op.op_type))
