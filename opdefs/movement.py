"""Operators that only move elements: Transpose, Concat, Split, Slice, Expand, Tile, Pad, CenterCropPad, Trilu."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.errors import DescriptionError
from planner.opdefs.broadcast import broadcast, normal_axes, normal_axis
from planner.opdefs.parts import constant_result, input_region, int64, output_region, output_shape
from planner.tdl.builder import Ix, NodeView, Opaque, TensorArg, Val, call, op, over
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


@op("Transpose")
def transpose(node: NodeView, X: TensorArg) -> object:
    """Output dim d is input dim perm[d]; without perm the dims are reversed."""
    perm = node.attribute("perm") or tuple(reversed(range(X.rank)))
    return lambda *i: X[tuple(i[perm.index(dim)] for dim in range(X.rank))]


def concat_local(node: NodeView, part: Part) -> LocalOp:
    """Joins the inputs that the part reads some of."""
    names = tuple(f"in{slot}" for slot, region in enumerate(part.inputs) if region is not None)
    if len(names) == 1:
        return LocalOp((LocalNode("Identity", names, ("out0",)),))
    return LocalOp((LocalNode("Concat", names, ("out0",), {"axis": node.attribute("axis")}),))


@op("Concat", local=concat_local)
def concat(node: NodeView, *inputs: TensorArg) -> object:
    """One after the other along axis: an input is read where it is, and nowhere else."""
    axis = normal_axis(node.attribute("axis"), node.output_rank())
    starts = [0]
    for slot in range(len(inputs)):
        starts.append(starts[-1] + node.size(slot, axis))
    return lambda *i: call(
        "join", *(_shifted(X, axis, -start)(*i) for X, start in zip(inputs, starts[:-1], strict=True))
    )


def _shifted(X: TensorArg, axis: int, offset: int) -> Callable[..., Val]:
    return lambda *i: X[(*i[:axis], i[axis] + offset, *i[axis + 1 :])]


def split_local(node: NodeView, part: Part) -> LocalOp:
    """One Slice for each output: the parts of several outputs need not lie side by side."""
    region = input_region(part, 0)
    axis = normal_axis(node.attribute("axis", 0), region.rank)
    start = 0
    nodes: list[LocalNode] = []
    constants: dict[str, np.ndarray] = {"axis": int64((axis,))}
    for position, full_shape in enumerate(node.output_shapes):
        output = output_region(part, position)
        assert full_shape is not None, "Split makes all its outputs"
        first = start + output.lo[axis] - region.lo[axis]
        low, high = f"low{position}", f"high{position}"
        constants[low], constants[high] = int64((first,)), int64((first + output.shape[axis],))
        nodes.append(LocalNode("Slice", ("in0", low, high, "axis"), (f"out{position}",)))
        start += full_shape[axis]
    return LocalOp(tuple(nodes), constants)


@op("Split", local=split_local)
def split(node: NodeView, X: TensorArg, sizes: TensorArg | None = None) -> object:
    """Each output a stretch of axis.

    Outputs of one size share the variable of axis: cut along it, every output is cut alike (query, key and value by
    heads). Stretches of several sizes have a variable each.
    """
    axis = normal_axis(node.attribute("axis", 0), X.rank)
    lengths = [node.output_size(axis, position) for position in range(len(node.output_shapes))]
    alike = len(set(lengths)) == 1
    described = []
    for position in range(len(lengths)):
        names = [f"i{dim}" for dim in range(X.rank)]
        if not alike:
            names[axis] = f"stretch{position}"
        described.append(over(names, _shifted(X, axis, sum(lengths[:position]))))
    return tuple(described)


def _slicing(node: NodeView, rank: int) -> dict[int, tuple[int, int]]:
    """(start, step) by axis. Starts are clamped as ONNX says, which is not as NumPy does where the step is negative."""
    starts = node.constant(1).ravel()
    axes = node.constant(3).ravel() if node.has(3) else np.arange(len(starts))
    steps = node.constant(4).ravel() if node.has(4) else np.ones(len(starts), dtype=np.int64)
    slices = {}
    for start, axis, step in zip(starts.tolist(), axes.tolist(), steps.tolist(), strict=True):
        dim = normal_axis(axis, rank)
        size = node.size(0, dim)
        first = start + size if start < 0 else start
        slices[dim] = (min(max(first, 0), size if step > 0 else size - 1), step)
    return slices


def slice_local(node: NodeView, part: Part) -> LocalOp:
    """Takes every step-th element of the hull that the part reads, from the end where the step is negative."""
    region = input_region(part, 0)
    slicing = _slicing(node, region.rank)
    shape = region.shape
    axes = sorted(slicing)
    forward = {dim: slicing[dim][1] > 0 for dim in axes}
    constants = {
        "starts": int64([0 if forward[dim] else shape[dim] - 1 for dim in axes]),
        "ends": int64([shape[dim] if forward[dim] else -shape[dim] - 1 for dim in axes]),
        "axes": int64(axes),
        "steps": int64([slicing[dim][1] for dim in axes]),
    }
    return LocalOp((LocalNode("Slice", ("in0", "starts", "ends", "axes", "steps"), ("out0",)),), constants)


@op("Slice", local=slice_local)
def slice_(node: NodeView, X: TensorArg, *bounds: TensorArg | None) -> object:
    """Output i reads start + step * i; the step may be negative."""
    slicing = _slicing(node, X.rank)
    return lambda *i: X[
        tuple(i[dim] * slicing[dim][1] + slicing[dim][0] if dim in slicing else i[dim] for dim in range(X.rank))
    ]


def expand_local(node: NodeView, part: Part) -> LocalOp:
    """Expands to the part's own shape."""
    shape = int64(output_shape(node, part))
    return LocalOp((LocalNode("Expand", ("in0", "shape"), ("out0",)),), {"shape": shape})


