"""Geometry of sliding windows, common to convolutions and pooling (ONNX: pads, auto_pad, strides, dilations)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import DescriptionError
from planner.graph.core.model import Attribute
from planner.tdl.builder import Ix, NodeView
from planner.tdl.local import Part


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dim: output y reads inputs ``y * stride + k * dilation - before``, k below ``kernel``."""

    kernel: int
    stride: int
    dilation: int
    before: int
    """Padding before the first element."""

    def at(self, y: Ix, k: Ix) -> Ix:
        """The input index that output y reads at kernel position k."""
        return y * self.stride + k * self.dilation - self.before


def listed(node: NodeView, name: str, length: int, default: int) -> tuple[int, ...]:
    """An attribute that is a list of integers.

    Raises:
        DescriptionError: a list of another length.
    """
    values: tuple[int, ...] = node.attribute(name) or (default,) * length
    if len(values) != length:
        raise DescriptionError(f"attribute {name} has {len(values)} values, not {length}")
    return values


def windows(node: NodeView, kernel: Sequence[int]) -> tuple[Window, ...]:
    """The window of each spatial dim, dims 2 and on of input 0.

    Sizes are asked for only where ``auto_pad`` makes the padding depend on them.

    Raises:
        DescriptionError: lists of the wrong length, or a stride or dilation below 1.
    """
    rank = len(kernel)
    strides, dilations = listed(node, "strides", rank, 1), listed(node, "dilations", rank, 1)
    pads = listed(node, "pads", 2 * rank, 0)
    if any(value < 1 for value in (*strides, *dilations, *kernel)):
        raise DescriptionError("kernel sizes, strides and dilations are positive")
    window_by_dim = []
    for dim in range(rank):
        before = _before(node, dim, kernel[dim], strides[dim], dilations[dim], pads[dim])
        window_by_dim.append(Window(kernel[dim], strides[dim], dilations[dim], before))
    return tuple(window_by_dim)


def _before(node: NodeView, dim: int, kernel: int, stride: int, dilation: int, stated: int) -> int:
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return stated
    if mode == "VALID":
        return 0
    size = node.size(0, dim + 2)
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2 if mode == "SAME_UPPER" else total - total // 2


def local_pads(part: Part) -> tuple[int, ...]:
    """How far a part's reads run past the borders of input 0: the pads of its own window op."""
    reach = part.reach[0]
    assert reach is not None, "a part that reads no input has no windows"
    return (*reach[0][2:], *reach[1][2:])


def local_geometry(node: NodeView, part: Part, kernel: Sequence[int]) -> dict[str, Attribute]:
    """Attributes of a part's window op: kernel as it is cut, and pads where the part lies at a border.

    The pads are exactly how far the part's reads run past the tensor, so every form of padding and rounding of
    the whole op becomes explicit pads and whole windows.
    """
    changed: dict[str, Attribute] = {"kernel_shape": tuple(kernel), "pads": local_pads(part)}
    if node.attribute("auto_pad") is not None:
        changed["auto_pad"] = "NOTSET"
    if node.attribute("ceil_mode"):
        changed["ceil_mode"] = 0
    return changed


@dataclass(frozen=True, slots=True)
class Scattering:
    """One spatial dim of a ConvTranspose whose pads are equal before and after, and what is then cut off or added.

    ONNX Runtime has no CUDA kernel for unequal ones.
    """

    pad: int
    """Elements that the ConvTranspose leaves out of what it scatters, at either end."""
    output_padding: int
    """Elements that it has more at the end; less than the stride."""
    cut: tuple[int, int]
    """What is sliced off its output, before and after."""
    zeros: tuple[int, int]
    """What its output, sliced, is widened by."""

    @classmethod
    def of(cls, before: int, after: int, stride: int) -> Scattering:
        """The form for a dim.

        Args:
            before: elements at the front of what is scattered that are not wanted; if negative, zeros that are.
            after: the same at the end.
            stride: of the ConvTranspose.
        """
        front, missing = max(0, before), max(0, -before)
        if 0 <= front - after < stride:
            return cls(front, front - after, (0, 0), (missing, 0))
        back, beyond = max(0, after), max(0, -after)
        pad, extra = min(front, back), beyond if beyond < stride else 0
        return cls(pad, extra, (front - pad, back - pad), (missing, beyond - extra))
