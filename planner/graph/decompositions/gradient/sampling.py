"""Images read between their elements: GridSample, AffineGrid, RoiAlign and DeformConv written out.

Each place is a weighted sum of *taps*, elements at whole indices near it: 1 for nearest, 2 a dim for linear, 4 a dim
for cubic interpolation. One GatherND fetches them all, with channels last, so that its gradient is one ScatterND.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer, integers, number, refuse, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Op, Shape
from planner.graph.decompositions.registry import Purpose, stands_for

_CUBIC: Final = -0.75
"""The parameter of Keys' kernel (1981) in ONNX GridSample."""
_POLYNOMIALS: Final[Mapping[str, tuple[int, np.ndarray]]] = {
    "nearest": (0, np.array([[1.0]])),
    "linear": (0, np.array([[1.0, 0.0], [-1.0, 1.0]])),
    "cubic": (
        -1,
        np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0, -3, 3, 0], [0, 2, -2, 0]], np.float64)
        + _CUBIC * np.array([[0, 0, 0, 0], [1, 0, -1, 0], [-2, -1, 2, 1], [1, 1, -1, -1]]),
    ),
}
"""The offset of the first tap, and the taps' weights as polynomials of how far a place is past an element: a row for
each power, a column for each tap."""


@dataclass(frozen=True, slots=True)
class Taps:
    """The reads of places along one dim."""

    index: str
    """int64 [M, taps, places], within the dim."""
    weight: str
    """Of the same shape."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A dim that is read between its elements, and what lies beyond it (ONNX GridSample, ``padding_mode``)."""

    emit: Builder
    size: int
    padding: str
    aligned: bool
    """Whether its borders are the middles of its outermost elements (``align_corners``), or their outer sides."""

    def from_unit(self, at: str) -> str:
        """Places from -1 at one border to 1 at the other, as indices."""
        emit = self.emit
        shifted = emit.add(at, emit.scalar(1.0, at))
        if self.aligned:
            return emit.scale(shifted, (self.size - 1) / 2)
        return emit.scale(emit.sub(emit.scale(shifted, float(self.size)), emit.scalar(1.0, at)), 0.5)

    def taps(self, at: str, mode: str) -> Taps:
        """The taps of places [M, places], which are indices with fractions."""
        emit = self.emit
        start, powers = _POLYNOMIALS[mode]
        if mode == "nearest":
            at = emit.unary("Round", at)
        if mode != "cubic":  # whose taps are brought in one by one, by ONNX Runtime and PyTorch
            at = self._brought_in(at)
        at = emit.unsqueeze(at, [1])
        first = emit.unary("Floor", at)
        ratio = emit.sub(at, first)
        index = emit.add(first, self._along_taps(start + np.arange(powers.shape[1]), at, "offsets"))
        weight = self._along_taps(powers[-1], at, f"{mode}.{len(powers) - 1}")
        for power in reversed(range(len(powers) - 1)):
            weight = emit.add(emit.mul(weight, ratio), self._along_taps(powers[power], at, f"{mode}.{power}"))
        if self.padding == "zeros":
            inside = emit.compare("And", self._at_least(index, 0), emit.unary("Not", self._at_least(index, self.size)))
            weight = emit.where(inside, weight, emit.scalar(0.0, weight))
        else:
            index = self._brought_in(index)
        shape = emit.shape(index)
        return Taps(emit.cast(self._clipped(index), DType.INT64), emit.expand(weight, shape))

    def _along_taps(self, numbers: np.ndarray, template: str, hint: str) -> str:
        shape = [-1 if dim == 1 else 1 for dim in range(self.emit.rank(template))]
        return self.emit.constant(numbers.astype(self.emit.dtype(template).array_dtype).reshape(shape), f"taps.{hint}")

    def _at_least(self, index: str, limit: int) -> str:
        return self.emit.compare("GreaterOrEqual", index, self.emit.scalar(float(limit), index))

    def _clipped(self, at: str) -> str:
        """Places on the border or beyond it get its index, and no gradient, as in PyTorch."""
        emit = self.emit
        above = emit.binary("Max", emit.scalar(0.0, at), at)
        return emit.binary("Min", emit.scalar(float(self.size - 1), at), above)

    def _brought_in(self, at: str) -> str:
        if self.padding == "zeros":
            return at
        if self.padding == "border" or (self.aligned and self.size == 1):
            return self._clipped(at)
        return self._reflected(at)

    def _reflected(self, at: str) -> str:
        """Mirrored at the borders until they lie within."""
        emit = self.emit
        low, high = (0.0, self.size - 1.0) if self.aligned else (-0.5, self.size - 0.5)
        bottom, span = emit.scalar(low, at), emit.scalar(high - low, at)
        distance = emit.unary("Abs", emit.sub(at, bottom))
        operands = [distance, span]
        remainder = emit.one("Mod", operands, emit.shape(at), emit.dtype(at), attributes={"fmod": 1})
        turns = emit.unary("Floor", emit.div(distance, span))
        odd = emit.one("Mod", [turns, emit.scalar(2.0, at)], emit.shape(at), emit.dtype(at), attributes={"fmod": 1})
        is_odd = emit.compare("Equal", odd, emit.scalar(1.0, at))
        mirrored = emit.add(emit.where(is_odd, emit.sub(span, remainder), remainder), bottom)
        outside = emit.compare(
            "Or", emit.compare("Less", at, bottom), emit.compare("Greater", at, emit.scalar(high, at))
        )
        return emit.where(outside, mirrored, at)


