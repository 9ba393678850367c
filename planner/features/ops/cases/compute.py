"""Cases of the operators that compute: element-wise, products, convolutions, pooling, reductions, normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from onnx import defs

from planner.features.ops.cases.case import OPSET, Case, Given, Known, Operand, ints, make
from planner.graph.core.model import Shape
from planner.graph.core.traits import ELEMENT_WISE

SHAPES: tuple[Shape, ...] = ((4, 6), (5, 1, 7), (3,))
RANGED = {
    "Sqrt": (0.1, 2.0), "Log": (0.1, 2.0), "Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9), "Atanh": (-0.9, 0.9),
    "Acosh": (1.1, 3.0),
}  # fmt: skip
"""Bounds of the operands of functions that are not defined everywhere."""
_ANY_NUMBER: Final = 2**31 - 1
"""Operands at most, where there may be any number of them."""
BROADCASTS: tuple[tuple[Shape, Shape], ...] = (
    ((4, 6), (4, 6)),
    ((4, 6), (6,)),
    ((5, 1, 7), (3, 1)),
    ((2, 3, 4), ()),
    ((1, 5), (7, 1)),
)


def _taking(operands: int, dtype: str) -> set[str]:
    """Element-wise operators of so many operands of a dtype, of those that require no attribute."""
    schemas = [defs.get_schema(name, OPSET) for name in ELEMENT_WISE if defs.has(name, OPSET, "")]
    return {
        schema.name
        for schema in schemas
        if schema.max_input == operands
        and f"tensor({dtype})" in schema.inputs[0].types
        and not any(attribute.required for attribute in schema.attributes.values())
    }


def elementwise() -> Iterator[Case]:
    """Every element-wise operator, broadcast in several ways."""
    for name in sorted(_taking(1, "float") - RANGED.keys()):
        for shape in SHAPES:
            yield make(name, shape)
    for name, (low, high) in RANGED.items():
        yield make(name, Given((5, 4), low=low, high=high))
    of_floats, integral = _taking(2, "float"), {"Equal", "Mod"}
    for first, second in BROADCASTS:
        for name in sorted(of_floats - integral - {"CastLike", "Pow"}):
            # A slope of PRelu broadcasts to its input, never the input to the slope.
            if name != "PRelu" or np.broadcast_shapes(first, second) == first:
                yield make(name, first, second)
        for name in sorted(_taking(2, "bool") - of_floats):
            yield make(name, Given(first, "bool"), Given(second, "bool"))
        for name in sorted(_taking(2, "int64") - of_floats | integral):
            yield make(name, Given(first, "int64", -9, 9), Given(second, "int64", 2, 7))
        for name in sorted(_taking(_ANY_NUMBER, "float")):
            yield make(name, first, second, (1,))
        yield make("Where", Given(second, "bool"), first, ())
        yield make("Pow", Given(first, low=0.1, high=2.0), second)
        yield make("BitShift", Given(first, "uint32", 0, 99), Given(second, "uint32", 0, 3), direction="LEFT")
    yield make("Not", Given((5, 3), "bool"))
    yield make("BitwiseNot", Given((5, 3), "int32"))
    yield make("Clip", (4, 5), Given((), low=-1.0, high=-0.5), Given((), low=0.5, high=1.0))
    yield make("Clip", (4, 5), None, Known(np.array(0.3, dtype=np.float32)))
    yield make("Mod", (4, 5), (5,), fmod=1)
    yield make("Cast", (5, 4), to=7)
    yield make("CastLike", (5, 4), Given((1,), "int32"))
    yield make("Gelu", (5, 4), approximate="tanh")
    yield make("Swish", (5, 4), opset=24)
    yield make("Swish", (3, 1, 7), alpha=0.5, opset=24)
    yield make("BitCast", Given((5, 4), "int32"), to=1, opset=26)
    yield make("Dropout", (5, 4))
    yield make("Dropout", (5, 4), Known(np.array(0.3, dtype=np.float32)), Known(np.array(False)), outputs=2)


def products() -> Iterator[Case]:
    """MatMul of every rank, Gemm with every transposition and form of C."""
    pairs: tuple[tuple[Shape, Shape], ...] = (
        ((4, 6), (6, 5)),
        ((7, 3), (3, 1)),
        ((6,), (6,)),
        ((6,), (6, 5)),
        ((4, 6), (6,)),
        ((2, 4, 6), (6, 5)),
        ((2, 3, 4, 6), (2, 3, 6, 5)),
        ((2, 1, 4, 6), (3, 6, 5)),
        ((6,), (3, 6, 5)),
        ((3, 4, 6), (6,)),
        ((1, 4, 6), (5, 6, 2)),
    )
    for first, second in pairs:
        yield make("MatMul", first, second)
    for flip_a in (0, 1):
        for flip_b in (0, 1):
            A, B = ((6, 5) if flip_a else (5, 6)), ((4, 6) if flip_b else (6, 4))
            yield make("Gemm", A, B, (4,), transA=flip_a, transB=flip_b)
    for C in ((), (1,), (5, 1), (1, 4), (5, 4)):
        yield make("Gemm", (5, 6), (6, 4), C, alpha=0.5, beta=-2.0)
    yield make("Gemm", (5, 7), (7, 4))
    yield make("Gemm", (5, 7), (7, 4), Known(np.linspace(-1, 1, 4, dtype=np.float32)))


def convolutions() -> Iterator[Case]:
    """Conv of 1 to 3 dims: strides, dilations, asymmetric and automatic pads, groups, kernels beyond the border."""
    yield make("Conv", (2, 4, 9), (6, 4, 3), (6,), pads=(1, 1))
    yield make("Conv", (2, 3, 8, 7), (4, 3, 3, 3), (4,), pads=(1, 1, 1, 1))
    yield make("Conv", (2, 3, 8, 7), (4, 3, 3, 3), None, strides=(2, 2), pads=(1, 1, 1, 1))
    yield make("Conv", (1, 3, 11, 11), (5, 3, 3, 2), (5,), strides=(2, 3), dilations=(2, 1), pads=(0, 1, 2, 1))
    yield make("Conv", (2, 4, 6, 6), (6, 2, 3, 3), (6,), group=2, pads=(1, 1, 1, 1))
    yield make("Conv", (2, 6, 5, 5), (6, 1, 3, 3), (6,), group=6, pads=(1, 1, 1, 1), kernel_shape=(3, 3))
    yield make("Conv", (2, 6, 5, 5), (12, 2, 1, 1), None, group=3)
    yield make("Conv", (2, 4, 3, 6), (4, 2, 3, 3), (4,), group=2, pads=(0, 1, 0, 1), dilations=(1, 2))
    yield make("Conv", (2, 2, 3, 4, 5), (4, 1, 3, 2, 4), None, group=2, pads=(0, 1, 0, 0, 0, 1), strides=(1, 2, 1))
    yield make("Conv", (2, 3, 5, 5), (4, 3, 1, 1), (4,), strides=(2, 2))
    yield make("Conv", (1, 2, 7, 8), (3, 2, 3, 3), None, auto_pad="SAME_UPPER", strides=(2, 2))
    yield make("Conv", (1, 2, 7, 8), (3, 2, 4, 3), None, auto_pad="SAME_LOWER", strides=(1, 2))
    yield make("Conv", (1, 2, 7, 8), (3, 2, 3, 3), None, auto_pad="VALID")
    yield make("Conv", (1, 2, 5, 4, 6), (3, 2, 2, 3, 3), (3,), pads=(1, 1, 0, 0, 1, 2))
    # Windows that do not overlap need no halo.
    yield make("Conv", (2, 3, 16, 16), (4, 3, 4, 4), None, strides=(4, 4))
    yield make("Conv", (3, 2, 8, 8), (4, 2, 8, 8), None, dilations=(1, 1), pads=(1, 1, 1, 1))
    yield make("Conv", (1, 2, 4, 4), (3, 2, 1, 1), (3,), pads=(2, 2, 2, 2))
    yield make("ConvTranspose", (2, 4, 5), (4, 6, 3), (6,), strides=(2,), pads=(1, 1), output_padding=(1,))
    strides, around = (2, 2), (1, 1, 1, 1)
    yield make("ConvTranspose", (2, 3, 4, 5), (3, 4, 3, 3), (4,), strides=strides, pads=around, output_padding=(1, 1))
    yield make("ConvTranspose", (1, 3, 4, 4), (3, 4, 3, 3), None, pads=(1, 1, 1, 1))
    yield make("ConvTranspose", (1, 3, 4, 4), (3, 4, 2, 3), (4,), strides=(3, 2), dilations=(1, 2), pads=(0, 2, 1, 0))
    yield make("ConvTranspose", (2, 4, 3, 3), (4, 3, 3, 3), (6,), group=2, strides=(2, 2))
    yield make("ConvTranspose", (2, 6, 3, 3), (6, 1, 2, 2), (6,), group=6)
    yield make("ConvTranspose", (1, 2, 4), (2, 3, 1), (3,), strides=(3,), output_padding=(2,))
    yield make("ConvTranspose", (1, 2, 3), (2, 2, 2), None, strides=(4,))
    yield make("ConvTranspose", (1, 2, 3), (2, 2, 2), (2,), strides=(4,), dilations=(3,))
    yield make("ConvTranspose", (1, 2, 4, 4), (2, 3, 3, 3), None, strides=(2, 2), auto_pad="SAME_UPPER")
    yield make("ConvTranspose", (1, 2, 4, 4), (2, 3, 3, 3), None, strides=(2, 2), output_shape=(8, 9))
    yield make("ConvTranspose", (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), (2,), strides=(2, 1, 2))


def pooling() -> Iterator[Case]:
    """Pools with borders, rounding up, dilation; and their global forms."""
    for name in ("MaxPool", "AveragePool"):
        yield make(name, (2, 3, 8, 7), kernel_shape=(2, 2), strides=(2, 2))
        yield make(name, (2, 3, 9, 7), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        yield make(name, (1, 2, 8, 8), kernel_shape=(3, 2), strides=(2, 3), ceil_mode=1)
        yield make(name, (1, 2, 9), kernel_shape=(3,), pads=(0, 2))
        yield make(name, (1, 2, 7, 6), kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")
        yield make(name, (1, 2, 7, 6), kernel_shape=(2, 2), strides=(1, 2), auto_pad="SAME_LOWER")
        yield make(name, (1, 2, 6, 5, 4), kernel_shape=(2, 2, 2))
        yield make(name, (2, 2, 11), kernel_shape=(3,), dilations=(2,), pads=(1, 1))
        # The fourth window would begin beyond the input and the padding before it, and is none.
        yield make(name, (2, 3, 13, 8), kernel_shape=(3, 3), strides=(3, 3), pads=(1, 1, 1, 1), ceil_mode=1)
    # The last window reaches further beyond the end than a kernel has elements.
    yield make(
        "MaxPool", (1, 2, 9), kernel_shape=(4,), strides=(4,), dilations=(2,), pads=(0, 3), ceil_mode=1, outputs=2
    )
    yield make("MaxPool", Given((2, 2, 7), "int8", -9, 9), kernel_shape=(3,), pads=(1, 1))
    yield make("MaxPool", (3, 4, 7, 6), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), outputs=2)
    yield make("MaxPool", (2, 2, 5, 4, 3), kernel_shape=(2, 2, 2), storage_order=1, outputs=2)
    # Of whole numbers many are equal: the first is taken.
    yield make("MaxPool", Given((2, 3, 9), "int8", -2, 3), kernel_shape=(3,), dilations=(2,), pads=(2, 1), outputs=2)
    yield make("AveragePool", (2, 2, 9, 7), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=1)
    yield make("AveragePool", (2, 2, 8), kernel_shape=(3,), strides=(2,), pads=(1, 1), count_include_pad=1, ceil_mode=1)
    for name in ("GlobalAveragePool", "GlobalMaxPool"):
        yield make(name, (2, 3, 5, 4))
        yield make(name, (2, 3, 7))


def reductions() -> Iterator[Case]:
    """Reduce* by attribute and by input, positions of extremes, running sums."""
    names = (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
    )  # fmt: skip
    for name in names:
        yield make(name, (4, 5, 6), ints(1), keepdims=1)
        yield make(name, (4, 5, 6), ints(0, -1), keepdims=0)
        yield make(name, (4, 1, 5))
        yield make(name, (7,), keepdims=0)
        yield make(name, (4, 5), ints(), noop_with_empty_axes=1)
        if name != "ReduceSum":
            yield make(name, (4, 5, 6), axes=(1, 2), keepdims=0, opset=17)
    yield make("ReduceLogSum", Given((4, 5), low=0.1, high=2.0), ints(1))
    yield make("ReduceLogSumExp", (4, 5), ints(0))
    yield make("ReduceMean", Given((4, 6), "int32", -9, 9), ints(1))
    yield make("ReduceSum", Given((4, 6), "int64", -9, 9), ints(1))
    for name in ("ArgMax", "ArgMin"):
        yield make(name, (4, 5, 6), axis=1)
        yield make(name, (4, 5), axis=-1, keepdims=0)


def normalisations() -> Iterator[Case]:
    """Softmax and its kin, layer and batch normalisation."""
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        yield make(name, (4, 5, 6))
        yield make(name, (4, 5, 6), axis=1)
        yield make(name, (3, 4, 5), axis=1, opset=11)
    yield make("LayerNormalization", (3, 4, 6), (6,), (6,))
    yield make("LayerNormalization", (3, 4, 6), (6,), (6,), outputs=3)
    yield make("LayerNormalization", (3, 4, 6), (4, 6), None, axis=1, outputs=3)
    channel: tuple[Operand, ...] = (Given((5,)), Given((5,)), Given((5,)), Given((5,), low=0.5, high=2.0))
    yield make("BatchNormalization", (4, 5, 6, 3), *channel, epsilon=1e-3)
    yield make("BatchNormalization", (4, 5), *channel)
    yield make("BatchNormalization", (4, 5, 6), *channel, training_mode=1, outputs=3)


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return elementwise(), products(), convolutions(), pooling(), reductions(), normalisations()
