"""Convolutions of few windows, as the gradients of filters are, whose kernel is an image, with samples as channels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from planner.graph.core.attributes import integer, integers
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op, Shape

LEAST_OPSET: Final = 13
"""From here on pads and axes are inputs, as they are written for devices; worker models have no older one."""
OF_PRODUCTS: Final = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
"""What devices have products of."""


@dataclass(frozen=True, slots=True)
class ImageKernel:
    """A Conv of [samples, channels · group, *sizes] with kernels [kernels, channels, *kernel]."""

    samples: int
    channels: int
    kernels: int
    group: int
    kernel: Shape
    windows: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape
    """Pads."""

    @classmethod
    def of(cls, emitter: Emitter, op: Op) -> ImageKernel | None:
        """An op's form; None if its pads are not stated, or nothing is computed."""
        x, w = op.inputs[:2]
        if op.attribute("auto_pad") not in (None, "NOTSET") or emitter.dtype(x) not in OF_PRODUCTS:
            return None
        samples, _, *sizes = emitter.shape(x)
        kernels, channels, *kernel = emitter.shape(w)
        rank = len(kernel)
        strides, dilations = (integers(op, name, (1,) * rank) for name in ("strides", "dilations"))
        pads = integers(op, "pads", (0,) * (2 * rank))
        padded = [sum(width) for width in zip(sizes, pads[:rank], pads[rank:], strict=True)]
        spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
        windows = tuple((size - span) // stride + 1 for size, span, stride in zip(padded, spans, strides, strict=True))
        if min(samples, channels, kernels, *windows) < 1:
            return None
        group = integer(op, "group", 1)
        return cls(samples, channels, kernels, group, tuple(kernel), windows, tuple(strides), tuple(dilations),
                   tuple(pads[:rank]), tuple(pads[rank:]))  # fmt: skip

    @property
    def windows_overlap(self) -> bool:
        """True if what the product of one window reads all others read as well."""
        dims = zip(self.windows, self.strides, self.kernel, self.dilations, strict=True)
        return all((count - 1) * stride <= (size - 1) * step for count, stride, size, step in dims)

    @property
    def windows_count(self) -> int:
        """Elements of the gradient of one filter's channel."""
        return math.prod(self.windows)

    def starts(self) -> Iterator[tuple[int, ...]]:
        """The beginning of each window in the padded image, in the order of the result's elements."""
        for window in product(*map(range, self.windows)):
            yield tuple(index * stride for index, stride in zip(window, self.strides, strict=True))
