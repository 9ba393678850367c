"""Operators that place elements where the data say: Scatter, ScatterElements, ScatterND, TensorScatter, OneHot.

Scattering that adds is a sum over the positions of the updates, so that those can be cut: each worker scatters its
own updates into zeros, and the first into the data. Every scatter can be cut on the dim that it scatters into: what
belongs to other parts goes to a spare row, which is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from planner.opdefs.broadcast import normal_axis
from planner.opdefs.lookup import counted, index_dtype
from planner.opdefs.parts import filled, int64, output_dtype, output_region, output_shape
from planner.tdl.builder import Ix, Max, Min, NodeView, Opaque, Sum, TensorArg, Val, call, match, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


def scatter_local(node: NodeView, part: Part, *, listed: bool = False) -> LocalOp:
    """The same op; sums go into zeros for all but the first worker; a copy where the part has no updates.

    Args:
        node: the op.
        part: of it.
        listed: the last dim of the indices lists the dims that the updates are scattered into; else it is the axis.
    """
    zeros = {"zero": filled(output_dtype(node), 0, ()), "shape": int64(output_shape(node, part))}
    blank = LocalNode("Expand", ("zero", "shape"), ("blank" if part.inputs[2] is not None else "out0",))
    into_data = part.is_first or _reduction(node) != "add"
    if part.inputs[2] is None:
        if into_data:
            return LocalOp((LocalNode("Identity", ("in0",), ("out0",)),))
        return LocalOp((blank,), zeros)
    full_shape, output = node.output_shape(), output_region(part)
    axis = 0 if listed else normal_axis(node.attribute("axis", 0), node.rank(0))
    targets = tuple(range(node.input_shape(1)[-1])) if listed else (axis,)
    if any(output.shape[dim] != full_shape[dim] for dim in targets):
        return _with_spare_row(node, part, targets, into_data, listed=listed)
    if into_data:
        return same_op(node, part)
    scatter = LocalNode(node.op.op_type, ("blank", "in1", "in2"), ("out0",), dict(node.op.attributes))
    return LocalOp((blank, scatter), zeros)


def _with_spare_row(node: NodeView, part: Part, targets: tuple[int, ...], into_data: bool, *, listed: bool) -> LocalOp:
    """Indices counted from the part's first; those of other parts go to one more row at the end."""
    full_shape, output = node.output_shape(), output_region(part)
    dtype, row = index_dtype(node), targets[0]
    index = counted(
        "in1",
        dtype,
        [full_shape[dim] for dim in targets],
        [output.lo[dim] for dim in targets],
        [output.hi[dim] for dim in targets],
        listed=listed,
    )
    # Only the first target dim has a spare row: an index of another part goes there, at 0 of the other dims.
    elsewhere = [output.shape[row], *(0 for _ in targets[1:])]
    rows = [1 if dim == row else size for dim, size in enumerate(output.shape)]
    if not into_data:
        rows[row] += output.shape[row]
    constants = {
        **index.constants,
        "elsewhere": np.array(elsewhere if listed else elsewhere[0], dtype=dtype.value),
        "zero": filled(output_dtype(node), 0, ()),
        "spare_shape": int64(rows),
        "start": int64((0,)),
        "end": int64((output.shape[row],)),
        "row": int64((row,)),
    }
    nodes = [
        *index.nodes,
        *index.placed("elsewhere", "placed"),
        LocalNode("Expand", ("zero", "spare_shape"), ("spare",)),
    ]
    if into_data:
        nodes.append(LocalNode("Concat", ("in0", "spare"), ("target",), {"axis": row}))
    target = "target" if into_data else "spare"
    nodes += [
        LocalNode(node.op.op_type, (target, "placed", "in2"), ("longer",), dict(node.op.attributes)),
        LocalNode("Slice", ("longer", "start", "end", "row"), ("out0",)),
    ]
    return LocalOp(tuple(nodes), constants)


EXTREMES = {"max": Max, "min": Min}
"""Reductions that may take the data in more than once: every worker scatters its updates into the data."""


def _reduction(node: NodeView) -> str:
    reduction: str = node.attribute("reduction", "none")
    return reduction


