"""Gradient rules of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.graph.core.attributes import integer, integers
from planner.graph.core.bands import Band, along
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute, DType, Shape
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
    X, padded with a very low value, is unfolded into the K elements of each window (``Unfolding``); ArgMax over them
    gives the first hit; dY is put there, and folded back.
    """
    emit, dy = context.builder, context.dy
    samples, channels, *positions = emit.shape(dy)
    windows = _windows(context).within(emit.shape(context.x)[2:], tuple(positions))
    unfolding = Unfolding.of(emit, emit.shape(context.x), tuple(positions), windows, context.x)
    count = math.prod(windows.kernel)
    folded = unfolding.unfolded(emit, context.x, _very_low(emit.dtype(dy)))
    elements = emit.reshape(folded, (samples, channels, count, *positions))
    hit = emit.one(
        "ArgMax", [elements], (samples, channels, 1, *positions), DType.INT64, attributes={"axis": 2, "keepdims": 1}
    )
    range_of_k = np.arange(count, dtype=np.int64).reshape(1, 1, count, *(1 for _ in positions))
    first = emit.compare("Equal", hit, emit.constant(range_of_k, f"range.{count}"))
    spread = emit.where(first, emit.unsqueeze(dy, [2]), emit.scalar(0.0, dy))
    return [unfolding.folded(emit, emit.reshape(spread, emit.shape(folded)))]


@dataclass(frozen=True, slots=True)
class Unfolding:
    """Windows of [N, C, sizes] as [N, C*K, positions], and back.

    By a grouped Conv with one-hot kernels. Their C*K*K elements are too many where windows are large and few: then a
    band for each dim picks what windows read (``bands``).
    """

    shape: Shape
    positions: Shape
    windows: Windows
    one_hot: str | None
    """[C*K, 1, kernel]: kernel k of each channel picks element k of the window. None: by bands."""

    @classmethod
    def of(cls, emit: Builder, shape: Shape, positions: Shape, windows: Windows, prototype: str) -> Unfolding:
        """Of a tensor of this shape, whose dtype is that of ``prototype``."""
        channels, count = shape[1], math.prod(windows.kernel)
        one_hot = None
        if channels * count**2 <= math.prod(shape):
            single = np.eye(count, dtype=emit.dtype(prototype).array_dtype).reshape(count, 1, *windows.kernel)
            kernels = np.tile(single, (channels, 1, *(1 for _ in windows.kernel)))
            one_hot = emit.constant(kernels, f"one_hot.{channels}x{count}")
        return cls(shape, positions, windows, one_hot)

    def unfolded(self, emit: Builder, x: str, border: float) -> str:
        """The elements of each window; ``border`` in the padding."""
        windows = self.windows
        padded = emit.pad(x, (0, 0, *windows.before), (0, 0, *windows.after), border)
        shape = (self.shape[0], self.shape[1] * math.prod(windows.kernel), *self.positions)
        if self.one_hot is None:
            for dim, band in enumerate(self._bands()):
                padded = along(emit, padded, dim + 2, band, "windows")
            apart = [size for pair in zip(self.positions, windows.kernel, strict=True) for size in pair]
            wide = emit.reshape(padded, (*self.shape[:2], *apart))
            return emit.reshape(emit.transpose(wide, self._order), shape)
        stated: dict[str, Attribute] = {
            "group": self.shape[1],
            "kernel_shape": windows.kernel,
            "strides": windows.strides,
        }
        if any(step != 1 for step in windows.dilations):
            stated["dilations"] = windows.dilations
        return emit.one("Conv", [padded, self.one_hot], shape, emit.dtype(x), hint="windows", attributes=stated)

    def folded(self, emit: Builder, elements: str) -> str:
        """The sum of what the elements of windows are, where they are read from."""
        windows = self.windows
        if self.one_hot is not None:
            return data_gradient(emit, elements, self.one_hot, self.shape, windows, self.shape[1])
        wide = emit.reshape(elements, (*self.shape[:2], *windows.kernel, *self.positions))
        wide = emit.transpose(wide, [self._order.index(dim) for dim in range(len(self._order))])
        lines = [width * count for width, count in zip(windows.kernel, self.positions, strict=True)]
        padded = emit.reshape(wide, (*self.shape[:2], *lines))
        for dim, band in enumerate(self._bands()):
            padded = along(emit, padded, dim + 2, band.transposed, "windows")
        before, after = ((0, 0, *(-width for width in widths)) for widths in (windows.before, windows.after))
        return emit.pad(padded, before, after)

    @property
    def _order(self) -> list[int]:
        """From a dim of positions before each one of the window to the window's before those of positions."""
        rank = len(self.positions)
        return [0, 1, *range(3, 2 * rank + 2, 2), *range(2, 2 * rank + 2, 2)]

    def _bands(self) -> list[Band]:
        """Of each dim: from what is padded to the elements of its windows, one after the other."""
        bands = []
        for dim, places in enumerate(self.windows.places(self.positions)):
            size = self.shape[dim + 2] + self.windows.before[dim] + self.windows.after[dim]
            column = places.ravel() + self.windows.before[dim]
            bands.append(Band.of((column.size, size), np.arange(column.size), column, np.ones(column.size)))
        return bands


