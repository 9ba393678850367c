"""MaxPool, AveragePool, LpPool and MaxUnpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from planner.graph.core.model import ELEM_TYPES, Attribute, DType
from planner.opdefs.parts import constant_result, filled, input_region, int64, lowest, output_dtype, output_region
from planner.opdefs.windows import Window, listed, local_geometry, local_pads, windows
from planner.tdl.builder import Ix, Max, NodeView, Opaque, Sum, TensorArg, Val, call, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


def _kernel(node: NodeView) -> tuple[int, ...]:
    kernel: tuple[int, ...] = node.attribute("kernel_shape")
    return kernel


def _positions(window: tuple[Window, ...], y: tuple[Ix, ...], k: tuple[Ix, ...]) -> tuple[Ix, ...]:
    return tuple(w.at(position, offset) for w, position, offset in zip(window, y, k, strict=True))


def _is_wide(pads: tuple[int, ...], sizes: Sequence[int]) -> bool:
    """Whether pads are more than the runtime takes: less than the kernel's sizes, dilated or not."""
    return any(pad >= size for pad, size in zip(pads, (*sizes, *sizes), strict=True))


def _rounds_up(node: NodeView) -> bool:
    """Whether ceil_mode counts: SAME_UPPER and SAME_LOWER say themselves how many windows there are."""
    return bool(node.attribute("ceil_mode", 0)) and not node.attribute("auto_pad", "NOTSET").startswith("SAME")


def _rounded_up(node: NodeView, part: Part) -> dict[str, Attribute]:
    """The geometry of a part whose kernel is whole, of an op that rounds up (ceil_mode), and so does the part.

    What its last windows have beyond the padding is none: it never counts in a mean, and as pads it may be more than
    the runtime takes.
    """
    kernel = _kernel(node)
    changed = local_geometry(node, part, kernel)
    if _rounds_up(node):
        rank = len(kernel)
        pads, stated = local_pads(part), listed(node, "pads", 2 * rank, 0)
        after = tuple(min(pad, limit) for pad, limit in zip(pads[rank:], stated[rank:], strict=True))
        changed |= {"pads": (*pads[:rank], *after), "ceil_mode": 1}
    return changed


def max_pool_local(node: NodeView, part: Part) -> LocalOp:
    """Positions of the maxima as the whole op counts them."""
    if part.inputs[0] is None:
        return constant_result(node, part, lowest(output_dtype(node)))
    cut = [part.ranges.get(f"k{dim}", (0, size)) for dim, size in enumerate(_kernel(node))]
    sizes, pads = tuple(hi - lo for lo, hi in cut), local_pads(part)
    is_wide = _is_wide(pads, sizes)
    rounds_up = is_wide and sizes == _kernel(node) and _rounds_up(node)
    geometry = _rounded_up(node, part) if rounds_up else local_geometry(node, part, sizes)
    pool = same_op(node, part, attributes=geometry)
    is_padded_first = is_wide and not rounds_up
    if is_padded_first:
        pool = _padded_first(pool.nodes[0], pads, output_dtype(node))
    if len(node.op.outputs) > 1 and node.op.outputs[1]:
        return _counted_in_the_whole(node, part, pool, pads if is_padded_first else (0,) * len(pads))
    return pool


def _padded_first(pool: LocalNode, pads: tuple[int, ...], dtype: DType) -> LocalOp:
    """The runtime wants pads below the kernel size, which a cut kernel may not have: Pad, then pool without pads."""
    half = len(pads) // 2
    everywhere = [0, 0, *pads[:half], 0, 0, *pads[half:]]
    attributes = {**pool.attributes, "pads": (0,) * len(pads)}
    constants = {"everywhere": int64(everywhere), "lowest": filled(dtype, lowest(dtype), ())}
    nodes = (
        LocalNode("Pad", ("in0", "everywhere", "lowest"), ("padded",)),
        LocalNode(pool.op_type, ("padded",), pool.outputs, attributes),
    )
    if dtype is not DType.UINT8:
        return LocalOp(nodes, constants)
    # The runtime puts a Pad of zeros back into the pool, whatever its kernel size; between Casts it does not.
    first = LocalNode("Cast", ("in0",), ("wide",), {"to": ELEM_TYPES[DType.FLOAT32]})
    last = LocalNode("Cast", ("wide_maxima",), pool.outputs[:1], {"to": ELEM_TYPES[DType.UINT8]})
    outputs = ("wide_maxima", *pool.outputs[1:])
    between = (replace(nodes[0], inputs=("wide", *nodes[0].inputs[1:])), replace(nodes[1], outputs=outputs))
    constants["lowest"] = filled(DType.FLOAT32, lowest(DType.FLOAT32), ())
    return LocalOp((first, *between, last), constants)