@op("Expand", local=expand_local)
def expand(node: NodeView, X: TensorArg, shape: TensorArg) -> object:
    """Broadcasts against a shape."""
    return lambda *i: broadcast(node, X, i)


def tile_local(node: NodeView, part: Part) -> LocalOp:
    """Within one period a copy; beyond, as many repeats of the whole dim as the part touches, then a Slice."""
    full_shape, region, output = node.input_shape(0), input_region(part, 0), output_region(part)
    if full_shape == ():
        return LocalOp((LocalNode("Identity", ("in0",), ("out0",)),))
    repeats, starts = [], []
    for dim, size in enumerate(full_shape):
        first, last = output.lo[dim] // size, (output.hi[dim] - 1) // size
        repeats.append(last - first + 1)
        starts.append(output.lo[dim] - first * size - region.lo[dim])
    constants = {"repeats": int64(repeats)}
    if tuple(extent * repeat for extent, repeat in zip(region.shape, repeats, strict=True)) == output.shape:
        return LocalOp((LocalNode("Tile", ("in0", "repeats"), ("out0",)),), constants)
    constants["starts"] = int64(starts)
    constants["ends"] = int64([start + extent for start, extent in zip(starts, output.shape, strict=True)])
    return LocalOp(
        (LocalNode("Tile", ("in0", "repeats"), ("tiled",)), LocalNode("Slice", ("tiled", "starts", "ends"), ("out0",))),
        constants,
    )


@op("Tile", local=tile_local)
def tile(node: NodeView, X: TensorArg, repeats: TensorArg) -> object:
    """Output i reads i % size; dims that are not repeated are read at i."""
    sizes = [None if node.size(0, dim) == node.output_size(dim) else node.size(0, dim) for dim in range(X.rank)]
    return lambda *i: X[tuple(var if size is None else var % size for var, size in zip(i, sizes, strict=True))]


def _padding(node: NodeView, rank: int) -> dict[int, tuple[int, int]]:
    """(before, after) by dim, of the dims that are padded or (negative) cropped."""
    pads = [int(value) for value in node.constant(1).ravel()]
    axes = [int(axis) for axis in node.constant(3).ravel()] if node.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise DescriptionError(f"{len(pads)} pads for {len(axes)} axes")
    return {
        normal_axis(axis, rank): (pads[number], pads[number + len(axes)])
        for number, axis in enumerate(axes)
        if pads[number] or pads[number + len(axes)]
    }


