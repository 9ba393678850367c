"""Gradient rule of the Fourier transform: complex numbers are pairs of reals in the last dim, each with a gradient."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute
from planner.training.gradients.autodiff import Backward, Contributions, gradient


@gradient("DFT", inputs=(0,))
def fourier_transform(context: Backward) -> Contributions:
    """For y = F x, dx = Fᴴ dy: n times the inverse transform of dy; for y = F⁻¹ x, the transform of dy divided by n.

    What onesided left out has the gradient 0; an x without an imaginary part takes the real one. The inverse of a
    onesided spectrum reads every element twice (itself and its conjugate), but the first, and the middle one of an
    even length.
    """
    emit, op, dy = context.builder, context.op, context.dy
    inverse, onesided = bool(integer(op, "inverse", 0)), bool(integer(op, "onesided", 0))
    axis_value = emit.value(context.saved["axis"])
    if axis_value is None:
        raise refuse(op, "its axis is not a known constant")
    rank = emit.rank(context.x)
    axis = int(axis_value.reshape(())) % rank
    size = emit.shape(context.x)[axis]
    # A onesided spectrum of n samples has n // 2 + 1 elements; an odd n is stated as dft_length.
    length = 2 * (size - 1) if inverse and onesided else size
    if context.has_input(1):
        length = int(emit.known(op, 1, "dft_length").item())
    if inverse:
        dx = _transformed(emit, dy, axis, length, onesided=onesided)
        factor = np.full(emit.shape(dx)[axis], 1.0 / length)
        if onesided:
            factor[1 : (length + 1) // 2] *= 2
        column = factor.astype(emit.dtype(dy).array_dtype).reshape([-1 if d == axis else 1 for d in range(rank)])
        dx = emit.mul(dx, emit.constant(column, f"constant.{op.name}.shares"))
    else:
        spectrum = _resized(emit, dy, axis, length)
        dx = emit.scale(_transformed(emit, spectrum, axis, length, inverse=True), float(length))
    dx = _resized(emit, dx, axis, size)
    return [_resized(emit, dx, rank - 1, emit.shape(context.x)[-1])]


def _transformed(
    emit: Builder, x: str, axis: int, length: int, *, inverse: bool = False, onesided: bool = False
) -> str:
    shape = [*emit.shape(x)]
    shape[axis], shape[-1] = length // 2 + 1 if onesided else length, 2
    stated: dict[str, Attribute] = {"inverse": int(inverse), "onesided": int(onesided)}
    operands = [x, "", emit.constant(np.array(axis, np.int64), f"int.{axis}")]
    return emit.one("DFT", operands, tuple(shape), emit.dtype(x), attributes=stated)


def _resized(emit: Builder, x: str, dim: int, size: int) -> str:
    """The start of a dim, or zeros after it, so that it has this size."""
    after = [size - emit.shape(x)[dim] if axis == dim else 0 for axis in range(emit.rank(x))]
    return emit.pad(x, [0] * emit.rank(x), after)
