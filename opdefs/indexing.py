"""Operators that look up elements where the data say: Gather, GatherElements, GatherND.

A lookup is described as a sum over all positions of the dim that is looked up, of which the data choose one:
``Y[i, d] = Sum_{v} X[v, d] * [I[i] == v]``. So it can be cut on that dim (the vocabulary split of language models): a
worker looks up what it has, gives zeros for the rest, and the partial results are added. Known places that lie along a
line are no such sum: a part reads the rows between its first place and its last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.region import Region
from planner.graph.folding.evaluate import MAX_FOLDED_ELEMENTS
from planner.opdefs.broadcast import normal_axis
from planner.opdefs.lookup import Strip, counted, index_dtype, refuse_flags, strip_of
from planner.opdefs.parts import filled, input_region, int64, output_dtype
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, call, match, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


def _one_index(node: NodeView) -> int | None:
    """The only index that a Gather looks up, if it is one number and known."""
    indices = node.constant_if_known(1)
    return None if indices is None or indices.size != 1 else int(_places(node).item())


def _axis(node: NodeView) -> int:
    return normal_axis(node.attribute("axis", 0), node.rank(0))


def masked_lookup(node: NodeView, part: Part, dims: Sequence[int], *, listed: bool, after: int) -> LocalOp:
    """Looks up what the part has of the dims that are looked up, and gives zeros for the rest.

    Args:
        node: the op.
        part: the worker's part.
        dims: the dims of input 0 that are looked up.
        listed: True if the last dim of the indices lists them.
        after: dims of the output after those of the indices, which the mask lacks.

    Raises:
        NotLocalError: the data are booleans.
    """
    data_shape, region = node.input_shape(0), part.inputs[0]
    if region is None or all(region.shape[dim] == data_shape[dim] for dim in dims):
        return same_op(node, part)
    dtype = output_dtype(node)
    refuse_flags(dtype)
    index = counted(
        "in1",
        index_dtype(node),
        [data_shape[dim] for dim in dims],
        [region.lo[dim] for dim in dims],
        [region.hi[dim] for dim in dims],
        listed=listed,
    )
    nodes = [
        *index.nodes,
        *index.placed("nought", "safe"),
        LocalNode(node.op.op_type, ("in0", "safe"), ("found",), dict(node.op.attributes)),
    ]
    constants = {**index.constants, "zero": filled(dtype, 0, ())}
    # The mask has a value for each index tuple: dims of 1 behind it broadcast over the elements looked up.
    mask = "inside"
    if after or listed:
        shape = () if node.input_shapes[1] == () else input_region(part, 1).shape
        constants["mask_shape"] = int64((*(shape[:-1] if listed else shape), *(1 for _ in range(after))))
        nodes.append(LocalNode("Reshape", ("inside", "mask_shape"), ("mask",)))
        mask = "mask"
    nodes.append(LocalNode("Where", (mask, "found", "zero"), ("out0",)))
    return LocalOp(tuple(nodes), constants)


def _places(node: NodeView) -> np.ndarray:
    """What a Gather looks up, counted from the front."""
    indices = node.constant(1)
    return np.where(indices < 0, indices + node.size(0, _axis(node)), indices)


def _strip(node: NodeView) -> Strip | None:
    """Where a Gather's places lie, if they are known."""
    indices = node.constant_if_known(1)
    is_small = indices is not None and indices.size <= MAX_FOLDED_ELEMENTS
    return strip_of(_places(node), node.size(0, _axis(node))) if is_small else None


def gather_local(node: NodeView, part: Part) -> LocalOp:
    """Known places counted from the part's first; else masked where the part has some of the rows."""
    axis = _axis(node)
    if _one_index(node) is not None:
        return same_op(node, part, constants={1: np.zeros_like(node.constant(1))})
    if _strip(node) is not None:
        rows = _places(node)[input_region(part, 1).within(Region.whole(node.constant(1).shape))]
        return same_op(
            node, part, constants={1: (rows - input_region(part, 0).lo[axis]).astype(node.constant(1).dtype)}
        )
    return masked_lookup(node, part, (axis,), listed=False, after=node.rank(0) - axis - 1)


@op("Gather", local=gather_local)
def gather(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """Along axis, the elements that the indices name."""
    axis = _axis(node)
    index, strip, padded = node.derive(_one_index), node.derive(_strip), X.padded(0.0)

    def value(*i: Ix) -> Val:
        before, named, after = i[:axis], i[axis : axis + indices.rank], i[axis + indices.rank :]
        if index is not None:
            return X[(*before, index, *after)]
        if strip is not None:
            near = Sum(lambda t: padded[(*before, strip.at(named[strip.dim], t), *after)], extents=(2,))
            return call("looked up", near, indices[named])
        return Sum(lambda v: X[(*before, v, *after)] * match(indices[named], v))

    return value


def gather_elements_local(node: NodeView, part: Part) -> LocalOp:
    """Masked where the part has some of the positions."""
    return masked_lookup(node, part, (_axis(node),), listed=False, after=0)


@op("GatherElements", local=gather_elements_local)
def gather_elements(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """Along axis, the element that the index at the same place names."""
    axis = _axis(node)
    return lambda *i: Sum(lambda v: X[(*i[:axis], v, *i[axis + 1 :])] * match(indices[i], v))


def gather_nd_local(node: NodeView, part: Part) -> LocalOp:
    """Masked where the part has some of the positions of any dim that is looked up."""
    batch, indices = node.attribute("batch_dims", 0), node.input_shape(1)
    dims = range(batch, batch + indices[-1])
    return masked_lookup(node, part, dims, listed=True, after=node.rank(0) - batch - indices[-1])


@op("GatherND", local=gather_nd_local)
def gather_nd(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    """After the batch dims, the last dim of the indices names a place in the dims of the data that follow."""
    batch = node.attribute("batch_dims", 0)
    looked_up = node.size(1, indices.rank - 1)

    def value(*i: Ix) -> Val:
        row, tail = i[: indices.rank - 1], i[indices.rank - 1 :]

        def term(*v: Ix) -> Val:
            product = X[(*i[:batch], *v, *tail)]
            for number, position in enumerate(v):
                product = product * match(indices[(*row, number)], position)
            return product

        return Sum(term, count=looked_up)

    return value