def _fill(node: NodeView) -> float | None:
    """What is padded with; None where it is data."""
    if not node.has(2):
        return 0.0
    fill = node.constant_if_known(2)
    return None if fill is None else float(fill.reshape(()).item())


def pad_local(node: NodeView, part: Part) -> LocalOp:
    """Pads only where the part lies at a border."""
    if node.attribute("mode", "constant") != "constant":
        return same_op(node, part)
    reach = part.reach[0]
    if reach is None:
        fill = _fill(node)
        if fill is not None:
            return constant_result(node, part, fill)
        return LocalOp((LocalNode("Expand", ("in2", "shape"), ("out0",)),), {"shape": int64(output_shape(node, part))})
    return same_op(node, part, constants={1: int64((*reach[0], *reach[1]))}, drop=(3,))


@op("Pad", local=pad_local)
def pad(
    node: NodeView,
    X: TensorArg,
    pads: TensorArg,
    value: TensorArg | None = None,
    axes: TensorArg | None = None,
) -> object:
    """Constant padding is a read past the border; the other modes look back into the tensor, and keep those dims."""
    padding = _padding(node, X.rank)
    mode = node.attribute("mode", "constant")
    if mode == "constant":
        fill = _fill(node)
        padded = X.padded(fill or 0.0)

        def element(*i: Ix) -> Val:
            read = padded[tuple(var - padding.get(dim, (0, 0))[0] for dim, var in enumerate(i))]
            return read if fill is not None or value is None else call("Pad", read, value[(0,) * value.rank])

        return element
    padded_dims = [dim for dim in range(X.rank) if dim in padding]
    return lambda *i: Opaque(mode)(X[tuple(slice(None) if dim in padding else var for dim, var in enumerate(i))])[
        tuple(i[dim] for dim in padded_dims)
    ]


def center_crop_pad_local(node: NodeView, part: Part) -> LocalOp:
    """Pads where the part lies at a border; what is cropped is not read."""
    reach = part.reach[0]
    if reach is None:
        return constant_result(node, part, 0.0)
    pads = int64((*reach[0], *reach[1]))
    return LocalOp((LocalNode("Pad", ("in0", "pads"), ("out0",)),), {"pads": pads})


@op("CenterCropPad", local=center_crop_pad_local)
def center_crop_pad(node: NodeView, X: TensorArg, shape: TensorArg) -> object:
    """Crops to, or pads to, a size around the middle; an odd element more is after the middle."""
    padded = X.padded(0.0)
    axes = normal_axes(node.attribute("axes") or tuple(range(X.rank)), X.rank)
    shifts = {}
    for dim in axes:
        growth = node.output_size(dim) - node.size(0, dim)
        shifts[dim] = -(growth // 2) if growth >= 0 else -growth // 2
    return lambda *i: padded[tuple(var + shifts.get(dim, 0) for dim, var in enumerate(i))]


def trilu_local(node: NodeView, part: Part) -> LocalOp:
    """The diagonal moves with the part's corner."""
    rank = node.output_rank()
    row, column = part.ranges[f"i{rank - 2}"][0], part.ranges[f"i{rank - 1}"][0]
    diagonal = node.constant_if_known(1) if node.has(1) else np.array(0)
    moved = np.array(row - column + (0 if diagonal is None else int(diagonal.reshape(()).item())), dtype=np.int64)
    trilu = LocalNode("Trilu", ("in0", "k"), ("out0",), {"upper": node.attribute("upper", 1)})
    if diagonal is not None:
        return LocalOp((trilu,), {"k": moved})
    return LocalOp((LocalNode("Add", ("in1", "moved"), ("k",)), trilu), {"moved": moved})


@op("Trilu", local=trilu_local)
def trilu(node: NodeView, X: TensorArg, k: TensorArg | None = None) -> object:
    """The upper or lower triangle of each matrix, the rest 0: a guard on the position, which the local k follows."""
    diagonal = [] if k is None or node.constant_if_known(1) is not None else [k[(0,) * k.rank]]
    return lambda *i: call("Trilu", X[i], *diagonal)
