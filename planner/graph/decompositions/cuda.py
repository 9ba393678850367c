"""Operators in others for CUDA: those without a kernel, where ONNX's specification has no ops for them, and those whose
kernel is slow. Operands all have one dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.image_kernels import LEAST_OPSET, OF_PRODUCTS, ImageKernel
from planner.graph.decompositions.parts.normalization import batch_normalization
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for

_LEAST_ELEMENTS: Final = 1 << 14
"""Of a sum that becomes a product: below, a kernel's launch is what takes time."""
_LEAST_ONES, _MOST_ONES = 16, 1 << 16
"""Elements of a vector of ones."""
_MOST_WINDOWS: Final = 64
"""A filter of 7 x 7 has 49."""
_LEAST_ROWS: Final = 64

trained_batch_normalization = stands_for(*batch_normalization.names, purpose=Purpose.CUDA)(batch_normalization.function)


@stands_for("Mean", purpose=Purpose.CUDA)
def mean(emitter: Emitter, op: Op) -> tuple[str, ...]:
    """The sum of the operands, divided by how many there are."""
    total = emitter.each("Sum", "total", *op.inputs)
    return (emitter.each("Div", "mean", total, emitter.scalar(len(op.inputs), emitter.dtype(total), "count")),)


@stands_for("Tan", purpose=Purpose.CUDA)
def tan(emitter: Emitter, op: Op) -> tuple[str, ...]:
    """The sine divided by the cosine."""
    (x,) = op.inputs
    return (emitter.each("Div", "tan", emitter.each("Sin", "sin", x), emitter.each("Cos", "cos", x)),)


