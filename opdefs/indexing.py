"""Operators that look up or place elements where the data say: Gather*, Scatter*.

A dim that is looked up is read whole (``at``); a dim that is scattered into is computed whole. Scattering that adds
is a sum over the positions of the updates, so that those can be cut: each worker scatters its own updates into
zeros, and the first into the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opdefs.broadcast import normal_axis
from opdefs.parts import filled, int64, output_dtype, output_shape
from planner.errors import DescriptionError
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, at, call, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


def _one_index(node: NodeView, axis: int) -> int | None:
    """The only index that a Gather looks up, if it is one number and known."""
    known = node.constant_if_known(1)
    if known is None or known.size != 1:
        return None
    index = int(known.reshape(()).item())
    return index + node.size(0, axis) if index < 0 else index


def gather_local(node: NodeView, part: Part) -> LocalOp:
    """The same op; an index that is one known number becomes 0, for the part reads that element only."""
    shape = node.input_shapes[0]
    assert shape is not None, "the data are there"
    if _one_index(node, normal_axis(node.attribute("axis", 0), len(shape))) is None:
        return same_op(node, part)
    return same_op(node, part, constants={1: np.zeros_like(node.constant(1))})


@op("Gather", local=gather_local)
def gather(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """Along axis, the elements that the indices name."""
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    one = _one_index(node, axis)

    def value(*i: Ix) -> Val:
        before, named, after = i[:axis], i[axis : axis + indices.rank], i[axis + indices.rank :]
        if one is not None:
            return X[(*before, one, *after)]
        return X[(*before, at(indices[named]), *after)]

    return value


@op("GatherElements")
def gather_elements(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """Along axis, the element that the index at the same place names."""
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    return lambda *i: X[(*i[:axis], at(indices[i]), *i[axis + 1 :])]


@op("GatherND")
def gather_nd(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """After the batch dims, the last dim of the indices names a place in the dims of the data that follow."""
    batch = node.attribute("batch_dims", 0)
    looked_up = node.size(1, indices.rank - 1)

    def value(*i: Ix) -> Val:
        place = [at(indices[(*i[: indices.rank - 1], number)]) for number in range(looked_up)]
        return X[(*i[:batch], *place, *i[indices.rank - 1 :])]

    return value


def scatter_local(node: NodeView, part: Part) -> LocalOp:
    """The same op; into zeros for all but the first worker of the sum; a copy where the part has no updates."""
    zeros = {"zero": filled(output_dtype(node), 0, ()), "shape": int64(output_shape(node, part))}
    blank = LocalNode("Expand", ("zero", "shape"), ("blank" if part.inputs[2] is not None else "out0",))
    if part.inputs[2] is None:
        if part.is_first:
            return LocalOp((LocalNode("Identity", ("in0",), ("out0",)),))
        return LocalOp((blank,), zeros)
    if part.is_first:
        return same_op(node, part)
    scatter = LocalNode(node.op.op_type, ("blank", "in1", "in2"), ("out0",), dict(node.op.attributes))
    return LocalOp((blank, scatter), zeros)


def _reduction(node: NodeView) -> str:
    reduction: str = node.attribute("reduction", "none")
    if reduction not in ("none", "add", "mul", "min", "max"):
        raise DescriptionError(f"reduction {reduction!r} of {node.op.op_type}")
    return reduction


@op("ScatterElements", local=scatter_local)
def scatter_elements(node: NodeView, X: TensorArg, indices: TensorArg, updates: TensorArg) -> object:
    """Along axis, each update goes to where the index at the same place says."""
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    adds = _reduction(node) == "add"

    def along(i: Sequence[Ix], index: Ix | slice) -> tuple[Ix | slice, ...]:
        return (*i[:axis], index, *i[axis + 1 :])

    def value(*i: Ix) -> Val:
        if adds:
            hits = Opaque("hit")
            return X[i] + Sum(lambda u: hits(indices[along(i, u)])[i[axis]] * updates[along(i, u)])
        row = along(i, slice(None))
        return Opaque("ScatterElements")(X[row], indices[row], updates[row])[i[axis]]

    return value


@op("ScatterND", local=scatter_local)
def scatter_nd(node: NodeView, X: TensorArg, indices: TensorArg, updates: TensorArg) -> object:
    """Each update, a slice of the data's last dims, goes to the place that the indices' last dim names."""
    placed = node.size(1, indices.rank - 1)
    updated = indices.rank - 1
    adds = _reduction(node) == "add"

    def value(*i: Ix) -> Val:
        where, rest = i[:placed], i[placed:]
        if adds:
            hits = Opaque("hit")
            return X[i] + Sum(lambda *u: hits(indices[(*u, slice(None))])[where] * updates[(*u, *rest)], count=updated)
        everything = (slice(None),) * updated
        named = Opaque("hit")(indices[(*everything, slice(None))], updates[(*everything, *rest)])[where]
        return call("ScatterND", X[i], named)

    return value
