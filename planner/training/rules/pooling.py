"""Gradient rules of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.graph.attributes import integer, integers, refuse
from planner.graph.builder import Builder
from planner.graph.model import Attribute, DType
from planner.training.gradients.autodiff import Backward, Contributions, gradient
from planner.training.rules.convolution import data_gradient
from planner.training.rules.windows import Windows, windows_of


def _windows(context: Backward) -> Windows:
    emit = context.builder
    kernel = integers(context.op, "kernel_shape", ())
    return windows_of(context.op, kernel, emit.shape(context.x)[2:], emit.shape(context.dy)[2:])


@gradient("MaxPool")
def max_pool(context: Backward) -> Contributions:
    """For Y = max of each window: dY goes to the window's first maximum.

    Not by the Indices output, which counts through the whole tensor and so cannot be cut in space, but by comparing:
    X, padded with a very low value, is unfolded into the K elements of each window (a grouped Conv with one-hot
    kernels); ArgMax over them gives the first hit; dY is put there, and folded back by the transpose of the unfolding.
    """
    emit, dy = context.builder, context.dy
    windows = _windows(context)
    samples, channels, *positions = emit.shape(dy)
    count = math.prod(windows.kernel)
    one_hot = one_hot_kernels(emit, channels, windows.kernel, context.x)
    folded = unfolded(emit, context.x, one_hot, windows, tuple(positions), _very_low(emit.dtype(dy)))
    elements = emit.reshape(folded, (samples, channels, count, *positions))
    hit = emit.one(
        "ArgMax", [elements], (samples, channels, 1, *positions), DType.INT64, attributes={"axis": 2, "keepdims": 1}
    )
    range_of_k = np.arange(count, dtype=np.int64).reshape(1, 1, count, *(1 for _ in positions))
    first = emit.compare("Equal", hit, emit.constant(range_of_k, f"range.{count}"))
    spread = emit.where(first, emit.unsqueeze(dy, [2]), emit.scalar(0.0, dy))
    spread = emit.reshape(spread, emit.shape(folded))
    return [data_gradient(emit, spread, one_hot, emit.shape(context.x), windows, channels)]


def unfolded(emit: Builder, x: str, one_hot: str, windows: Windows, positions: tuple[int, ...], border: float) -> str:
    """[N, C*K, positions]: the K elements of each window of each channel, by a grouped Conv with one-hot kernels."""
    samples, channels, *_ = emit.shape(x)
    zeros = (0, 0)
    padded = emit.pad(x, (*zeros, *windows.before), (*zeros, *windows.after), border)
    stated: dict[str, Attribute] = {
        "group": channels,
        "kernel_shape": windows.kernel,
        "strides": windows.strides,
    }
    if any(step != 1 for step in windows.dilations):
        stated["dilations"] = windows.dilations
    shape = (samples, emit.shape(one_hot)[0], *positions)
    return emit.one("Conv", [padded, one_hot], shape, emit.dtype(x), hint="windows", attributes=stated)


@gradient("Col2Im", inputs=(0,))
def col2im(context: Backward) -> Contributions:
    """For Y = blocks added up where they lie: dX = the blocks of dY."""
    emit, op, dy = context.builder, context.op, context.dy
    block = emit.value(op.inputs[2])
    if block is None:
        raise refuse(op, "its block_shape is not a known constant")
    kernel = tuple(int(size) for size in block)
    count = len(kernel)
    strides, dilations = integers(op, "strides", (1,) * count), integers(op, "dilations", (1,) * count)
    pads = integers(op, "pads", (0,) * (2 * count))
    sizes = emit.shape(dy)[2:]
    reach = tuple((width - 1) * step + 1 for width, step in zip(kernel, dilations, strict=True))
    positions = tuple(
        (size + before + after - end) // stride + 1
        for size, before, after, end, stride in zip(sizes, pads[:count], pads[count:], reach, strides, strict=True)
    )
    missing = tuple(
        (position - 1) * stride + end - size - before
        for position, stride, end, size, before in zip(positions, strides, reach, sizes, pads[:count], strict=True)
    )
    windows = Windows(kernel, strides, dilations, pads[:count], missing)
    one_hot = one_hot_kernels(emit, emit.shape(dy)[1], kernel, dy)
    return [emit.reshape(unfolded(emit, dy, one_hot, windows, positions, 0.0), emit.shape(context.x))]


def _very_low(dtype: DType) -> float:
    """Minus the largest power of two: it survives rounding to fewer mantissa bits (TF32), where the lowest finite
    number would become -inf, and 0 * -inf is NaN.
    """
    exponents = {DType.FLOAT16: 15, DType.FLOAT64: 1023}
    return -(2.0 ** exponents.get(dtype, 127))


def one_hot_kernels(emit: Builder, channels: int, kernel: tuple[int, ...], like: str) -> str:
    """[channels*K, 1, kernel]: kernel k of each channel picks element k of the window."""
    count = math.prod(kernel)
    dtype = np.asarray(emit.value(emit.scalar(1.0, like))).dtype
    single = np.eye(count, dtype=dtype).reshape(count, 1, *kernel)
    return emit.constant(np.tile(single, (channels, 1, *(1 for _ in kernel))), f"one_hot.{channels}x{count}")


@gradient("AveragePool")
def average_pool(context: Backward) -> Contributions:
    """For Y = mean of each window: dY / count goes to each of its elements.

    This is a grouped ConvTranspose with kernels of ones. The count leaves out padding, unless count_include_pad says
    otherwise, and always what ceil_mode adds beyond it.
    """
    emit, op, dy = context.builder, context.op, context.dy
    windows = _windows(context)
    channels = emit.shape(dy)[1]
    counts = _counts(context, windows)
    dtype = np.asarray(emit.value(emit.scalar(1.0, dy))).dtype
    if counts.min() == counts.max():
        share = emit.scale(dy, 1.0 / float(counts.flat[0]))
    else:
        weights = emit.constant((1.0 / counts).astype(dtype)[None, None], f"constant.{op.name}.shares")
        share = emit.mul(dy, weights)
    ones = emit.constant(np.ones((channels, 1, *windows.kernel), dtype), f"ones.{channels}")
    return [data_gradient(emit, share, ones, emit.shape(context.x), windows, channels)]


def _counts(context: Backward, windows: Windows) -> np.ndarray:
    """How many elements each window averages."""
    emit, op = context.builder, context.op
    include = integer(op, "count_include_pad", 0)
    stated = integers(op, "pads", (0,) * (2 * len(windows.kernel)))[len(windows.kernel) :]
    counts = np.ones((), np.int64)
    for dim, (size, position) in enumerate(zip(emit.shape(context.x)[2:], emit.shape(context.dy)[2:], strict=True)):
        starts = np.arange(position)[:, None] * windows.strides[dim] - windows.before[dim]
        read = starts + np.arange(windows.kernel[dim])[None, :] * windows.dilations[dim]
        low, high = 0, size
        if include:
            low, high = -windows.before[dim], size + max(stated[dim], 0)
            if op.attribute("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
                high = size + max(0, windows.after[dim])
        inside = ((read >= low) & (read < high)).sum(axis=1)
        counts = counts[..., None] * np.maximum(inside, 1)
    return counts


@gradient("GlobalAveragePool")
def global_average_pool(context: Backward) -> Contributions:
    """For Y = mean over all positions: dX = dY / count, repeated."""
    emit = context.builder
    shape = emit.shape(context.x)
    return [emit.expand(emit.scale(context.dy, 1.0 / math.prod(shape[2:])), shape)]


@gradient("GlobalMaxPool")
def global_max_pool(context: Backward) -> Contributions:
    """For Y = max over all positions: dY in equal shares to the elements that are Y."""
    emit = context.builder
    hit = emit.cast(emit.compare("Equal", context.x, context.y), emit.dtype(context.dy))
    share = emit.div(context.dy, emit.reduce_sum(hit, range(2, emit.rank(hit)), keepdims=True))
    return [emit.mul(hit, share)]


def _p_norm_slope(context: Backward, p: int, spread: Callable[[str], str]) -> str:
    """For y = (Σ |x|ᵖ)^(1/p): dx = sign(x) |x|ᵖ⁻¹ Σ dy y¹⁻ᵖ over the sums that x is in; 0 where y is 0."""
    emit, x, y = context.builder, context.x, context.y
    zero, one = emit.scalar(0.0, y), emit.scalar(1.0, y)
    nothing = emit.compare("Equal", y, zero)
    powered = emit.binary("Pow", emit.where(nothing, one, y), emit.scalar(float(1 - p), y))
    total = spread(emit.where(nothing, zero, emit.mul(context.dy, powered)))
    size = emit.binary("Pow", emit.unary("Abs", x), emit.scalar(float(p - 1), x))
    return emit.mul(emit.mul(emit.unary("Sign", x), size), total)


@gradient("LpPool")
def lp_pool(context: Backward) -> Contributions:
    """For Y = (Σ |x|ᵖ)^(1/p) of each window: dX = sign(x) |x|ᵖ⁻¹ Σ dY Y¹⁻ᵖ over its windows (a ConvTranspose)."""
    emit = context.builder
    windows = _windows(context)
    channels = emit.shape(context.dy)[1]
    dtype = np.asarray(emit.value(emit.scalar(1.0, context.dy))).dtype
    ones = emit.constant(np.ones((channels, 1, *windows.kernel), dtype), f"ones.{channels}")
    shape = emit.shape(context.x)
    p = integer(context.op, "p", 2)
    return [_p_norm_slope(context, p, lambda share: data_gradient(emit, share, ones, shape, windows, channels))]


@gradient("GlobalLpPool")
def global_lp_pool(context: Backward) -> Contributions:
    """For Y = (Σ |x|ᵖ)^(1/p) over all positions: dX = sign(x) |x|ᵖ⁻¹ dY Y¹⁻ᵖ."""
    return [_p_norm_slope(context, integer(context.op, "p", 2), lambda share: share)]