def _counted_in_the_whole(node: NodeView, part: Part, pool: LocalOp, pads: tuple[int, ...]) -> LocalOp:
    """Indices count through samples, channels and positions of the whole input, not of the part.

    A part's index is a sum of a place times a stride over the dims. From the fastest dim on, the strides grow apart
    where the part is smaller: a place in the next dim counts ``(size - own_size) * stride`` more.

    Args:
        node: the whole op.
        part: of the op.
        pool: what computes it, with indices of its own.
        pads: what the pool's own input has beyond the part's, before and after each spatial dim.
    """
    full_shape, region = node.input_shape(0), input_region(part, 0)
    half = len(pads) // 2
    before, after = (0, 0, *pads[:half]), (0, 0, *pads[half:])
    order = list(range(len(full_shape)))
    if node.attribute("storage_order", 0):
        order[2:] = reversed(order[2:])
    added: list[LocalNode] = []
    constants: dict[str, np.ndarray] = {}
    # A part's index divided by own_stride is its place in the slower dims: each of these steps moves the index on.
    current, shift, stride, own_stride = "own", 0, 1, 1
    for dim in reversed(order):
        size, own_size = full_shape[dim], region.shape[dim] + before[dim] + after[dim]
        shift += (region.lo[dim] - before[dim]) * stride
        own_stride *= own_size
        if dim and own_size != size:
            constants[f"stride{dim}"] = np.array(own_stride, dtype=np.int64)
            constants[f"missing{dim}"] = np.array((size - own_size) * stride, dtype=np.int64)
            added += [
                LocalNode("Div", ("own", f"stride{dim}"), (f"place{dim}",)),
                LocalNode("Mul", (f"place{dim}", f"missing{dim}"), (f"gap{dim}",)),
                LocalNode("Add", (current, f"gap{dim}"), (f"spread{dim}",)),
            ]
            current = f"spread{dim}"
        stride *= size
    if shift or added:
        constants["shift"] = np.array(shift, dtype=np.int64)
        added.append(LocalNode("Add", (current, "shift"), ("out1",)))
    counted = "own" if added else "out1"
    pool_nodes = [
        replace(op_node, outputs=(op_node.outputs[0] or "values", counted)) if op_node.op_type == "MaxPool" else op_node
        for op_node in pool.nodes
    ]
    return LocalOp((*pool_nodes, *added), {**pool.constants, **constants})


@op("MaxPool", local=max_pool_local)
def max_pool(node: NodeView, X: TensorArg) -> object:
    """The maximum of each window; padding is never the maximum. Indices say where it stands in the whole input."""
    kernel = _kernel(node)
    window = windows(node, kernel)
    padded = X.padded(-np.inf)

    def where(b: Ix, c: Ix, *y: Ix) -> Val:
        largest = Max(lambda *k: padded[(b, c, *_positions(window, y, k))], extents=kernel)
        return call("where it stands", largest)

    return (
        lambda b, c, *y: Max(lambda *k: padded[(b, c, *_positions(window, y, k))], extents=kernel),
        where,
    )


def average_pool_local(node: NodeView, part: Part) -> LocalOp:
    """Explicit pads where the part lies at a border; rounded up where the whole op is."""
    if part.inputs[0] is None:
        return constant_result(node, part, 0.0)
    return same_op(node, part, attributes=_rounded_up(node, part))


@op("AveragePool", local=average_pool_local)
def average_pool(node: NodeView, X: TensorArg) -> object:
    """The mean of each window: over its kernel, or over what of it is no padding. So the kernel is not cut."""
    return _of_sums(node, X, lambda element: element, "over the window's count")


