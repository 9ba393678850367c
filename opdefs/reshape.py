"""Operators that keep the order of elements and change the shape: Reshape, Flatten, Squeeze, Unsqueeze.

The dims of both shapes are matched into groups of equal product. Merging (4, 16) into 64 reads
``x[i // 16, i % 16]``; splitting 64 into (4, 16) reads ``x[16*h + d]``; any other group does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from planner.algebra.region import Region
from planner.errors import DescriptionError
from planner.graph.core.model import Shape
from planner.opdefs.broadcast import normal_axes
from planner.opdefs.parts import input_region, int64, output_region
from planner.tdl.builder import Ix, NodeView, TensorArg, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part


@dataclass(frozen=True, slots=True)
class Group:
    """Input dims and output dims that hold the same elements in the same order; sizes 1 left out."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def matched_groups(before: Shape, after: Shape) -> tuple[Group, ...]:
    """The least groups of dims with equal products.

    Raises:
        DescriptionError: the shapes hold different numbers of elements, or none.
    """
    if prod(before) != prod(after) or prod(before) == 0:
        raise DescriptionError(f"shape {list(before)} cannot be reshaped to {list(after)}")
    input_dims = [dim for dim, size in enumerate(before) if size != 1]
    output_dims = [dim for dim, size in enumerate(after) if size != 1]
    groups = []
    while input_dims:
        inputs, outputs = [input_dims.pop(0)], [output_dims.pop(0)]
        held, wanted = before[inputs[0]], after[outputs[0]]
        while held != wanted:
            if held < wanted:
                inputs.append(input_dims.pop(0))
                held *= before[inputs[-1]]
            else:
                outputs.append(output_dims.pop(0))
                wanted *= after[outputs[-1]]
        groups.append(Group(tuple(inputs), tuple(outputs)))
    return tuple(groups)


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The reading of one group's input dims: all that the description needs of the sizes."""

    flat: tuple[tuple[int, int], ...]
    """(output dim, elements below one step of it): their sum of products is the element's number in the group."""
    inputs: tuple[tuple[int, int, int | None], ...]
    """(input dim, divisor, remainder by; None for the first): its index is ``number // divisor % by``."""


def _regroupings(node: NodeView) -> tuple[Regrouping, ...]:
    before, after = node.input_shapes[0], node.output_shapes[0]
    assert before is not None, "the input is there"
    assert after is not None, "the output is there"
    return tuple(
        Regrouping(
            flat=tuple(
                (dim, prod(after[inner] for inner in group.outputs[number + 1 :]))
                for number, dim in enumerate(group.outputs)
            ),
            inputs=tuple(
                (dim, prod(before[inner] for inner in group.inputs[number + 1 :]), before[dim] if number else None)
                for number, dim in enumerate(group.inputs)
            ),
        )
        for group in matched_groups(before, after)
    )


