"""Fourier transforms, and the tables that go with them."""

from __future__ import annotations

from planner.opdefs.broadcast import normal_axis
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op


@op("DFT")
def dft(node: NodeView, X: TensorArg, length: TensorArg | None = None, axis: TensorArg | None = None) -> object:
    """Along axis; the last dim holds real and imaginary parts. Axis is an attribute up to opset 19, then an input."""
    stated = node.attribute("axis", 1) if node.opset < 20 else -2
    if axis is not None:
        stated = int(node.constant(2).reshape(()).item())
    dim = normal_axis(stated, X.rank)
    last = X.rank - 1

    def value(*i: Ix) -> Val:
        rows = X[tuple(slice(None) if d in (dim, last) else var for d, var in enumerate(i))]
        return Opaque("DFT")(rows)[i[dim], i[last]]

    return value


@op("STFT")
def stft(
    node: NodeView, signal: TensorArg, step: TensorArg, window: TensorArg | None = None, length: TensorArg | None = None
) -> object:
    """The transform of every frame: frames overlap, as the windows of a convolution do."""
    stride = int(node.constant(1).reshape(()).item())
    size = int(node.constant(3).reshape(()).item()) if length is not None else None
    if size is None:
        size = node.size(2, 0) if window is not None else node.size(0, 1)

    def value(b: Ix, frame: Ix, bin_: Ix, part: Ix) -> Val:
        rows = Sum(lambda r: signal[b, frame * stride + r, :], extents=(size,))
        return Opaque("DFT")(rows, *([] if window is None else [window[:]]))[bin_, part]

    return value


@op("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
def table(node: NodeView, *parameters: TensorArg | None) -> object:
    """A small table of constants, made from scalars: each element depends on its position."""
    return lambda *i: call(node.op.op_type, *(p.scalar() for p in parameters if p is not None and p.rank == 0), *i)
