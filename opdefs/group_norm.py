"""Normalisations over other dims than the last: by instance, by group, by window of channels, by given axes."""

from __future__ import annotations

from planner.graph.core.model import Attribute
from planner.opdefs.broadcast import normal_axes, normal_axis
from planner.opdefs.parts import input_region, int64, output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part, same_op


@op("InstanceNormalization")
def instance_normalization(node: NodeView, X: TensorArg, scale: TensorArg, bias: TensorArg) -> object:
    """Normalises every channel of every sample over its positions."""

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        return Opaque("InstanceNormalization")(X[(b, c, *(slice(None) for _ in y))], scale[c], bias[c])[y]

    return value


def group_normalization_local(node: NodeView, part: Part) -> LocalOp:
    """The groups that the part holds.

    Raises:
        NotLocalError: it holds a part of a group.
    """
    full_shape, output = node.input_shape(0), output_region(part)
    together = full_shape[1] // node.attribute("num_groups")
    if output.lo[1] % together or output.hi[1] % together:
        raise NotLocalError("a part of a group normalisation holds whole groups")
    return same_op(node, part, attributes={"num_groups": output.shape[1] // together})


@op("GroupNormalization", local=group_normalization_local)
def group_normalization(node: NodeView, X: TensorArg, scale: TensorArg, bias: TensorArg) -> object:
    """Normalises every group of channels over channels and positions.

    Scale and bias are of the groups up to opset 20, of the channels from 21 on.
    """
    together = node.size(0, 1) // node.attribute("num_groups")
    by_group = node.opset < 21

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        everywhere = (slice(None) for _ in y)
        first = (c // together) * together
        group = Sum(lambda r: X[(b, first + r, *everywhere)], extents=(together,))
        param = c // together if by_group else c
        return Opaque("GroupNormalization")(group, X[(b, c, *(slice(None) for _ in y))], scale[param], bias[param])[y]

    return value


@op("MeanVarianceNormalization")
def mean_variance_normalization(node: NodeView, X: TensorArg) -> object:
    """Subtracts the mean over axes and divides by the deviation."""
    axes = normal_axes(node.attribute("axes", (0, 2, 3)), X.rank)

    def value(*i: Ix) -> Val:
        rows = X[tuple(slice(None) if dim in axes else var for dim, var in enumerate(i))]
        return Opaque("MeanVarianceNormalization")(rows)[tuple(i[dim] for dim in axes)]

    return value


@op("LpNormalization")
def lp_normalization(node: NodeView, X: TensorArg) -> object:
    """Divides by the norm along axis."""
    axis = normal_axis(node.attribute("axis", -1), X.rank)
    return lambda *i: Opaque("LpNormalization")(X[(*i[:axis], slice(None), *i[axis + 1 :])])[i[axis]]


def lrn_local(node: NodeView, part: Part) -> LocalOp:
    """The same op on the part's channels and their neighbours, which are cut off again."""
    region, output = input_region(part, 0), output_region(part)
    if region.shape[1] == output.shape[1]:
        return same_op(node, part)
    attributes: dict[str, Attribute] = dict(node.op.attributes)
    first = output.lo[1] - region.lo[1]
    return LocalOp(
        (
            LocalNode("LRN", ("in0",), ("wide",), attributes),
            LocalNode("Slice", ("wide", "start", "end", "axis"), ("out0",)),
        ),
        {"start": int64((first,)), "end": int64((first + output.shape[1],)), "axis": int64((1,))},
    )


@op("LRN", local=lrn_local)
def lrn(node: NodeView, X: TensorArg) -> object:
    """Divides by a power of the squares summed over a window of channels."""
    size = node.attribute("size")
    padded = X.padded(0.0)

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        squares = Sum(lambda k: padded[(b, c + k - (size - 1) // 2, *y)], extents=(size,))
        return call("LRN", X[(b, c, *y)], squares)

    return value