def _group_indices(group: Regrouping, i: Sequence[Ix]) -> dict[int, Ix]:
    """The index of each input dim of a group, from the output variables."""
    flat: Ix | None = None
    for dim, below in group.flat:
        term = i[dim] * below
        flat = term if flat is None else flat + term
    assert flat is not None, "a group has dims on both sides"
    return {dim: flat // by if modulus is None else flat // by % modulus for dim, by, modulus in group.inputs}


def reshaped_local(node: NodeView, part: Part) -> LocalOp:
    """Reshapes the hull that the part reads; where that holds more than the part, slices it out.

    A group's hull is flattened, widened to whole rows of the output (the excess is never looked at), reshaped to
    those rows, and the part is sliced out of them.

    Raises:
        NotLocalError: the hull of a group is no stretch of consecutive elements.
    """
    before, after = node.input_shapes[0], node.output_shapes[0]
    region, output = input_region(part, 0), output_region(part)
    assert before is not None, "the input is there"
    assert after is not None, "the output is there"
    wanted = () if after == () else output.shape
    if region.elements == output.elements:
        return _plain(wanted)
    flat: list[int] = []
    lows, highs = [], []
    rows: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(matched_groups(before, after)):
        length = prod(region.shape[dim] for dim in group.inputs)
        flat.append(length)
        if length == prod(output.shape[dim] for dim in group.outputs):
            continue
        start = _stretch_start(group, before, region)
        below = prod(after[dim] for dim in group.outputs[1:])
        first = group.outputs[0]
        rows |= {dim: (0, after[dim]) for dim in group.outputs[1:]}
        rows[first] = (output.lo[first], output.hi[first])
        lows.append((number, start - output.lo[first] * below))
        highs.append((number, output.hi[first] * below - start - length))
    return _rows_then_slice(flat, dict(lows), dict(highs), rows, output)


def _plain(shape: Shape) -> LocalOp:
    # allowzero stays out of it: no part is empty, so no size is 0.
    return LocalOp((LocalNode("Reshape", ("in0", "shape"), ("out0",)),), {"shape": int64(shape)})


def _stretch_start(group: Group, before: Shape, region: Region) -> int:
    """Number of the first element of a group's hull, in the group's own order."""
    start, free = 0, True
    for dim in group.inputs:
        start = start * before[dim] + region.lo[dim]
        if not free and region.shape[dim] != before[dim]:
            raise NotLocalError("the elements that a part of a Reshape reads are no stretch")
        free = free and region.shape[dim] == 1
    return start


def _rows_then_slice(
    flat: list[int],
    lows: dict[int, int],
    highs: dict[int, int],
    rows: dict[int, tuple[int, int]],
    output: Region,
) -> LocalOp:
    nodes: list[LocalNode] = [LocalNode("Reshape", ("in0", "flat"), ("stretch0",))]
    constants: dict[str, np.ndarray] = {"flat": int64(flat)}
    # A positive low or high is missing from the stretch, and padded; a negative one is excess, and cut.
    pads = int64([lows.get(number, 0) for number in range(len(flat))] + [highs.get(n, 0) for n in range(len(flat))])
    cut = [(number, max(0, -lows[number]), flat[number] - max(0, -highs[number])) for number in sorted(lows)]
    current = "stretch0"
    if any(low or high != flat[number] for number, low, high in cut):
        constants["cut_axes"] = int64([number for number, _, _ in cut])
        constants["cut_starts"] = int64([low for _, low, _ in cut])
        constants["cut_ends"] = int64([high for _, _, high in cut])
        nodes.append(LocalNode("Slice", (current, "cut_starts", "cut_ends", "cut_axes"), ("stretch1",)))
        current = "stretch1"
    if (pads > 0).any():
        constants["pads"] = np.maximum(pads, 0)
        nodes.append(LocalNode("Pad", (current, "pads"), ("stretch2",)))
        current = "stretch2"
    frame = [rows.get(dim, (lo, hi)) for dim, (lo, hi) in enumerate(zip(output.lo, output.hi, strict=True))]
    constants["rows"] = int64([hi - lo for lo, hi in frame])
    starts = [lo - row[0] for lo, row in zip(output.lo, frame, strict=True)]
    ends = [hi - row[0] for hi, row in zip(output.hi, frame, strict=True)]
    if tuple(hi - lo for lo, hi in frame) == output.shape:
        nodes.append(LocalNode("Reshape", (current, "rows"), ("out0",)))
        return LocalOp(tuple(nodes), constants)
    nodes.append(LocalNode("Reshape", (current, "rows"), ("framed",)))
    constants["starts"], constants["ends"] = int64(starts), int64(ends)
    nodes.append(LocalNode("Slice", ("framed", "starts", "ends"), ("out0",)))
    return LocalOp(tuple(nodes), constants)


@op("Reshape", "Flatten", local=reshaped_local)
def reshape(node: NodeView, X: TensorArg, shape: TensorArg | None = None) -> object:
    """The target shape is the output's, so that the shape input need not be known."""
    groups: tuple[Regrouping, ...] = node.derive(_regroupings)

    def where(i: Sequence[Ix]) -> tuple[Ix | int, ...]:
        index_by_dim: dict[int, Ix] = {}
        for group in groups:
            index_by_dim |= _group_indices(group, i)
        return tuple(index_by_dim.get(dim, 0) for dim in range(X.rank))

    return lambda *i: X[where(i)]


def plain_local(node: NodeView, part: Part) -> LocalOp:
    """A Reshape to the part's own shape."""
    output = output_region(part)
    return _plain(() if node.output_shapes[0] == () else output.shape)


def _axes(node: NodeView, rank: int) -> tuple[int, ...] | None:
    stated = node.constant(1).ravel() if node.has(1) else node.attribute("axes")
    return None if stated is None else normal_axes([int(axis) for axis in stated], rank)


@op("Squeeze", local=plain_local, always_local=lambda node: True)
def squeeze(node: NodeView, X: TensorArg, axes: TensorArg | None = None) -> object:
    """Leaves out dims of size 1: all of them, or those named."""
    dropped = _axes(node, X.rank)
    if dropped is None:
        dropped = tuple(dim for dim in range(X.rank) if node.is_single(0, dim))
    dims = [dim for dim in range(X.rank) if dim not in dropped]
    return lambda *i: X[tuple(i[dims.index(dim)] if dim in dims else 0 for dim in range(X.rank))]


@op("Unsqueeze", local=plain_local, always_local=lambda node: True)
def unsqueeze(node: NodeView, X: TensorArg, axes: TensorArg | None = None) -> object:
    """Puts in dims of size 1."""
    added = _axes(node, node.output_rank()) or ()
    return lambda *i: X[tuple(var for dim, var in enumerate(i) if dim not in added)]