@stands_for("Hardmax", purpose=Purpose.CUDA)
def hardmax(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """1 where the first largest element along the axis is, 0 elsewhere; before opset 13 along several dims at once."""
    if emitter.opset < LEAST_OPSET:
        return None
    (x,) = op.inputs
    shape, axis = emitter.shape(x), axis_of(emitter, op, -1)
    line = tuple(1 if dim == axis else size for dim, size in enumerate(shape))
    largest = emitter.one("ArgMax", (x,), line, DType.INT64, hint="largest", attributes={"axis": axis, "keepdims": 1})
    places = emitter.constant(np.arange(shape[axis]).reshape(-1, *(1 for _ in shape[axis + 1 :])), "places")
    is_first = emitter.each("Equal", "is_first", places, largest, dtype=DType.BOOL)
    return (emitter.cast(is_first, emitter.dtype(x), "hardmax"),)


@stands_for("RMSNormalization", purpose=Purpose.CUDA, is_better=True)
def scaled_apart(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A normalization by ones, times its scale: where that is stretched CUDA's kernel gives wrong numbers."""
    x, scale = op.inputs
    shape = emitter.shape(x)
    normalised = shape[axis_of(emitter, op, -1) :]
    if emitter.shape(scale) == normalised:
        return None
    ones = emitter.constant(np.ones(normalised, emitter.dtype(scale).array_dtype), "ones")
    normal = emitter.one(op.op_type, [x, ones], shape, emitter.dtype(scale), attributes=dict(op.attributes))
    return (emitter.mul(normal, scale),)


@stands_for("ReduceMean", "ReduceSum", purpose=Purpose.CUDA, is_better=True)
def sums(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A sum over leading or trailing dims as a product with ones, which reads its operand faster.

    Of 16-bit floats a mean stays, whose sum may be too large, and a sum that takes several products: what is between
    would be rounded.
    """
    x = op.inputs[0]
    shape, rank = emitter.shape(x), emitter.rank(x)
    axes = emitter.value(op.inputs[1]) if op.inputs[1:] else op.attribute("axes")
    is_plain = emitter.opset >= LEAST_OPSET and axes is not None and emitter.dtype(x) in OF_PRODUCTS
    if not is_plain or math.prod(shape) < _LEAST_ELEMENTS:
        return None
    dims = sorted({int(axis) % rank for axis in np.asarray(axes)})
    rows = math.prod(shape[dim] for dim in dims)
    takes_one = op.op_type == "ReduceSum" and len(_runs(dims)) == 1 and rows <= _MOST_ONES
    if (emitter.dtype(x).is_half and not takes_one) or (0 not in dims and rank - 1 not in dims):
        return None
    total = _summed(emitter, x, dims)
    if op.op_type == "ReduceMean":
        total = emitter.scale(total, 1 / rows, "mean")
    keeps = integer(op, "keepdims", 1) == 1
    result_shape = [1 if dim in dims else shape[dim] for dim in range(rank) if keeps or dim not in dims]
    return (emitter.reshape(total, result_shape),)


def _runs(dims: Sequence[int]) -> list[range]:
    """Sorted dims, those that lie beside each other together."""
    runs: list[range] = []
    for dim in dims:
        if runs and runs[-1].stop == dim:
            runs[-1] = range(runs[-1].start, dim + 1)
        else:
            runs.append(range(dim, dim + 1))
    return runs


def _summed(emitter: Emitter, x: str, dims: Sequence[int]) -> str:
    """The sums over some dims, which are gone."""
    for run in reversed(_runs(dims)):
        shape = emitter.shape(x)
        before, after = shape[: run.start], shape[run.stop :]
        outer, rows, inner = (math.prod(part) for part in (before, shape[run.start : run.stop], after))
        step = next(size for size in range(min(rows, _MOST_ONES), 0, -1) if rows % size == 0)
        if (outer != 1 and inner != 1) or step < min(rows, _LEAST_ONES):
            x = emitter.reduce_sum(x, run)  # between other dims, or of so many rows that no product takes
            continue
        for size in (step, rows // step):
            rows //= size
            ones = np.ones(size, emitter.dtype(x).array_dtype)
            if size != 1 and inner == 1:
                x = emitter.reshape(x, (outer * rows, size))
                x = emitter.matmul(x, emitter.constant(ones[:, None], "ones"), "sums")
            elif size != 1:
                x = emitter.reshape(x, (size, rows * inner))
                x = emitter.matmul(emitter.constant(ones[None], "ones"), x, "sums")
        x = emitter.reshape(x, (*before, *after))
    return x


@stands_for("Conv", purpose=Purpose.CUDA, is_better=True)
def filter_gradient(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A convolution of few windows with a kernel of more elements than they are: a product for each.

    Such is the gradient of a filter, whose kernel is an image. All windows overlap, so that what one product reads the
    others read as well. cuDNN takes up to 140 times as long, and refuses some in float16 (bench/results/gpu.md).
    """
    image = ImageKernel.of(emitter, op) if len(op.inputs) == 2 else None
    if image is None or not image.windows_overlap or emitter.opset < LEAST_OPSET:
        return None
    if image.windows_count > min(math.prod(image.kernel) - 1, _MOST_WINDOWS):
        return None
    x, w = op.inputs[:2]
    samples, channels, windows = image.samples, image.channels, image.windows
    x = emitter.pad(x, (0, 0, *image.before), (0, 0, *image.after))
    # Elements that lie a dilation apart are brought together once, so that a window is a box.
    phases = {
        phase: emitter.every(
            emitter.slice(x, (0, 0, *phase), emitter.shape(x)),
            dict(enumerate(image.dilations, 2)),
        )
        for phase in product(*(range(min(step, (count - 1) * stride + 1))
                               for step, count, stride in zip(image.dilations, windows, image.strides, strict=True)))
    }  # fmt: skip

    def boxes() -> Iterator[str]:
        for starts in image.starts():
            first = [start // step for start, step in zip(starts, image.dilations, strict=True)]
            ends = [start + size for start, size in zip(first, image.kernel, strict=True)]
            phase = tuple(start % step for start, step in zip(starts, image.dilations, strict=True))
            yield emitter.slice(phases[phase], (0, 0, *first), (samples, channels * image.group, *ends))

    group = image.group
    parts = _products(emitter, boxes(), samples, w) if group == 1 else _by_channel(emitter, boxes(), samples, w, group)
    return (emitter.reshape(emitter.concat(parts, 2), (samples, image.kernels, *windows)),)


def _products(emitter: Emitter, boxes: Iterator[str], samples: int, w: str) -> list[str]:
    """[samples, kernels, boxes]: boxes [samples, channels, kernel] times kernels [kernels, channels, kernel]."""
    kernels, inner = emitter.shape(w)[0], math.prod(emitter.shape(w)[1:])
    rhs = emitter.reshape(w, (kernels, inner))
    at_once = max(1, _LEAST_ROWS // samples)  # a product of few rows is slow
    products = []
    # A box is read before the next is made, so that few of them are there at a time.
    while rows := [emitter.reshape(box, (samples, inner)) for box in islice(boxes, at_once)]:
        lhs, shape = emitter.concat(rows, 0), (len(rows) * samples, kernels)
        sums = emitter.one("Gemm", [lhs, rhs], shape, emitter.dtype(w), attributes={"transB": 1})
        products.append(emitter.transpose(emitter.reshape(sums, (len(rows), samples, kernels)), (1, 2, 0)))
    return products


def _by_channel(emitter: Emitter, boxes: Iterator[str], samples: int, w: str, group: int) -> list[str]:
    """``_products`` where each group has kernels of its own; of one sample the elements' products, and their sums."""
    kernels, inner, dtype = emitter.shape(w)[0], math.prod(emitter.shape(w)[1:]), emitter.dtype(w)
    rhs = emitter.reshape(emitter.cast(w, DType.FLOAT32), (group, kernels // group, inner))
    products = []
    for box in boxes:
        lhs = emitter.reshape(emitter.cast(box, DType.FLOAT32), (samples, group, inner))
        if samples == 1:
            lhs = emitter.reshape(lhs, (group, 1, inner))
            sums = _summed(emitter, emitter.mul(lhs, rhs), [2])
        else:
            sums = emitter.matmul(emitter.transpose(lhs, (1, 0, 2)), emitter.transpose(rhs, (0, 2, 1)), "sums")
            sums = emitter.transpose(sums, (1, 0, 2))
        products.append(emitter.reshape(emitter.cast(sums, dtype), (samples, kernels, 1)))
    return products