def _of_sums(node: NodeView, X: TensorArg, added: Callable[[Val], Val], result: str) -> object:
    """Of each window a function of a sum over its elements."""
    kernel = _kernel(node)
    window = windows(node, kernel)
    padded = X.padded(0.0)

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        return call(result, Sum(lambda *k: added(padded[(b, c, *_positions(window, y, k))]), extents=kernel))

    return value


def lp_pool_local(node: NodeView, part: Part) -> LocalOp:
    """Explicit pads where the part lies at a border."""
    if part.inputs[0] is None:
        return constant_result(node, part, 0.0)
    kernel = _kernel(node)
    is_wide = _is_wide(local_pads(part), kernel)
    return same_op(node, part, attributes=_rounded_up(node, part) if is_wide else local_geometry(node, part, kernel))


@op("LpPool", local=lp_pool_local)
def lp_pool(node: NodeView, X: TensorArg) -> object:
    """The norm of each window: a root of a sum, so that the kernel is not cut."""
    return _of_sums(node, X, lambda element: call("power", element), "root")


@op("GlobalLpPool")
def global_lp_pool(node: NodeView, X: TensorArg) -> object:
    """The norm of each channel of each sample; the spatial dims stay, with size 1."""
    rank = X.rank - 2

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        total = Sum(lambda *r: call("power", X[(b, c, *r)]), count=rank)
        return total if node.attribute("p", 2) == 1 else call("root", total)

    return value


def max_unpool_local(node: NodeView, part: Part) -> LocalOp:
    """Positions as the part counts them; they count through samples, channels and positions of the whole output."""
    full_shape, output = node.output_shape(), output_region(part)
    plane = prod(full_shape[2:])
    numbers = {
        "sample": full_shape[1] * plane,
        "plane": plane,
        "first": (output.lo[0] * output.shape[1] + output.lo[1]) * plane,
        "own_sample": output.shape[1] * plane,
    }
    constants = {name: np.array(number, dtype=np.int64) for name, number in numbers.items()}
    constants["shape"] = int64(output.shape)
    nodes = (
        LocalNode("Div", ("in1", "sample"), ("samples",)),
        LocalNode("Mul", ("samples", "sample"), ("before",)),
        LocalNode("Sub", ("in1", "before"), ("in_sample",)),
        LocalNode("Mul", ("samples", "own_sample"), ("own_before",)),
        LocalNode("Add", ("own_before", "in_sample"), ("closer",)),
        LocalNode("Sub", ("closer", "first"), ("position",)),
        LocalNode("MaxUnpool", ("in0", "position", "shape"), ("out0",), dict(node.op.attributes)),
    )
    return LocalOp(nodes, constants)


def _follows_from_kernel(node: NodeView) -> bool:
    """Whether a stated output size is the one that follows from kernel, strides and pads."""
    kernel = _kernel(node)
    rank = len(kernel)
    strides, pads = listed(node, "strides", rank, 1), listed(node, "pads", 2 * rank, 0)
    return all(
        node.output_size(2 + dim)
        == (node.size(0, 2 + dim) - 1) * strides[dim] + kernel[dim] - pads[dim] - pads[rank + dim]
        for dim in range(rank)
    )


@op("MaxUnpool", local=max_unpool_local)
def max_unpool(node: NodeView, X: TensorArg, positions: TensorArg, shape: TensorArg | None = None) -> object:
    """Each value goes where its pool found it: somewhere in the same channel of the same sample.

    Positions count through the output. Where its size is stated as another one than the pool's input had, the same
    numbers are other places, of other channels, so that all values are looked at.
    """
    is_of_pool = shape is None or _follows_from_kernel(node)

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        everywhere = tuple(slice(None) for _ in y)
        if is_of_pool:
            return Opaque("MaxUnpool")(X[(b, c, *everywhere)], positions[(b, c, *everywhere)])[y]
        every = (slice(None), slice(None), *everywhere)
        return Opaque("MaxUnpool")(X[every], positions[every])[(b, c, *y)]

    return value
