"""Gradient rules of operators that are a linear map along each dim, known when the graph is built.

Such an operator is y = M x along a dim for a constant matrix M; its gradient is dx = Mᵀ dy along the same dim. M has
few elements in a row (see ``bands``), and is never written out as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from planner.graph.core.attributes import integer, number, text
from planner.graph.core.bands import Band, along
from planner.graph.core.builder import Builder
from planner.graph.core.interpolation import resizing
from planner.graph.core.model import Attribute
from planner.training.gradients.autodiff import Backward, Contributions, gradient


@gradient("Resize", inputs=(0,))
def resize(context: Backward) -> Contributions:
    """Nearest, linear and cubic interpolation are separable: dx = Mᵀ dy along each dim that changes.

    Refused: scales and regions that are not known.
    """
    emit, op = context.builder, context.op
    coordinates, policy = (
        text(op, "coordinate_transformation_mode", "half_pixel"),
        text(op, "keep_aspect_ratio_policy", "stretch"),
    )
    scales = sizes = region = None
    # An operand without elements is absent: until opset 13 there was no other way to leave it out.
    if context.has_input(2) and 0 not in emit.shape(op.inputs[2]):
        scales = emit.known(op, 2, "scales").tolist()
    elif policy != "stretch":
        sizes = emit.known(op, 3, "sizes").tolist()
    if coordinates == "tf_crop_and_resize":
        region = emit.known(op, 1, "region of interest").tolist()
    dx = context.dy
    for dim, band in resizing(op, emit.shape(context.x), emit.shape(context.y), scales, sizes, region).items():
        dx = along(emit, dx, dim, band.transposed, f"resize.{band.rows}x{band.columns}")
    return [dx]


_MOST_RUNS = 8
"""A border of more is a border that goes through the tensor again and again."""


def padded_by(emit: Builder, dy: str, x: Sequence[int], before: Sequence[int], after: Sequence[int], mode: str) -> str:
    """The gradient of a Pad in mode edge, reflect or wrap: every copy's gradient goes back to what was copied."""
    for dim, size in enumerate(x):
        low, high = before[dim], after[dim]
        if not (low or high):
            continue
        start, end = max(0, -low), size - max(0, -high)
        low, high = max(0, low), max(0, high)
        read = np.pad(np.arange(start, end), (low, high), mode=mode)  # type: ignore[call-overload]
        runs = [*_runs(read, 0, low), (low, low + end - start), *_runs(read, low + end - start, len(read))]
        if len(runs) > _MOST_RUNS:
            every = np.arange(len(read))
            copied = Band.of((size, len(read)), read, every, np.ones(len(read)))
            dy = along(emit, dy, dim, copied, f"pad.{mode}.{size}")
        else:
            parts = [_sent_back(emit, dy, dim, size, read[first:last], first) for first, last in runs]
            dy = reduce(emit.add, parts)
    return dy


def _runs(read: np.ndarray, start: int, end: int) -> list[tuple[int, int]]:
    """Stretches of a border in which what is read goes up by one, goes down by one, or stays."""
    runs = []
    while start < end:
        last = start + 1
        if last < end and abs(step := read[last] - read[start]) <= 1:
            while last < end and read[last] - read[last - 1] == step:
                last += 1
        runs.append((start, last))
        start = last
    return runs


def _sent_back(emit: Builder, dy: str, dim: int, size: int, read: np.ndarray, first: int) -> str:
    """The gradients of one run, from ``first`` on, where they belong in a dim of ``size``, and zeros elsewhere."""

    def only(value: int) -> list[int]:
        return [value if axis == dim else 0 for axis in range(emit.rank(dy))]

    ends = [first + len(read) if axis == dim else extent for axis, extent in enumerate(emit.shape(dy))]
    part = emit.slice(dy, only(first), ends)
    if len(read) > 1 and read[0] == read[1]:
        part, read = emit.reduce_sum(part, [dim], keepdims=True), read[:1]
    elif len(read) > 1 and read[0] > read[1]:
        part, read = emit.reverse(part, [dim]), read[::-1]
    return emit.pad(part, only(int(read[0])), only(size - int(read[-1]) - 1))


