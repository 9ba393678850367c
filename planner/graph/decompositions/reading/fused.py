"""Sums, products, convolutions and activations that ONNX Runtime's optimizer has made one operator of, apart again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.graph.core.attributes import attributes_of, integer, number, refuse, text
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, DType, Op
from planner.graph.decompositions.reading.form import FormWriter
from planner.graph.decompositions.registry import Purpose, stands_for

_GELU_SINCE: Final = 20
_EPSILON: Final = 1e-12
"""ONNX Runtime's default, where ONNX's is 1e-5."""
_STATISTICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"LayerNormalization": ("mean", "inverse"), "SimplifiedLayerNormalization": ("inverse",)}
)
"""Outputs beside the first."""
_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Clip": ("min", "max"),
        "HardSigmoid": ("alpha", "beta"),
        "LeakyRelu": ("alpha",),
        "Relu": (),
        "Sigmoid": (),
        "Tanh": (),
    }
)
"""Functions behind a product or a convolution, with the names of their parameters in order."""


@stands_for("com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.Gelu", purpose=Purpose.READING)
def gelu(writer: Emitter, op: Op) -> tuple[str, ...]:
    """Gelu of the input and a bias: exact, or of a FastGelu by tanh."""
    x, *bias = op.inputs
    x = writer.add(x, bias[0], "biased") if bias and bias[0] else x
    return (gelu_of(writer, x, is_fast=op.op_type == "FastGelu"),)


def gelu_of(writer: Emitter, x: str, *, is_fast: bool) -> str:
    """Gelu: exact, or by tanh.

    Before ONNX has the operator it is written as PyTorch's exporter writes it, which the runtime's optimizer knows.
    """
    if writer.opset >= _GELU_SINCE:
        stated: dict[str, Attribute] = {"approximate": "tanh" if is_fast else "none"}
        return writer.one("Gelu", [x], writer.shape(x), writer.dtype(x), attributes=stated)
    if is_fast:
        cube = writer.binary("Pow", x, writer.scalar(3.0, x, "three"), "cube")
        inner = writer.add(x, writer.scale(cube, 0.044715, "part"), "inner")
        curve = writer.unary("Tanh", writer.scale(inner, math.sqrt(2 / math.pi), "scaled"), "tanh")
    else:
        curve = writer.unary("Erf", writer.div(x, writer.scalar(math.sqrt(2), x, "root"), "scaled"), "erf")
    above = writer.add(curve, writer.scalar(1.0, x, "one"), "above")
    return writer.mul(writer.scale(x, 0.5, "half"), above, "gelu")


@stands_for("com.microsoft.QuickGelu", purpose=Purpose.READING)
def quick_gelu(writer: Emitter, op: Op) -> tuple[str, ...]:
    """Input times the sigmoid of alpha times the input."""
    x = op.inputs[0]
    scaled = writer.scale(x, number(op, "alpha", 1.702), "scaled")
    return (writer.mul(x, writer.unary("Sigmoid", scaled, "sigmoid"), "gelu"),)


@stands_for("com.microsoft.FusedMatMul", purpose=Purpose.READING)
def fused_matmul(writer: Emitter, op: Op) -> tuple[str, ...]:
    """Transposes of the operands, their MatMul, and a multiplication by alpha."""
    operands = []
    for name, letter in zip(op.inputs, "AB", strict=True):
        order = list(range(writer.rank(name)))
        if len(order) > 1 and integer(op, f"transBatch{letter}", 0):
            order = [*order[1:-1], order[0], order[-1]]
        if len(order) > 1 and integer(op, f"trans{letter}", 0):
            order = [*order[:-2], order[-1], order[-2]]
        operands.append(writer.transpose(name, order, f"{letter}.turned"))
    a, b = map(writer.shape, operands)
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
    product = writer.one("MatMul", operands, shape, writer.dtype(op.inputs[0]), hint="product")
    return (writer.scale(product, number(op, "alpha", 1.0), "scaled"),)


@stands_for("com.microsoft.FusedGemm", purpose=Purpose.READING)
def fused_gemm(writer: FormWriter, op: Op) -> tuple[str, ...]:
    """Gemm, and the function that follows it."""
    stated = [value for name, value in sorted(attributes_of(op).items()) if name.startswith("activation_")]
    product = writer.part("Gemm", op.inputs, "product", _without_activation(op))
    return (_activated(writer, op, product, stated),)


@stands_for("com.microsoft.FusedConv", purpose=Purpose.READING)
def fused_conv(writer: FormWriter, op: Op) -> tuple[str, ...]:
    """Conv, the sum with a fourth operand, and the function that follows them."""
    total = writer.part("Conv", op.inputs[:3], "conv", _without_activation(op))
    if op.has_input(3):
        total = writer.part("Add", (total, op.inputs[3]), "sum", {})
    parameters = op.attribute("activation_params", ())
    assert isinstance(parameters, tuple), "it is a list"
    return (_activated(writer, op, total, parameters),)


def _without_activation(op: Op) -> dict[str, Attribute]:
    return {name: value for name, value in op.attributes if not name.startswith("activation")}


def _activated(writer: FormWriter, op: Op, x: str, parameters: Sequence[Attribute]) -> str:
    """The function that an op names, with as many of the parameters as it has."""
    name = text(op, "activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise refuse(op, f"its attribute activation is {name!r}, and must be one of {', '.join(_ACTIVATIONS)}")
    stated = dict(zip(_ACTIVATIONS[name], parameters, strict=False))
    if name != "Clip":
        return writer.part(name, (x,), name.lower(), stated)
    dtype = writer.dtype(op.inputs[0]).array_dtype
    bounds = [writer.constant(np.array(value, dtype), bound) for bound, value in stated.items()]
    return writer.part(name, (x, *bounds), "clip", {})


@stands_for("com.microsoft.SkipLayerNormalization", purpose=Purpose.READING)
def skip_layer_normalization(writer: Emitter, op: Op) -> tuple[str, ...]:
    """The sum of input, skip and bias, and its LayerNormalization."""
    total, learned = _sum(writer, op, 4), filter(None, op.inputs[2:4])
    return (*_normalised(writer, op, "LayerNormalization", total, *learned), total)


@stands_for("com.microsoft.SkipSimplifiedLayerNormalization", purpose=Purpose.READING)
def skip_simplified_layer_normalization(writer: Emitter, op: Op) -> tuple[str, ...]:
    """The sum of input, skip and bias, and its SimplifiedLayerNormalization."""
    if any(op.outputs[1:2]):
        raise refuse(op, "the mean as an output, which it does not compute")
    total = _sum(writer, op, 3)
    normal, inverse = _normalised(writer, op, "SimplifiedLayerNormalization", total, op.inputs[2])
    return normal, "", inverse, total


@stands_for("com.microsoft.EmbedLayerNormalization", purpose=Purpose.READING)
def embed_layer_normalization(writer: FormWriter, op: Op) -> tuple[str, ...]:
    """Lookups in two or three tables, the LayerNormalization of their sum, and the length of each sample."""
    samples, positions = writer.sizes(0, 2)
    where = op.inputs[8] if op.has_input(8) else writer.constant(np.arange(positions)[None], "positions")
    total = _looked_up(writer, writer.input(2), writer.input(0), "words")
    if op.has_input(1) and op.has_input(4):
        segments = _looked_up(writer, op.inputs[4], op.inputs[1], "segments")
        total = writer.add(total, segments, "embedded")
    total = writer.add(total, _looked_up(writer, writer.input(3), where, "places"), "sum")
    normal, *_ = _normalised(writer, op, "LayerNormalization", total, writer.input(5), writer.input(6))
    if op.has_input(7):
        lengths = writer.reduce("ReduceSum", op.inputs[7], (1,), "lengths", keepdims=False)
    else:
        zeros = writer.constant(np.zeros(samples, np.int32), "lengths.none")
        lengths = writer.unary("Identity", zeros, "lengths")
    return normal, lengths, total


def _sum(writer: Emitter, op: Op, bias_slot: int) -> str:
    total = writer.add(op.inputs[0], op.inputs[1], "sum")
    return writer.add(total, op.inputs[bias_slot], "biased") if op.has_input(bias_slot) else total


def _normalised(writer: Emitter, op: Op, op_type: str, x: str, *learned: str) -> tuple[str, ...]:
    """The normalisation along the last dim, with all its statistics: the reader drops those that nobody reads."""
    shape, parts = writer.shape(x), _STATISTICS[op_type]
    shapes = [shape, *((*shape[:-1], 1) for _ in parts)]
    dtypes = [writer.dtype(x), *(DType.FLOAT32 for _ in parts)]
    stated: dict[str, Attribute] = {"axis": -1, "epsilon": number(op, "epsilon", _EPSILON)}
    return writer.emit(op_type, (x, *learned), shapes, dtypes, hint=" ".join(("normal", *parts)), attributes=stated)


def _looked_up(writer: Emitter, table: str, where: str, part: str) -> str:
    shape = (*writer.shape(where), *writer.shape(table)[1:])
    return writer.one("Gather", (table, where), shape, writer.dtype(table), hint=part)
