"""Windows of a convolution or a pooling: strides, dilations, pads, worked out from the sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from planner.graph.core.attributes import integers, refuse, text
from planner.graph.core.model import Op, Shape


@dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows over the spatial dims; one entry for each.

    Window ``o`` reads ``x[o*stride + i*dilation - before]`` for ``i < kernel``; outside of x there is padding.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    """Padding before the first element."""
    after: Shape
    """Padding after the last element that the last window reaches; negative where it stops short of the end."""

    @property
    def pads(self) -> tuple[int, ...]:
        """As ONNX writes them; what is not reached is not padded."""
        return (*self.before, *(max(0, width) for width in self.after))

    @property
    def unreached(self) -> tuple[int, ...]:
        """How many elements at the end no window reads."""
        return tuple(max(0, -width) for width in self.after)

    def places(self, positions: Shape) -> list[np.ndarray]:
        """Of each dim [positions, kernel]: where windows read; below 0 and beyond the end in padding."""
        return [
            np.arange(count)[:, None] * stride + np.arange(width) * step - before
            for count, width, stride, step, before in zip(
                positions, self.kernel, self.strides, self.dilations, self.before, strict=True
            )
        ]

    def within(self, sizes: Shape, positions: Shape) -> Windows:
        """Without first and last elements that lie in the padding of every window."""
        cut = []
        for dim, (size, read) in enumerate(zip(sizes, self.places(positions), strict=True)):
            inside = np.flatnonzero(((read >= 0) & (read < size)).any(axis=0))
            first = min(int(inside[0]), self.before[dim] // self.dilations[dim])
            cut.append((first, self.kernel[dim] - 1 - int(inside[-1])))
        return replace(
            self,
            kernel=tuple(width - first - last for width, (first, last) in zip(self.kernel, cut, strict=True)),
            before=tuple(
                width - first * step for width, (first, _), step in zip(self.before, cut, self.dilations, strict=True)
            ),
            after=tuple(
                width - last * step for width, (_, last), step in zip(self.after, cut, self.dilations, strict=True)
            ),
        )

    @property
    def picked(self) -> tuple[int, ...]:
        """The spatial dims along which windows of one element, without padding, leave elements out."""
        return tuple(
            dim
            for dim, (kernel, stride) in enumerate(zip(self.kernel, self.strides, strict=True))
            if kernel == 1 and stride > 1 and self.before[dim] == 0 and self.after[dim] <= 0
        )

    def without_strides(self, dims: Collection[int]) -> Windows:
        """The windows over what they read along some dims of ``picked``."""
        return replace(
            self,
            strides=tuple(1 if dim in dims else stride for dim, stride in enumerate(self.strides)),
            dilations=tuple(1 if dim in dims else step for dim, step in enumerate(self.dilations)),
            after=tuple(0 if dim in dims else width for dim, width in enumerate(self.after)),
        )


def windows_of(op: Op, kernel: Shape, x: Shape, y: Shape) -> Windows:
    """The windows of an op, from its attributes and the spatial sizes of its input and output.

    ``after`` follows from the output's size, so every auto_pad and ceil_mode comes out right.

    Raises:
        UnsupportedError: an auto_pad that ONNX does not know or define clearly here, or negative pads.
    """
    count = len(kernel)
    strides = integers(op, "strides", (1,) * count)
    dilations = integers(op, "dilations", (1,) * count)
    reach = tuple(
        (size - 1) * stride + (width - 1) * dilation + 1
        for size, stride, width, dilation in zip(y, strides, kernel, dilations, strict=True)
    )
    short = tuple(wanted - size for wanted, size in zip(reach, x, strict=True))
    missing = tuple(max(0, width) for width in short)
    mode = text(op, "auto_pad", "NOTSET")
    if mode.startswith("SAME") and min(short, default=0) < -1:
        # Where strides skip two elements or more at the end, ONNX Runtime moves the windows inwards; others do not.
        raise refuse(op, f"auto_pad {mode} with strides larger than the windows is not defined clearly")
    match mode:
        case "NOTSET":
            before = integers(op, "pads", (0,) * (2 * count))[:count]
        case "VALID":
            before = (0,) * count
        case "SAME_UPPER":
            before = tuple(width // 2 for width in missing)
        case "SAME_LOWER":
            before = tuple((width + 1) // 2 for width in missing)
        case unknown:
            raise refuse(op, f"auto_pad is {unknown!r}")
    if min(before, default=0) < 0:
        raise refuse(op, "its pads are negative")
    after = tuple(wanted - size - first for wanted, size, first in zip(reach, x, before, strict=True))
    return Windows(kernel, strides, dilations, before, after)


def transposed_windows(op: Op, kernel: Shape, x: Shape, y: Shape) -> Windows:
    """The windows of a ConvTranspose: over its output, one for each element of its input.

    Where auto_pad or output_shape leave the pads open, they follow from the sizes (ONNX ConvTranspose).

    Raises:
        UnsupportedError: negative pads.
    """
    count = len(kernel)
    strides = integers(op, "strides", (1,) * count)
    dilations = integers(op, "dilations", (1,) * count)
    extra = integers(op, "output_padding", (0,) * count)
    reach = tuple(
        (size - 1) * stride + (width - 1) * dilation + 1
        for size, stride, width, dilation in zip(x, strides, kernel, dilations, strict=True)
    )
    mode = text(op, "auto_pad", "NOTSET")
    if mode == "VALID":
        before = (0,) * count
    elif mode == "NOTSET" and not op.attribute("output_shape"):
        before = integers(op, "pads", (0,) * (2 * count))[:count]
    else:
        total = tuple(max(0, end + pad - size) for end, pad, size in zip(reach, extra, y, strict=True))
        less = tuple(width // 2 for width in total)
        before = less if mode == "SAME_UPPER" else tuple(a - b for a, b in zip(total, less, strict=True))
    if min(before, default=0) < 0:
        raise refuse(op, "its pads are negative")
    after = tuple(end - size - first for end, size, first in zip(reach, y, before, strict=True))
    return Windows(kernel, strides, dilations, before, after)