def _window_sums(emit: Builder, x: str, before: int, after: int) -> str:
    """For each channel the sum of those from ``before`` ahead of it to ``after`` behind it: a Conv over channels.

    Height and width stay dims of their own, so that the Conv may be cut along them.
    """
    shape = emit.shape(x)
    before, after = min(before, shape[1] - 1), min(after, shape[1] - 1)
    image = (shape[0], 1, shape[1], *shape[2:])
    space = len(shape) - 2
    extent = (before + 1 + after, *(1,) * space)
    ones = emit.constant(np.ones((1, 1, *extent), emit.dtype(x).array_dtype), f"ones.1x{extent[0]}")
    stated: dict[str, Attribute] = {"kernel_shape": extent, "pads": (before, *(0,) * space, after, *(0,) * space)}
    operands = [emit.reshape(x, image), ones]
    return emit.reshape(emit.one("Conv", operands, image, emit.dtype(x), hint="sums", attributes=stated), shape)


@gradient("LRN")
def local_response_normalization(context: Backward) -> Contributions:
    """For y = x d^-beta, d = bias + alpha/size Σ x² over a window of channels (Krizhevsky 2012, §3.3).

    dx = dy d^-beta - 2 alpha beta / size x Σ' dy y / d, where Σ' runs over the channels whose window has this one.
    The sums are a Conv over the channels with a kernel of ones.
    """
    emit, op, dy, x = context.builder, context.op, context.dy, context.x
    size, beta = integer(op, "size", 1), number(op, "beta", 0.75)
    share = number(op, "alpha", 1e-4) / size
    before, after = (size - 1) // 2, size // 2
    total = _window_sums(emit, emit.mul(x, x), before, after)
    d = emit.add(emit.scale(total, share), emit.scalar(number(op, "bias", 1.0), x))
    direct = emit.mul(dy, emit.binary("Pow", d, emit.scalar(-beta, x)))
    through = _window_sums(emit, emit.div(emit.mul(dy, context.y), d), after, before)
    return [emit.sub(direct, emit.mul(emit.scale(x, 2.0 * share * beta), through))]


@gradient("CumSum", inputs=(0,))
def cumulative_sum(context: Backward) -> Contributions:
    """For y = running sums of x: dx = running sums of dy the other way round."""
    emit, op = context.builder, context.op
    attributes = {"exclusive": integer(op, "exclusive", 0), "reverse": 1 - integer(op, "reverse", 0)}
    operands = [context.dy, op.inputs[1]]
    return [emit.one("CumSum", operands, emit.shape(context.x), emit.dtype(context.dy), attributes=attributes)]


@gradient("Trilu", inputs=(0,))
def triangle(context: Backward) -> Contributions:
    """For y = a triangle of x: dx = the same triangle of dy."""
    emit, op = context.builder, context.op
    operands = [context.dy, *op.inputs[1:]]
    attributes = {"upper": integer(op, "upper", 1)}
    return [emit.one("Trilu", operands, emit.shape(context.x), emit.dtype(context.dy), attributes=attributes)]


@gradient("Tile", inputs=(0,))
def tile(context: Backward) -> Contributions:
    """For y = x repeated: dx = dy summed over the repetitions."""
    emit = context.builder
    shape, tiled_shape = emit.shape(context.x), emit.shape(context.dy)
    counts = [of_y // of_x for of_y, of_x in zip(tiled_shape, shape, strict=True)]
    split = [size for pair in zip(counts, shape, strict=True) for size in pair]
    wide = emit.reshape(context.dy, tuple(split))
    return [emit.reshape(emit.reduce_sum(wide, range(0, 2 * len(shape), 2)), shape)]


@gradient("DepthToSpace", "SpaceToDepth")
def blocks(context: Backward) -> Contributions:
    """Both are a Reshape, a Transpose and a Reshape: dx is dy through them backwards."""
    emit, op = context.builder, context.op
    size = integer(op, "blocksize", 1)
    n, c, h, w = emit.shape(context.x)
    if op.op_type == "SpaceToDepth":
        inner, perm = (n, c, h // size, size, w // size, size), [0, 3, 5, 1, 2, 4]
    elif text(op, "mode", "DCR") == "DCR":
        inner, perm = (n, size, size, c // size**2, h, w), [0, 3, 4, 1, 5, 2]
    else:
        inner, perm = (n, c // size**2, size, size, h, w), [0, 1, 4, 2, 5, 3]
    wide = emit.reshape(context.dy, tuple(inner[dim] for dim in perm))
    assert math.prod(inner) == n * c * h * w, "blocks do not divide the dims"
    return [emit.reshape(emit.transpose(wide, [perm.index(dim) for dim in range(6)]), (n, c, h, w))]
