"""Cases of quantised operators, and of operators newer than the opset that the runtime takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.features.ops.cases.case import Case, Given, Known, make
from planner.graph.core.model import Attribute, Shape


def _bytes(shape: Shape, dtype: str = "uint8") -> Given:
    return Given(shape, dtype, *((0, 200) if dtype == "uint8" else (-90, 90)))


def _positive(shape: Shape) -> Given:
    return Given(shape, low=0.01, high=0.05)


def scales() -> Iterator[Case]:
    """By tensor, by axis, by blocks along an axis."""
    yield make("QuantizeLinear", (4, 6), _positive(()))
    yield make("QuantizeLinear", (4, 6), _positive(()), Given((), "int8", -3, 3))
    yield make("QuantizeLinear", (4, 6, 5), _positive((6,)), Given((6,), "uint8", 90, 150))
    yield make("QuantizeLinear", (7, 5), _positive((7,)), Given((7,), "int8", -3, 3), axis=0)
    yield make("QuantizeLinear", (4, 6), _positive((4, 2)), Given((4, 2), "int8", -3, 3), axis=1, block_size=3)
    yield make("QuantizeLinear", (4, 1), _positive((1,)), Given((1,), "int8", -3, 3), axis=1, opset=13)
    yield make("DequantizeLinear", _bytes((4, 6)), _positive(()), Given((), "uint8", 90, 150))
    yield make("DequantizeLinear", _bytes((4, 6, 5)), _positive((6,)), Given((6,), "uint8", 90, 150))
    yield make("DequantizeLinear", _bytes((7, 5), "int8"), _positive((5,)), axis=-1, opset=13)
    yield make("DequantizeLinear", _bytes((8, 5), "int8"), _positive((2, 5)), axis=0, block_size=4)
    yield make("DynamicQuantizeLinear", (4, 6), outputs=3)


def products() -> Iterator[Case]:
    """Integer products with and without zero points, by row and by column."""
    yield make("MatMulInteger", _bytes((4, 6)), _bytes((6, 5), "int8"))
    yield make("MatMulInteger", _bytes((4, 6)), _bytes((6, 5)), Given((), "uint8", 3, 9), Given((), "uint8", 3, 9))
    yield make("MatMulInteger", _bytes((3, 4, 7)), _bytes((7, 5)), Given((), "uint8", 3, 9), Given((5,), "uint8", 3, 9))
    scale, zero = _positive(()), Given((), "uint8", 90, 120)
    yield make("QLinearMatMul", _bytes((4, 6)), scale, zero, _bytes((6, 5)), scale, zero, _positive(()), zero)
    yield make("QLinearMatMul", _bytes((2, 4, 7)), scale, zero, _bytes((2, 7, 3)), scale, zero, _positive(()), zero)
    columns = _positive((5,))
    zeros = Known(np.array([1, -2, 0, 3, 1], dtype=np.int8), constant=False)
    yield make(
        "QLinearMatMul", _bytes((4, 6)), scale, zero, _bytes((6, 5), "int8"), columns, zeros, _positive(()), zero
    )


def convolutions() -> Iterator[Case]:
    """Integer convolutions with borders, strides and groups."""
    around = (1, 1, 1, 1)
    yield make("ConvInteger", _bytes((2, 3, 6, 5)), _bytes((4, 3, 3, 3)), pads=around)
    yield make(
        "ConvInteger", _bytes((2, 4, 7, 6)), _bytes((4, 2, 3, 3)), Given((), "uint8", 3, 9), group=2, strides=(2, 1)
    )
    yield make(
        "ConvInteger",
        _bytes((1, 3, 7, 6)),
        _bytes((4, 3, 3, 2)),
        Given((), "uint8", 3, 9),
        Given((), "uint8", 3, 9),
        pads=around,
    )
    scale, zero = _positive(()), Given((), "uint8", 90, 120)
    first, second = _bytes((2, 3, 6, 5)), _bytes((4, 3, 3, 3))
    yield make("QLinearConv", first, scale, zero, second, scale, zero, _positive(()), zero, pads=around)
    eights = Known(np.array([1, 0, -2, 4], dtype=np.int8), constant=False)
    weights, biases = _bytes((4, 1, 3, 3), "int8"), Given((4,), "int32", -9, 9)
    operands = (_bytes((2, 4, 7, 6)), scale, zero, weights, _positive((4,)), eights, _positive(()), zero, biases)
    yield make("QLinearConv", *operands, group=4, strides=(2, 1))


def newer() -> Iterator[Case]:
    """Operators of opset 27 and on, executed by the reference evaluator."""
    yield make("SwiGLU", (4, 6), (4, 6), opset=28)
    yield make("SwiGLU", (5, 1, 7), (5, 1, 7), alpha=2.0, opset=28)
    yield make("CausalConvWithState", (3, 4, 5), (4, 1, 3), (4,), (3, 4, 2), outputs=2, opset=28)
    yield make("CausalConvWithState", (2, 5, 6), (5, 1, 2), outputs=2, opset=28)
    heads: dict[str, Attribute] = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    yield make("LinearAttention", (3, 5, 6), (3, 5, 6), (3, 5, 4), outputs=2, opset=28, **heads)  # type: ignore[arg-type]


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return scales(), products(), convolutions(), newer()