def gathered(emit: Builder, image: str, per_dim: Sequence[Taps], samples: str = "") -> str:
    """All taps of all places, each times its weight.

    Args:
        emit: the builder.
        image: [N, C, sizes].
        per_dim: taps of each spatial dim; their places broadcast to one shape.
        samples: the sample that each of the M rows reads, int64 [M]; "": M is N, and each reads its own.

    Returns:
        A tensor [M, taps, places, C].
    """
    count, channels, *sizes = emit.shape(image)
    flat = emit.transpose(emit.reshape(image, (count, channels, math.prod(sizes))), [0, 2, 1])
    index, weight = per_dim[0].index, per_dim[0].weight
    for taps, size in zip(per_dim[1:], sizes[1:], strict=True):
        # Every tap so far with every tap of this dim.
        index = emit.mul(emit.unsqueeze(index, [2]), emit.constant(np.array(size, np.int64), f"int.{size}"))
        index = emit.add(index, emit.unsqueeze(taps.index, [1]))
        weight = emit.mul(emit.unsqueeze(weight, [2]), emit.unsqueeze(taps.weight, [1]))
        rows, before, width, *places = emit.shape(index)
        index, weight = (emit.reshape(name, (rows, before * width, *places)) for name in (index, weight))
    rank = emit.rank(index)
    shape = (*emit.shape(index), channels)
    index = emit.unsqueeze(index, [rank])
    if samples:
        rows_of = emit.reshape(samples, (emit.shape(samples)[0], *(1 for _ in range(rank))))
        index = emit.concat([emit.expand(rows_of, emit.shape(index)), index], rank)
    batched = {} if samples else {"batch_dims": 1}
    values = emit.one("GatherND", [flat, index], shape, emit.dtype(image), attributes=batched)
    return emit.mul(values, emit.unsqueeze(weight, [rank]))


def _stretch(emit: Builder, x: str, dim: int, start: int) -> str:
    """One element of a dim, which goes."""
    starts, ends = [0] * emit.rank(x), list(emit.shape(x))
    starts[dim], ends[dim] = start, start + 1
    return emit.squeeze(emit.slice(x, starts, ends), [dim])