@gradient("Col2Im", inputs=(0,))
def col2im(context: Backward) -> Contributions:
    """For Y = blocks added up where they lie: dX = the blocks of dY."""
    emit, op, dy = context.builder, context.op, context.dy
    kernel = tuple(map(int, emit.known(op, 2, "block_shape")))
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
    unfolding = Unfolding.of(emit, emit.shape(dy), positions, windows, dy)
    return [emit.reshape(unfolding.unfolded(emit, dy, 0.0), emit.shape(context.x))]


def _very_low(dtype: DType) -> float:
    """Minus the largest power of two: it survives rounding to fewer mantissa bits (TF32), where the lowest finite
    number would become -inf, and 0 * -inf is NaN.
    """
    exponents = {DType.FLOAT16: 15, DType.FLOAT64: 1023}
    return -(2.0 ** exponents.get(dtype, 127))


def _to_every_element(emit: Builder, share: str, shape: Shape, windows: Windows) -> str:
    """[N, C, sizes]: each element's sum of what the windows that read it have.

    By a grouped ConvTranspose with kernels of ones; where these have more elements than the result, by a band for each
    dim.
    """
    channels, positions = shape[1], emit.shape(share)[2:]
    windows = windows.within(shape[2:], positions)
    if channels * math.prod(windows.kernel) <= math.prod(shape):
        kernels = np.ones((channels, 1, *windows.kernel), emit.dtype(share).array_dtype)
        return data_gradient(emit, share, emit.constant(kernels, f"ones.{channels}"), shape, windows, channels)
    for dim, places in enumerate(windows.places(positions)):
        window = np.repeat(np.arange(len(places)), places.shape[1])
        inside = (places.ravel() >= 0) & (places.ravel() < shape[dim + 2])
        row, column = places.ravel()[inside], window[inside]
        band = Band.of((shape[dim + 2], positions[dim]), row, column, np.ones(row.size))
        share = along(emit, share, dim + 2, band, "share")
    return share


@gradient("AveragePool")
def average_pool(context: Backward) -> Contributions:
    """For Y = mean of each window: dY / count goes to each of its elements.

    The count leaves out padding, unless count_include_pad says
    otherwise, and always what ceil_mode adds beyond it.
    """
    emit, op, dy = context.builder, context.op, context.dy
    windows = _windows(context)
    counts = _counts(context, windows)
    if counts.min() == counts.max():
        share = emit.scale(dy, 1.0 / float(counts.flat[0]))
    else:
        weights = emit.constant(
            (1.0 / counts).astype(emit.dtype(dy).array_dtype)[None, None], f"constant.{op.name}.shares"
        )
        share = emit.mul(dy, weights)
    return [_to_every_element(emit, share, emit.shape(context.x), windows)]


def _counts(context: Backward, windows: Windows) -> np.ndarray:
    """How many elements each window averages."""
    emit, op = context.builder, context.op
    include = integer(op, "count_include_pad", 0)
    stated = integers(op, "pads", (0,) * (2 * len(windows.kernel)))[len(windows.kernel) :]
    counts = np.ones((), np.int64)
    places = windows.places(emit.shape(context.dy)[2:])
    for dim, (size, read) in enumerate(zip(emit.shape(context.x)[2:], places, strict=True)):
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
    zero, unit = emit.scalar(0.0, y), emit.scalar(1.0, y)
    is_zero = emit.compare("Equal", y, zero)
    powered = emit.binary("Pow", emit.where(is_zero, unit, y), emit.scalar(float(1 - p), y))
    total = spread(emit.where(is_zero, zero, emit.mul(context.dy, powered)))
    size = emit.binary("Pow", emit.unary("Abs", x), emit.scalar(float(p - 1), x))
    return emit.mul(emit.mul(emit.unary("Sign", x), size), total)


@gradient("LpPool")
def lp_pool(context: Backward) -> Contributions:
    """For Y = (Σ |x|ᵖ)^(1/p) of each window: dX = sign(x) |x|ᵖ⁻¹ Σ dY Y¹⁻ᵖ over its windows (a ConvTranspose)."""
    emit = context.builder
    windows = _windows(context)
    shape, p = emit.shape(context.x), integer(context.op, "p", 2)
    return [_p_norm_slope(context, p, lambda share: _to_every_element(emit, share, shape, windows))]


@gradient("GlobalLpPool")
def global_lp_pool(context: Backward) -> Contributions:
    """For Y = (Σ |x|ᵖ)^(1/p) over all positions: dX = sign(x) |x|ᵖ⁻¹ dY Y¹⁻ᵖ."""
    return [_p_norm_slope(context, integer(context.op, "p", 2), lambda share: share)]
