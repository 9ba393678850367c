"""Cases of ONNX Runtime's own operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.features.ops.cases.case import Case, Given, Known, Operand, make
from planner.graph.core.model import Attribute, Shape

_DOMAIN = "com.microsoft"


def _op(
    op_type: str, *operands: Operand | Shape, outputs: int = 1, absent: tuple[int, ...] = (), **attributes: Attribute
) -> Case:
    return make(op_type, *operands, outputs=outputs, absent=absent, domain=_DOMAIN, opset=17, **attributes)


def _integers(shape: Shape, low: int, high: int, dtype: str = "int64") -> Known:
    values = np.random.default_rng(3).integers(low, high, shape)
    return Known(values.astype(dtype), constant=False)


def normalisations() -> Iterator[Case]:
    """Over the last dim and over several; with the deviation."""
    yield make("SimplifiedLayerNormalization", (3, 4, 6), (6,), opset=17)
    yield make("SimplifiedLayerNormalization", (3, 5, 4), (5, 4), axis=1, epsilon=1e-3, outputs=2, opset=17)


def products() -> Iterator[Case]:
    """Weights of 2, 4 and 8 bits with zero points, groups and a bias."""
    for bits, block, blocks in ((4, 16, 4), (8, 16, 2), (4, 32, 3), (2, 16, 4)):
        yield from _quantised(bits, block, blocks)


def _quantised(bits: int, block: int, blocks: int) -> Iterator[Case]:
    columns, depth = 6, block * blocks
    stated: dict[str, Any] = {"N": columns, "K": depth, "bits": bits, "block_size": block}
    weights = Given((columns, blocks, block * bits // 8), "uint8", 0, 255)
    scales, packed = (columns, blocks), -(-blocks * bits // 8)
    zeros = Given((columns, packed), "uint8", 0, 255)
    yield _op("MatMulNBits", (4, depth), weights, scales, **stated)
    yield _op("MatMulNBits", (2, 3, depth), weights, scales, zeros, **stated)
    if bits == 4:
        flat = Given((columns * packed,), "uint8", 0, 255)
        yield _op("MatMulNBits", (3, depth), weights, (columns * blocks,), flat, **stated)
        groups = Known((np.arange(depth) % blocks).astype(np.int32), constant=False)
        yield _op("MatMulNBits", (3, depth), weights, scales, None, groups, **stated)
        yield _op("MatMulNBits", (3, depth), weights, scales, None, None, (columns,), **stated)
        yield _op("MatMulNBits", (3, depth), weights, scales, scales, accuracy_level=1, **stated)


def attentions() -> Iterator[Case]:
    """Keys and values flat or by head, masks of every form, a causal mask; rotary embeddings."""
    name = "MultiHeadAttention"
    flat = ((3, 5, 24), (3, 7, 24), (3, 7, 12))
    lengths = Known(np.array([4, 7, 2], dtype=np.int32), constant=False)
    yield _op(name, *flat, num_heads=3)
    yield _op(name, *flat, None, lengths, num_heads=3, scale=0.3)
    yield _op(name, *flat, None, _integers((3, 7), 0, 2, "int32"), num_heads=3)
    yield _op(name, *flat, None, _integers((3, 5, 7), 0, 2, "int32"), (1, 3, 5, 7), num_heads=3)
    yield _op(name, *flat, None, None, (3, 1, 5, 7), num_heads=3)
    yield _op(name, (2, 5, 16), (2, 4, 6, 4), (2, 4, 6, 4), num_heads=4)
    self_attention = ((2, 5, 16), (2, 5, 16), (2, 5, 16))
    yield _op(name, *self_attention, num_heads=4, unidirectional=1)
    positions = _integers((2, 5), 0, 6)
    first = Known(np.array([2], dtype=np.int64), constant=False)
    yield _op("RotaryEmbedding", (2, 5, 24), positions, (8, 4), (8, 4))
    yield _op("RotaryEmbedding", (2, 4, 5, 8), positions, (8, 4), (8, 4), interleaved=1)
    yield _op("RotaryEmbedding", (2, 5, 24), first, (8, 4), (8, 4), num_heads=3)
    stated: dict[str, Any] = {"num_heads": 4, "rotary_embedding_dim": 4}
    yield _op("RotaryEmbedding", (2, 5, 32), positions, (8, 2), (8, 2), **stated)


def _int32(value: int) -> Known:
    return Known(np.array(value, dtype=np.int32))


def grouped_attentions() -> Iterator[Case]:
    """A decoder's prompt and steps, caches that grow and caches that are there; turned, capped, within a window."""
    name = "GroupQueryAttention"
    stated: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
    turned: dict[str, Any] = {**stated, "do_rotary": 1}
    step = ((3, 1, 64), (3, 1, 32), (3, 1, 32))
    past, room = ((3, 2, 5, 16),) * 2, ((3, 2, 8, 16),) * 2
    lengths = Known(np.array([5, 3, 5], dtype=np.int32), constant=False)
    tables = ((9, 8), (9, 8))
    yield _op(name, *step, *past, lengths, _int32(6), outputs=3, **stated)
    yield _op(name, *step, *room, lengths, _int32(6), *tables, outputs=3, **turned)
    yield _op(name, *step, *past, lengths, _int32(6), outputs=3, **stated, softcap=2.0, local_window_size=3, scale=0.2)
    full = Known(np.array([3, 3], dtype=np.int32), constant=False)
    prompt = ((2, 4, 96), (2, 4, 48), (2, 4, 48))
    three: dict[str, Any] = {"num_heads": 6, "kv_num_heads": 3}
    yield _op(
        name, *prompt, None, None, full, _int32(4), *tables, outputs=3, **three, do_rotary=1, rotary_interleaved=1
    )
    yield _op(name, *prompt, None, None, full, _int32(4), None, None, None, (1, 6, 4, 4), outputs=3, **three)
    yield _op(name, *prompt, None, None, full, _int32(4), *((None,) * 4), (6,), outputs=3, **three)
    alone = ((2, 4, 48),) * 3
    yield _op(name, *alone, None, None, full, _int32(4), outputs=3, num_heads=3, kv_num_heads=3)


