"""Gradient rules of Conv and ConvTranspose, any number of spatial dims.

With stride s, dilation d and padding p, y[n,m,o] = Σ x[n,c,o*s + i*d - p] w[m,c,i]. The gradients are the two other
contractions of the same three tensors (Dumoulin and Visin, "A guide to convolution arithmetic", 2016, §4; SPAA'21 §2
writes the loops out).
"""

from __future__ import annotations

from planner.graph.attributes import integer
from planner.graph.builder import Builder
from planner.graph.model import Attribute
from planner.opdefs.windows import Scattering
from planner.training.gradients.autodiff import Backward, Contributions, gradient
from planner.training.rules.windows import Windows, transposed_windows, windows_of


@gradient("Conv")
def conv(context: Backward) -> Contributions:
    """For Y = Conv(X, W, B).

    - dX[n,c,o*s + i*d - p] = Σ dY[n,m,o] W[m,c,i]: ConvTranspose of dY with the same kernels; elements at the end of
      X that no window reads get their zeros by output_padding. Its pads are equal, for want of other CUDA kernels.
    - dW[m,c,i] = Σ X[n,c,o*s + i*d - p] dY[n,m,o]: Conv of X over channels as samples with dY as kernels, stride and
      dilation exchanged; its output is transposed, and cut where strides leave elements over.
    - dB = Σ dY over samples and positions.
    """
    emit, op = context.builder, context.op
    x, w = op.inputs[:2]
    dy = context.dy
    windows = windows_of(op, emit.shape(w)[2:], emit.shape(x)[2:], emit.shape(dy)[2:])
    group = integer(op, "group", 1)
    dx = data_gradient(emit, dy, w, emit.shape(x), windows, group) if context.wanted[0] else None
    dw = _weight_gradient(emit, x, dy, emit.shape(w), windows, group) if context.wanted[1] else None
    db = None
    if context.has_input(2) and context.wanted[2]:
        db = emit.reduce_sum(dy, [dim for dim in range(emit.rank(dy)) if dim != 1])
    return [dx, dw, db]


def data_gradient(emit: Builder, dy: str, w: str, shape: tuple[int, ...], windows: Windows, group: int) -> str:
    """Send every window's gradient back to the elements that it read; the result has this shape."""
    dims = [Scattering.of(*width) for width in zip(windows.before, windows.after, windows.strides, strict=True)]
    stated: dict[str, Attribute] = {"kernel_shape": windows.kernel, "strides": windows.strides}
    if any(form.pad for form in dims):
        stated["pads"] = (*(form.pad for form in dims),) * 2
    if any(step != 1 for step in windows.dilations):
        stated["dilations"] = windows.dilations
    if any(form.output_padding for form in dims):
        stated["output_padding"] = tuple(form.output_padding for form in dims)
    if group != 1:
        stated["group"] = group
    changes = [tuple(zeros - cut for zeros, cut in zip(form.zeros, form.cut, strict=True)) for form in dims]
    before, after = ((0, 0, *(widths[end] for widths in changes)) for end in (0, 1))
    made = tuple(size - first - last for size, first, last in zip(shape, before, after, strict=True))
    scattered = emit.one("ConvTranspose", [dy, w], made, emit.dtype(dy), attributes=stated)
    return emit.pad(scattered, before, after)


def _weight_gradient(emit: Builder, x: str, dy: str, shape: tuple[int, ...], windows: Windows, group: int) -> str:
    """The gradient of the kernels, of this shape [M, C/group, kernel].

    Of x only what windows of one element read is taken along: rows that strides leave out would be multiplied as well,
    and their products cut off.
    """
    picked = windows.picked
    x = emit.every(x, {dim + 2: windows.strides[dim] for dim in picked})
    windows = windows.without_strides(picked)
    samples, channels, *sizes = emit.shape(x)
    spatial = list(range(2, emit.rank(x)))
    swapped = [1, 0, *spatial]
    if group == 1:
        turned = emit.transpose(x, swapped)
    else:
        # Channel c of group g becomes sample c; the group's samples become the channels that its kernels read.
        split = emit.reshape(x, (samples, group, channels // group, *sizes))
        turned = emit.transpose(split, [2, 1, 0, *(dim + 1 for dim in spatial)])
        turned = emit.reshape(turned, (channels // group, group * samples, *sizes))
    kernels = emit.transpose(dy, swapped)
    positions = emit.shape(dy)[2:]
    made = tuple(
        (size + before + max(0, after) - (position - 1) * stride - 1) // dilation + 1
        for size, before, after, position, stride, dilation in zip(
            sizes, windows.before, windows.after, positions, windows.strides, windows.dilations, strict=True
        )
    )
    stated: dict[str, Attribute] = {"kernel_shape": positions}
    if any(step != 1 for step in windows.dilations):
        stated["strides"] = windows.dilations
    if any(step != 1 for step in windows.strides):
        stated["dilations"] = windows.strides
    if any(windows.pads):
        stated["pads"] = windows.pads
    if group != 1:
        stated["group"] = group
    full = emit.one("Conv", [turned, kernels], (shape[1], shape[0], *made), emit.dtype(x), attributes=stated)
    cut = emit.slice(full, (0,) * len(shape), (shape[1], shape[0], *shape[2:]))
    return emit.transpose(cut, swapped)


@gradient("ConvTranspose")
def conv_transpose(context: Backward) -> Contributions:
    """For Y = ConvTranspose(X, W, B), the data gradient of a Conv that takes Y to X with the same kernels.

    dX = that Conv of dY; dW = its weight gradient, with dY as its input and X as its output's gradient; dB = Σ dY over
    samples and positions.
    """
    emit, op, dy = context.builder, context.op, context.dy
    x, w = op.inputs[:2]
    group = integer(op, "group", 1)
    windows = transposed_windows(op, emit.shape(w)[2:], emit.shape(x)[2:], emit.shape(dy)[2:])
    dx = dw = db = None
    if context.wanted[0]:
        stated: dict[str, Attribute] = {"kernel_shape": windows.kernel, "strides": windows.strides}
        if any(windows.pads):
            stated["pads"] = windows.pads
        if any(step != 1 for step in windows.dilations):
            stated["dilations"] = windows.dilations
        if group != 1:
            stated["group"] = group
        read = emit.pad(dy, (0,) * emit.rank(dy), (0, 0, *(-width for width in windows.unreached)))
        dx = emit.one("Conv", [read, w], emit.shape(x), emit.dtype(dy), attributes=stated)
    if context.wanted[1]:
        dw = _weight_gradient(emit, dy, x, emit.shape(w), windows, group)
    if context.has_input(2) and context.wanted[2]:
        db = emit.reduce_sum(dy, [dim for dim in range(emit.rank(dy)) if dim != 1])
    return [dx, dw, db]
