"""Convolution and pooling in NumPy, for any rank, in any floating point.

The stock runtime has no float64 kernels for most of them, and ONNX's reference evaluator takes seconds for one layer.
Attributes are as the ONNX operators define them; ``pads`` are all the starts, then all the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from planner.graph.core.attributes import integer, integers
from planner.graph.core.model import Op
from planner.runtime.judge.kernel_arguments import OtherFormError

_CHUNK_ELEMENTS: Final = 2**25
"""No intermediate array of windows is much larger."""


def explicit_pads(op: Op, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """The pads of a convolution or a pool, ``auto_pad`` resolved (ONNX operator spec, Conv)."""
    rank = len(spatial)
    mode = op.attribute("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return integers(op, "pads", (0,) * 2 * rank) if mode == "NOTSET" else (0,) * 2 * rank
    strides, dilations = integers(op, "strides", (1,) * rank), integers(op, "dilations", (1,) * rank)
    before, after = [], []
    for size, window, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return (*before, *after)


def padded(x: np.ndarray, pads: Sequence[int], fill: float) -> np.ndarray:
    """An array [N, C, ...] with borders around its spatial dims; a negative pad cuts off."""
    rank = x.ndim - 2
    cut = tuple(slice(max(0, -pads[dim]), x.shape[2 + dim] - max(0, -pads[rank + dim])) for dim in range(rank))
    widths = [(0, 0), (0, 0), *((max(0, pads[dim]), max(0, pads[rank + dim])) for dim in range(rank))]
    return np.pad(x[(slice(None), slice(None), *cut)], widths, constant_values=fill)


def windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> np.ndarray:
    """A view [N, C, outputs..., kernel...] of a padded array.

    Raises:
        OtherFormError: the window is larger than the array: what the runtime makes of that is its own.
    """
    rank = len(kernel)
    spans = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
    if any(span > extent for span, extent in zip(spans, x.shape[2:], strict=True)):
        raise OtherFormError(f"a window of {spans} over {x.shape[2:]}")
    view = sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
    steps = (*(slice(None, None, stride) for stride in strides), *(slice(None, None, d) for d in dilations))
    strided: np.ndarray = view[(slice(None), slice(None), *steps)]
    return strided


def conv(op: Op, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Conv: windows as rows of a matrix, times the weights (im2col), group by group and chunk by chunk."""
    kernel = w.shape[2:]
    rank = len(kernel)
    view = windows(
        padded(x, explicit_pads(op, x.shape[2:], kernel), 0.0),
        kernel,
        integers(op, "strides", (1,) * rank),
        integers(op, "dilations", (1,) * rank),
    )
    groups = integer(op, "group", 1)
    outputs, inner = w.shape[0] // groups, w.shape[1]
    y = np.empty((x.shape[0], w.shape[0], *view.shape[2 : 2 + rank]), x.dtype)
    batch = max(1, _CHUNK_ELEMENTS // max(1, inner * prod(kernel) * prod(y.shape[2:])))
    contracted = (1, *range(2 + rank, 2 + 2 * rank))
    for group in range(groups):
        mine = w[group * outputs : (group + 1) * outputs]
        for first in range(0, x.shape[0], batch):
            part = view[first : first + batch, group * inner : (group + 1) * inner]
            terms = np.tensordot(part, mine, axes=(contracted, (1, *range(2, 2 + rank))))
            y[first : first + batch, group * outputs : (group + 1) * outputs] = np.moveaxis(terms, -1, 1)
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def conv_transpose(op: Op, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """ConvTranspose: for every kernel position a matrix product, added where it belongs."""
    kernel = w.shape[2:]
    rank = len(kernel)
    strides, dilations = integers(op, "strides", (1,) * rank), integers(op, "dilations", (1,) * rank)
    extra = integers(op, "output_padding", (0,) * rank)
    spatial = x.shape[2:]
    groups = integer(op, "group", 1)
    full = [
        (size - 1) * stride + (window - 1) * dilation + 1 + addition
        for size, stride, window, dilation, addition in zip(spatial, strides, kernel, dilations, extra, strict=True)
    ]
    starts, sizes = _transposed_frame(op, full, spatial, strides)
    y = np.zeros((x.shape[0], w.shape[1] * groups, *full), x.dtype)
    inner, outputs = x.shape[1] // groups, w.shape[1]
    flat = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1], -1)
    for group in range(groups):
        source = flat[:, group * inner : (group + 1) * inner]
        matrices = w[group * inner : (group + 1) * inner].reshape(inner, outputs, -1)
        for number, position in enumerate(product(*map(range, kernel))):
            matrix = matrices[:, :, number]
            terms = np.matmul(matrix.T, source).reshape(x.shape[0], outputs, *spatial)
            place = tuple(
                slice(p * dilation, p * dilation + (size - 1) * stride + 1, stride)
                for p, dilation, size, stride in zip(position, dilations, spatial, strides, strict=True)
            )
            y[(slice(None), slice(group * outputs, (group + 1) * outputs), *place)] += terms
    # A negative pad asks for more than the kernels reach.
    short = [max(0, start + size - reach) for start, size, reach in zip(starts, sizes, full, strict=True)]
    y = padded(y, (*(max(0, -start) for start in starts), *short), 0.0)
    frame = tuple(slice(max(0, start), max(0, start) + size) for start, size in zip(starts, sizes, strict=True))
    y = y[(slice(None), slice(None), *frame)]
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def _transposed_frame(
    op: Op, full: Sequence[int], spatial: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Where the result begins in the sum of all kernels, and its sizes (ONNX operator spec, ConvTranspose)."""
    rank = len(full)
    mode = op.attribute("auto_pad", "NOTSET")
    wanted = integers(op, "output_shape", ())[-rank:]
    if mode in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    if not wanted:
        pads = integers(op, "pads", (0,) * 2 * rank) if mode == "NOTSET" else (0,) * 2 * rank
        return list(pads[:rank]), [size - pads[dim] - pads[rank + dim] for dim, size in enumerate(full)]
    totals = [size - want for size, want in zip(full, wanted, strict=True)]
    starts = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
    return starts, list(wanted)


def _pool_frame(op: Op, spatial: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Kernel, strides, dilations, pads as stated, and pads enlarged at the ends to what ``ceil_mode`` reaches."""
    kernel = integers(op, "kernel_shape", ())
    rank = len(kernel)
    strides, dilations = integers(op, "strides", (1,) * rank), integers(op, "dilations", (1,) * rank)
    pads = explicit_pads(op, spatial, kernel)
    ends = list(pads[rank:])
    if op.attribute("ceil_mode", 0):
        for dim in range(rank):
            span = (kernel[dim] - 1) * dilations[dim] + 1
            room = spatial[dim] + pads[dim] + pads[rank + dim] - span
            count = -(-room // strides[dim]) + 1
            # A window that would begin in the padding at the end is left out.
            if (count - 1) * strides[dim] >= spatial[dim] + pads[dim]:
                count -= 1
            ends[dim] += max(0, (count - 1) * strides[dim] - room)
    return kernel, strides, dilations, pads, (*pads[:rank], *ends)


def max_pool(op: Op, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MaxPool: values, and the first place of each in the flat input, its dims in the order of ``storage_order``."""
    kernel, strides, dilations, _, pads = _pool_frame(op, x.shape[2:])
    rank = len(kernel)
    lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    view = windows(padded(x, pads, lowest), kernel, strides, dilations)
    flat = view.reshape(*view.shape[: 2 + rank], -1)
    first = flat.argmax(axis=-1)
    values = np.take_along_axis(flat, first[..., None], axis=-1)[..., 0]
    offsets = np.unravel_index(first, kernel)
    place = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *(1,) * rank)
    for dim in reversed(range(rank)) if op.attribute("storage_order", 0) else range(rank):
        begin = np.arange(view.shape[2 + dim]) * strides[dim] - pads[dim]
        begin = begin.reshape(-1, *(1,) * (rank - dim - 1))
        place = place * x.shape[2 + dim] + begin + offsets[dim] * dilations[dim]
    return values, place.astype(np.int64)


def average_pool(op: Op, x: np.ndarray) -> np.ndarray:
    """AveragePool: sums of windows, by the number of elements that count."""
    kernel, strides, dilations, stated, pads = _pool_frame(op, x.shape[2:])
    rank = len(kernel)
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    sums = windows(padded(x, pads, 0.0), kernel, strides, dilations).sum(axis=axes)
    counted = np.ones((1, 1, *x.shape[2:]))
    if op.attribute("count_include_pad", 0):
        counted = padded(counted, stated, 1.0)
        pads = (*(0,) * rank, *(pads[rank + dim] - stated[rank + dim] for dim in range(rank)))
    counts = windows(padded(counted, pads, 0.0), kernel, strides, dilations).sum(axis=axes)
    averages: np.ndarray = (sums / counts).astype(x.dtype)
    return averages


def lp_pool(op: Op, x: np.ndarray) -> np.ndarray:
    """LpPool: the p-norm of each window; padding is 0 and adds nothing."""
    kernel, strides, dilations, _, pads = _pool_frame(op, x.shape[2:])
    rank = len(kernel)
    power = integer(op, "p", 2)
    view = windows(padded(np.abs(x) ** power, pads, 0.0), kernel, strides, dilations)
    norms: np.ndarray = view.sum(axis=tuple(range(2 + rank, 2 + 2 * rank))) ** (1 / power)
    return norms


def max_unpool(op: Op, x: np.ndarray, places: np.ndarray, stated: np.ndarray | None) -> np.ndarray:
    """MaxUnpool: zeros, and each value at its place in the flat output, whose size may be stated."""
    kernel = integers(op, "kernel_shape", ())
    rank = len(kernel)
    strides, pads = integers(op, "strides", (1,) * rank), integers(op, "pads", (0,) * 2 * rank)
    follows = [
        (x.shape[2 + dim] - 1) * strides[dim] + kernel[dim] - pads[dim] - pads[rank + dim] for dim in range(rank)
    ]
    y = np.zeros((*x.shape[:2], *follows) if stated is None else tuple(int(size) for size in stated), x.dtype)
    y.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    return y