@stands_for("GridSample", purpose=Purpose.GRADIENT)
def grid_sample(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y[n, c, o] = Σ over the taps of grid[n, o] of weight times X[n, c, tap] (Jaderberg et al. 2015, §3.3)."""
    x, grid = op.inputs
    sizes = emit.shape(x)[2:]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(text(op, "mode", "linear"), text(op, "mode", "linear"))
    padding, aligned = text(op, "padding_mode", "zeros"), bool(integer(op, "align_corners", 0))
    last = emit.rank(grid) - 1
    per_dim: list[Taps] = []
    for dim, size in enumerate(sizes):
        axis = Axis(emit, size, padding, aligned)
        # The grid's coordinates are in the order of the last dim first.
        at = emit.cast(_stretch(emit, grid, last, len(sizes) - 1 - dim), emit.dtype(x))
        per_dim.append(axis.taps(axis.from_unit(at), mode))
    summed = emit.reduce_sum(gathered(emit, x, per_dim), [1])
    return (emit.transpose(summed, [0, last, *range(1, last)]),)


@stands_for("AffineGrid", purpose=Purpose.GRADIENT)
def affine_grid(emit: Builder, op: Op) -> tuple[str, ...]:
    """Places of an image under theta [N, d, d+1]: theta times each place's coordinates and 1, from -1 to 1 in each dim.

    Raises:
        UnsupportedError: the image's size is not known.
    """
    theta, (samples, _, *sizes) = op.inputs[0], map(int, emit.known(op, 1, "size"))
    middles = [(2 * np.arange(count) + 1) / count - 1 for count in sizes]
    lines = middles
    if integer(op, "align_corners", 0):
        lines = [
            np.linspace(-1, 1, count) if count > 1 else middle for count, middle in zip(sizes, middles, strict=True)
        ]
    # Coordinates are in the order of the last dim first.
    columns = [column.reshape(-1) for column in np.meshgrid(*lines, indexing="ij")][::-1]
    base = np.stack([*columns, np.ones(math.prod(sizes))], axis=1).astype(emit.dtype(theta).array_dtype)
    places = emit.matmul(emit.constant(base, f"constant.{op.name}.places"), emit.transpose(theta, [0, 2, 1]))
    return (emit.reshape(places, (samples, *sizes, len(sizes))),)


@stands_for("RoiAlign", purpose=Purpose.GRADIENT)
def roi_align(emit: Builder, op: Op) -> tuple[str, ...]:
    """Mean, or maximum, of samples in each bin of each region, linearly interpolated (He et al. 2017, Mask R-CNN, §3).

    The maximum is taken over taps times their weights, as ONNX's reference and runtime do.

    Raises:
        UnsupportedError: the number of samples depends on the regions (sampling_ratio 0).
    """
    x, rois, samples = op.inputs
    ratio = integer(op, "sampling_ratio", 0)
    if ratio <= 0:
        raise refuse(op, "with sampling_ratio 0 the number of samples depends on the regions",
                     hint="export it with a positive sampling_ratio")  # fmt: skip
    _, channels, *sizes = emit.shape(x)
    bins = (integer(op, "output_height", 1), integer(op, "output_width", 1))
    half = text(op, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scaled = emit.scale(rois, number(op, "spatial_scale", 1.0))
    if half:
        scaled = emit.sub(scaled, emit.scalar(0.5, rois))
    count = emit.shape(rois)[0]
    per_dim: list[Taps] = []
    for dim, (size, bin_count) in enumerate(zip(sizes, bins, strict=True)):
        start, end = (emit.slice(scaled, (0, column), (count, column + 1)) for column in (1 - dim, 3 - dim))
        length = emit.sub(end, start)
        if not half:
            length = emit.binary("Max", length, emit.scalar(1.0, length))
        steps = (np.arange(bin_count * ratio) + 0.5) / ratio / bin_count
        shares = emit.constant(steps[None].astype(emit.dtype(rois).array_dtype), f"shares.{bin_count}x{ratio}")
        at = emit.add(start, emit.mul(length, shares))
        inside = emit.compare(
            "And",
            emit.compare("GreaterOrEqual", at, emit.scalar(-1.0, at)),
            emit.compare("LessOrEqual", at, emit.scalar(float(size), at)),
        )
        taps = Axis(emit, size, "border", aligned=True).taps(at, "linear")
        weight = emit.where(emit.unsqueeze(inside, [1]), taps.weight, emit.scalar(0.0, at))
        # The places are a grid: of one dim they are rows, of the other columns.
        across = [3] if dim == 0 else [2]
        per_dim.append(Taps(emit.unsqueeze(taps.index, across), emit.unsqueeze(weight, across)))
    values = gathered(emit, x, per_dim, emit.cast(samples, DType.INT64))
    values = emit.reshape(values, (count, emit.shape(values)[1], bins[0], ratio, bins[1], ratio, channels))
    over = [1, 3, 5]
    if text(op, "mode", "avg") == "avg":
        made_of = emit.scale(emit.reduce_sum(values, over), 1.0 / ratio**2)
    else:
        operands = [values, emit.ints(over, "axes")]
        made_of = emit.one("ReduceMax", operands, (count, *bins, channels), emit.dtype(x), attributes={"keepdims": 0})
    return (emit.transpose(made_of, [0, 3, 1, 2]),)


@stands_for("DeformConv", purpose=Purpose.GRADIENT)
def deform_conv(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = Σ W[m, c, i] mask X[n, c, o stride + i dilation - pad + offset], linearly interpolated (Dai et al. 2017)."""
    x, w, offset, bias, mask = [*op.inputs, "", ""][:5]
    n, channels, *sizes = emit.shape(x)
    filters, _, *kernel = emit.shape(w)
    places = emit.shape(offset)[2:]
    dims, count = len(sizes), math.prod(kernel)
    group, parts = integer(op, "group", 1), integer(op, "offset_group", 1)
    image = emit.reshape(x, (n * parts, channels // parts, *sizes))
    shifts = emit.reshape(offset, (n * parts, count, dims, *places))
    per_dim = [
        Axis(emit, size, "zeros", aligned=True).taps(
            emit.add(_stretch(emit, shifts, 2, dim), _starts(emit, op, dim, tuple(kernel), places, x)), "linear"
        )
        for dim, size in enumerate(sizes)
    ]
    columns = emit.reduce_sum(gathered(emit, image, per_dim), [1])
    if mask:
        columns = emit.mul(columns, emit.reshape(mask, (n * parts, count, *places, 1)))
    spots = math.prod(places)
    columns = emit.transpose(emit.reshape(columns, (n, parts, count, spots, channels // parts)), [0, 3, 1, 4, 2])
    inner = channels // group * count
    columns = emit.transpose(emit.reshape(columns, (n, spots, group, inner)), [0, 2, 1, 3])
    kernels = emit.transpose(emit.reshape(w, (group, filters // group, inner)), [0, 2, 1])
    y = emit.reshape(emit.transpose(emit.matmul(columns, kernels), [0, 1, 3, 2]), (n, filters, *places))
    return (emit.add(y, emit.reshape(bias, (filters, *(1 for _ in places)))) if bias else y,)


def _starts(emit: Builder, op: Op, dim: int, kernel: Shape, places: Shape, template: str) -> str:
    """Where each element of the kernel stands at each place along one dim, without its offset: [1, K, places]."""
    count = len(kernel)
    stride = integers(op, "strides", (1,) * count)[dim]
    dilation = integers(op, "dilations", (1,) * count)[dim]
    pad = integers(op, "pads", (0,) * (2 * count))[dim]
    element = np.indices(kernel)[dim].reshape(1, -1, *(1 for _ in places)) * dilation
    place = np.arange(places[dim]).reshape(1, 1, *(-1 if axis == dim else 1 for axis in range(count))) * stride
    starts = (element + place - pad).astype(emit.dtype(template).array_dtype)
    return emit.constant(starts, f"constant.{op.name}.starts.{dim}")