def mixtures() -> Iterator[Case]:
    """Tokens and samples, every activation, one expert and several; weights of 4 and 8 bits, scales of blocks."""
    two: dict[str, Any] = {"k": 2, "activation_type": "silu"}
    weights, biased = ((5, 12, 8), None, (5, 8, 12)), ((5, 12, 8), (5, 12), (5, 8, 12), (5, 8))
    yield _op("MoE", (6, 8), (6, 5), *weights, **two)
    yield _op("MoE", (6, 8), (6, 5), *biased, **two, normalize_routing_weights=1)
    yield _op("MoE", (2, 3, 8), (6, 5), *biased, k=1, activation_type="gelu")
    yield _op("MoE", (1, 6, 8), (6, 5), *weights, k=3, normalize_routing_weights=1)
    gates: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.7}
    yield _op("MoE", (6, 8), (6, 5), (5, 24, 8), (5, 24), (5, 8, 12), k=2, **gates, swiglu_limit=0.5)
    for bits in (4, 8):
        first, second = (Given((5, rows, depth * bits // 8), "uint8", 0, 255) for rows, depth in ((32, 16), (16, 32)))
        scales = (Given((5, 32), low=0.01, high=0.02), Given((5, 16), low=0.01, high=0.02))
        stated: dict[str, Any] = {**two, "expert_weight_bits": bits}
        operands = (first, scales[0], (5, 32), second, scales[1], (5, 16))
        yield _op("QMoE", (6, 16), (6, 5), *operands, **stated)


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return normalisations(), products(), attentions(), grouped_attentions(), mixtures()