@op("Scatter", "ScatterElements", local=scatter_local)
def scatter_elements(node: NodeView, X: TensorArg, indices: TensorArg, updates: TensorArg) -> object:
    """Along axis, each update goes to where the index at the same place says."""
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    reduction = _reduction(node)

    def along(i: Sequence[Ix], index: Ix | slice) -> tuple[Ix | slice, ...]:
        return (*i[:axis], index, *i[axis + 1 :])

    def placed(i: Sequence[Ix], u: Ix) -> Val:
        return match(indices[along(i, u)], i[axis]) * updates[along(i, u)]

    def value(*i: Ix) -> Val:
        if reduction == "add":
            return X[i] + Sum(lambda u: placed(i, u))
        if reduction in EXTREMES:
            return EXTREMES[reduction](lambda u: call(reduction, X[i], placed(i, u)))
        row = along(i, slice(None))
        return call(node.op.op_type, X[i], Opaque("placed")(match(indices[row], i[axis]), updates[row])[()])

    return value


@op("ScatterND", local=partial(scatter_local, listed=True))
def scatter_nd(node: NodeView, X: TensorArg, indices: TensorArg, updates: TensorArg) -> object:
    """Each update, a slice of the data's last dims, goes to the place that the indices' last dim names."""
    placed = node.size(1, indices.rank - 1)
    updated = indices.rank - 1
    reduction = _reduction(node)

    def hits(u: Sequence[Ix | slice], where: Sequence[Ix]) -> list[Val]:
        return [match(indices[(*u, number)], position) for number, position in enumerate(where)]

    def value(*i: Ix) -> Val:
        where, tail = i[:placed], i[placed:]

        def term(*u: Ix) -> Val:
            product = updates[(*u, *tail)]
            for hit in hits(u, where):
                product = hit * product
            return product

        if reduction == "add":
            return X[i] + Sum(term, count=updated)
        if reduction in EXTREMES:
            return EXTREMES[reduction](lambda *u: call(reduction, X[i], term(*u)), count=updated)
        everything = (slice(None),) * updated
        named = Opaque("placed")(*hits(everything, where), updates[(*everything, *tail)])
        return call("ScatterND", X[i], named[()])

    return value


@op("TensorScatter")
def tensor_scatter(node: NodeView, X: TensorArg, update: TensorArg, starts: TensorArg | None = None) -> object:
    """Each sample's updates go to axis from where its start says, as into a cache of keys and values."""
    axis = normal_axis(node.attribute("axis", -2), X.rank)

    def value(*i: Ix) -> Val:
        rows = [tensor[(*i[:axis], slice(None), *i[axis + 1 :])] for tensor in (X, update)]
        return Opaque("TensorScatter")(*rows, *([] if starts is None else [starts[i[0]]]))[i[axis]]

    return value


def one_hot_local(node: NodeView, part: Part) -> LocalOp:
    """The part's own depth; indices counted from its first position, and those of other parts set nothing."""
    full_shape, output = node.output_shape(), output_region(part)
    axis = normal_axis(node.attribute("axis", -1), len(full_shape))
    dtype, depth = index_dtype(node, 0), output.shape[axis]
    stated = node.input_dtype(1)
    constants = {"depth": np.array(depth, dtype=stated.array_dtype)}  # kernels exist for some triples of dtypes only
    attributes = dict(node.op.attributes)
    if depth == full_shape[axis]:
        return LocalOp((LocalNode("OneHot", ("in0", "depth", "in2"), ("out0",), attributes),), constants)
    low, high = output.lo[axis], output.hi[axis]
    index = counted("in0", dtype, (full_shape[axis],), (low,), (high,), listed=False)
    nodes = [
        *index.nodes,
        LocalNode("Where", ("inside", "own", "lengths"), ("placed",)),
        LocalNode("OneHot", ("placed", "depth", "in2"), ("out0",), attributes),
    ]
    return LocalOp(tuple(nodes), {**index.constants, **constants})


@op("OneHot", local=one_hot_local)
def one_hot(node: NodeView, indices: TensorArg, depth: TensorArg, values: TensorArg) -> object:
    """Along axis, values[1] where the index is the position and values[0] elsewhere."""
    axis = normal_axis(node.attribute("axis", -1), node.output_rank())
    return lambda *i: call("OneHot", match(indices[(*i[:axis], *i[axis + 1 :])], i[axis]), values[:])
