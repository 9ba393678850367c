"""Operators that read between positions that the data decide: sampling by a grid, regions, deformed windows."""

from __future__ import annotations

from planner.opdefs.parts import EVERYTHING, int64, output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op
from planner.tdl.local import LocalOp, Part, same_op


def _plane(rank: int) -> tuple[slice, ...]:
    return (slice(None),) * rank


@op("GridSample")
def grid_sample(node: NodeView, X: TensorArg, grid: TensorArg) -> object:
    """Every output position reads its channel where the grid says."""

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        return Opaque("GridSample")(X[(b, c, *_plane(X.rank - 2))], grid[(b, *y, slice(None))])[()]

    return value


def affine_grid_local(node: NodeView, part: Part) -> LocalOp:
    """A size with the part's samples."""
    output = output_region(part)
    size = [int(value) for value in node.constant(1)]
    return same_op(node, part, constants={1: int64((output.shape[0], *size[1:]))})


@op("AffineGrid", local=affine_grid_local)
def affine_grid(node: NodeView, theta: TensorArg, size: TensorArg) -> object:
    """Each sample's matrix applied to all positions."""
    return lambda b, *y: Opaque("AffineGrid")(theta[b, :, :])[y]


@op("MaxRoiPool")
def max_roi_pool(node: NodeView, X: TensorArg, regions: TensorArg) -> object:
    """The maxima of a region, which says its sample, in a coarse grid."""
    return lambda r, c, y, x: Opaque("MaxRoiPool")(X[:, c, :, :], regions[r, :])[y, x]


@op("RoiAlign")
def roi_align(node: NodeView, X: TensorArg, regions: TensorArg, samples: TensorArg) -> object:
    """Averages or maxima of a region of the sample that is named, in a coarse grid."""
    return lambda r, c, y, x: Opaque("RoiAlign")(X[:, c, :, :], regions[r, :], samples[r])[y, x]


def deform_conv_local(node: NodeView, part: Part) -> LocalOp:
    """The bias is added by the first worker of a reduction only."""
    return same_op(node, part, drop=() if part.is_first else (3,))


@op("DeformConv", local=deform_conv_local)
def deform_conv(
    node: NodeView,
    X: TensorArg,
    W: TensorArg,
    offset: TensorArg,
    B: TensorArg | None = None,
    mask: TensorArg | None = None,
) -> object:
    """A convolution whose windows are bent by the data; in groups the channels stay together."""
    rank = X.rank - 2
    grouped = node.attribute("group", 1) != 1 or node.attribute("offset_group", 1) != 1

    def bent(b: Ix, channel: Ix | slice, output: Ix | slice, input_: Ix | slice) -> list[Val]:
        read = [X[(b, channel, *_plane(rank))], W[(output, input_, *_plane(rank))], offset[(b, *_plane(rank + 1))]]
        return read if mask is None else [*read, mask[(b, *_plane(rank + 1))]]

    def product(b: Ix, co: Ix, y: tuple[Ix, ...], ci: Ix, k: tuple[Ix, ...]) -> Val:
        """What a place of a window takes; where it lies does not matter."""
        return X[(b, ci, *y)] * W[(co, ci, *k)]

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        if grouped:
            biases = [] if B is None else [B[:]]
            takes = Sum(lambda ci, *k: product(b, co, y, ci, k), count=1 + rank)
            return Opaque("DeformConv", (takes,))(*bent(b, EVERYTHING, EVERYTHING, EVERYTHING), *biases)[(co, *y)]

        # Without groups an input channel's window depends on no other channel, so that the sum over channels can split.
        def window(ci: Ix) -> Val:
            takes = Sum(lambda *k: product(b, co, y, ci, k), count=rank)
            return Opaque("bent window", (takes,))(*bent(b, ci, co, ci))[y]

        total = Sum(window)
        return total if B is None else total + B[co]

    return value
