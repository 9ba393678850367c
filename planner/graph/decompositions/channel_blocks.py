"""Convolutions of images in which blocks of channels lie together, for which ONNX Runtime has its fastest kernels.

Its own optimizer takes them where filters are constants alone. Here they are laid out in every step: a pass over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, DType, Shape
from planner.graph.decompositions.image_kernels import ImageKernel

DOMAIN: Final = "com.microsoft.nchwc"
_LEAST_WINDOWS: Final = 1024
"""Of all samples, for which filters of many channels are worth to be laid out."""
_MOST_COPIED: Final = 1 << 22
"""Elements of images and results that are there twice where a channel does not have a filter of its own."""
_MOST_PADDED: Final = 64
"""Elements of a kernel up to which a window over an image's border takes no longer than another."""
_ALIGNED: Final = 4
"""What the channels are a multiple of that the runtime brings together."""


def in_blocks(emitter: Emitter, x: str, w: str, image: ImageKernel, bias: str = "") -> str | None:
    """A Conv's result; None where it is not computed faster so, or not at all.

    Args:
        emitter: of the ops.
        x: [samples, channels · group, *sizes].
        w: [kernels, channels, *kernel].
        image: of these; its pads are not negative.
        bias: of the kernels; "" if there is none.
    """
    rank, size, group = len(image.kernel), math.prod(image.kernel), image.group
    if not emitter.block or emitter.dtype(x) is not DType.FLOAT32 or size == 1:
        return None
    if rank == 1:
        rows = {"kernel": 1, "windows": 1, "strides": 1, "dilations": 1, "before": 0, "after": 0}
        of_lines = replace(image, **{name: (row, *getattr(image, name)) for name, row in rows.items()})  # type: ignore[arg-type]
        y = in_blocks(emitter, emitter.unsqueeze(x, [2]), emitter.unsqueeze(w, [2]), of_lines, bias)
        return y and emitter.squeeze(y, [2])
    channels, kernels, windows = image.channels, image.kernels, image.windows_count
    if group == 1:
        fits = channels < emitter.block or channels % emitter.block == 0
        copied = math.prod(emitter.shape(x)) + image.samples * kernels * windows
        is_worth_it = image.samples * windows >= _LEAST_WINDOWS and copied <= _MOST_COPIED
        fits = fits and rank == 2 and kernels % emitter.block == 0
        return _result(emitter, x, w, image, bias) if fits and is_worth_it else None
    pairs = kernels * channels
    if rank != 2 or pairs % _ALIGNED or (pairs != group and bias) or (kernels != group and windows > size):
        return None
    # In the gradient of a filter of each channel, whose kernel is an image, the channels are samples to be added up.
    samples, _, *sizes = emitter.shape(x)
    parts = [emitter.reshape(x, (samples, group, channels, *sizes))] * (kernels // group)
    x = emitter.reshape(emitter.concat(parts, 2), (samples, pairs, *sizes))
    w = emitter.reshape(w, (pairs, 1, *image.kernel))
    y = _result(emitter, x, w, replace(image, channels=1, kernels=pairs, group=pairs), bias)
    return emitter.reduce_sum(emitter.reshape(y, (samples, kernels, channels, *image.windows)), [2])


def _result(emitter: Emitter, x: str, w: str, image: ImageKernel, bias: str = "") -> str:
    """Of images of rank 2, either of one group, or with as many groups as there are channels and kernels."""
    block, size, (samples, channels, *_) = emitter.block, math.prod(image.kernel), emitter.shape(x)
    inner, padding, pads = image.channels, -image.kernels % block, (*image.before, *image.after)
    if size > _MOST_PADDED:
        x, pads = emitter.pad(x, (0, 0, *image.before), (0, 0, *image.after)), (0,) * 4
    if image.group != 1 or channels % block == 0:
        x = _emitted(emitter, "ReorderInput", [x], (samples, channels + -channels % block, *emitter.shape(x)[2:]))
    # Kernels lie together as channels do, and then what they have of a block of channels.
    kernels, together = image.kernels + padding, block if inner % block == 0 else 1
    rows = emitter.reshape(w, (1, image.kernels, inner * size, 1))
    filters = _emitted(emitter, "ReorderInput", [rows], (1, kernels, inner * size, 1))
    if together != 1:
        parts = emitter.reshape(filters, (kernels // block, inner // together, together, size, block))
        filters = emitter.transpose(parts, (0, 1, 3, 2, 4))
    filters = emitter.reshape(filters, (kernels, inner, *image.kernel))
    operands = [x, filters, emitter.pad(bias, (0,), (padding,))] if bias else [x, filters]
    group, shape = 1 if image.group == 1 else kernels, (samples, image.kernels, *image.windows)
    y = _emitted(emitter, "Conv", operands, (samples, kernels, *image.windows), kernel_shape=image.kernel,
                    pads=pads, strides=image.strides, dilations=image.dilations, group=group)  # fmt: skip
    return _emitted(emitter, "ReorderOutput", [y], shape, channels=image.kernels)


def _emitted(emitter: Emitter, op_type: str, inputs: Sequence[str], shape: Shape, **stated: Attribute) -> str:
    return emitter.emit(op_type, inputs, [shape], [DType.FLOAT32], attributes=stated, domain=DOMAIN)[0]
