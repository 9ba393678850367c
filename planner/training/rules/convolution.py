"""Gradient rules of Conv and ConvTranspose, any number of spatial dims.

With stride s, dilation d and padding p, y[n,m,o] = Σ x[n,c,o*s + i*d - p] w[m,c,i]. The gradients are the two other
contractions of the same three tensors (Dumoulin and Visin, "A guide to convolution arithmetic", 2016, §4; SPAA'21 §2
writes the loops out).
"""

from __future__ import annotations

from planner.graph.core.attributes import integer
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute, Shape
from planner.opdefs.windows import Scattering
from planner.training.gradients.autodiff import Backward, Contributions, gradient
from planner.training.rules.windows import Windows, transposed_windows, windows_of


@gradient("Conv")
def conv(context: Backward) -> Contributions:
    """For Y = Conv(X, W, B).

    - dX[n,c,o*s + i*d - p] = Σ dY[n,m,o] W[m,c,i]: ConvTranspose of dY with the same kernels; elements at the end of
      X that no window reads get their zeros by output_padding. Its pads are equal, for want of other CUDA kernels.
    - dW[m,c,i] = Σ X[n,c,o*s + i*d - p] dY[n,m,o]: Conv of X over channels as samples with dY as kernels, stride and
      dilation exchanged; its output is transposed. With groups the samples are one spatial dim more.
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
    scattered_shape = tuple(size - first - last for size, first, last in zip(shape, before, after, strict=True))
    scattered = emit.one("ConvTranspose", [dy, w], scattered_shape, emit.dtype(dy), attributes=stated)
    return emit.pad(scattered, before, after)


def _weight_gradient(emit: Builder, x: str, dy: str, shape: tuple[int, ...], windows: Windows, group: int) -> str:
    """The gradient of the kernels, of this shape [M, C/group, kernel].

    Of x only what windows of one element read is taken along, and nothing behind the last window: there would be more
    products than kernels have elements.
    """
    picked = windows.picked
    x = emit.every(x, {dim + 2: windows.strides[dim] for dim in picked})
    windows = windows.without_strides(picked)
    x = _read(emit, x, windows, windows.dilations)
    samples, channels, *sizes = emit.shape(x)
    spatial = list(range(2, emit.rank(x)))
    swapped = [1, 0, *spatial]
    kernels, positions = emit.transpose(dy, swapped), emit.shape(dy)[2:]
    sample_dims: tuple[int, ...] = ()
    if group == 1:
        turned = emit.transpose(x, swapped)
    else:
        # Channel c of group g becomes sample c, and the samples a spatial dim with one window: as channels of a group
        # they would be cut with the groups alone.
        sample_dims = (1,)
        split = emit.reshape(x, (samples, group, channels // group, *sizes))
        turned = emit.transpose(split, [2, 1, 0, *(dim + 1 for dim in spatial)])
        kernels = emit.reshape(kernels, (shape[0], 1, samples, *positions))
    stated: dict[str, Attribute] = {"kernel_shape": emit.shape(kernels)[2:]}
    if any(step != 1 for step in windows.dilations):
        stated["strides"] = (*sample_dims, *windows.dilations)
    if any(step != 1 for step in windows.strides):
        stated["dilations"] = (*sample_dims, *windows.strides)
    if any(windows.pads):
        none = (0,) * len(sample_dims)
        stated["pads"] = (*none, *windows.before, *none, *windows.pads[len(sizes) :])
    if group != 1:
        stated["group"] = group
    conv_shape = (shape[1], shape[0], *sample_dims, *shape[2:])
    full = emit.one("Conv", [turned, kernels], conv_shape, emit.dtype(x), attributes=stated)
    return emit.transpose(emit.reshape(full, (shape[1], shape[0], *shape[2:])), swapped)


def _read(emit: Builder, x: str, windows: Windows, steps: Shape) -> str:
    """Without what lies behind the last window, where a Conv with these strides would find windows."""
    ends = (-width if width >= step else 0 for width, step in zip(windows.unreached, steps, strict=True))
    return emit.pad(x, (0,) * emit.rank(x), (0, 0, *ends))


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
        read = _read(emit, dy, windows, windows.strides)
        dx = emit.one("Conv", [read, w], emit.shape(x), emit.dtype(dy), attributes=stated)
    if context.wanted[1]:
        dw = _weight_gradient(emit, dy, x, emit.shape(w), windows, group)
    if context.has_input(2) and context.wanted[2]:
        db = emit.reduce_sum(dy, [dim for dim in range(emit.rank(dy)) if dim != 1])
    return [dx, dw, db]
