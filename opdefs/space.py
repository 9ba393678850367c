"""Operators that move between channels and positions: DepthToSpace, SpaceToDepth, Col2Im."""

from __future__ import annotations

from math import prod

import numpy as np

from planner.opdefs.parts import input_region, int64, output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part, same_op


def depth_to_space_local(node: NodeView, part: Part) -> LocalOp:
    """The channels of the part, picked out of the hull that it reads.

    Raises:
        NotLocalError: the part ends within a block.
    """
    block, region, output = node.attribute("blocksize"), input_region(part, 0), output_region(part)
    full_shape = node.output_shape()
    if any(edge % block for edge in (*output.lo[2:], *output.hi[2:])):
        raise NotLocalError("a part of DepthToSpace holds whole blocks")
    by_depth = node.attribute("mode", "DCR") == "DCR"
    channels = range(output.lo[1], output.hi[1])
    if by_depth:
        chosen = [number * full_shape[1] + channel for number in range(block * block) for channel in channels]
    else:
        chosen = [channel * block * block + number for channel in channels for number in range(block * block)]
    offsets = [channel - region.lo[1] for channel in chosen]
    move = LocalNode("DepthToSpace", ("picked",), ("out0",), dict(node.op.attributes))
    if offsets == list(range(region.shape[1])):
        return same_op(node, part)
    return LocalOp(
        (LocalNode("Gather", ("in0", "channels"), ("picked",), {"axis": 1}), move), {"channels": int64(offsets)}
    )


@op("DepthToSpace", local=depth_to_space_local)
def depth_to_space(node: NodeView, X: TensorArg) -> object:
    """Channels become the rows and columns of blocks."""
    block, channels = node.attribute("blocksize"), node.output_size(1)
    by_depth = node.attribute("mode", "DCR") == "DCR"

    def value(b: Ix, c: Ix, y: Ix, x: Ix) -> Val:
        inside = (y % block) * block + x % block
        channel = inside * channels + c if by_depth else c * (block * block) + inside
        return X[b, channel, y // block, x // block]

    return value


def space_to_depth_local(node: NodeView, part: Part) -> LocalOp:
    """One strided Slice for each place in a block, joined as channels."""
    block, region, output = node.attribute("blocksize"), input_region(part, 0), output_region(part)
    full_shape = node.input_shape(0)
    channels = full_shape[1]
    if output.shape[1] == channels * block * block:
        return same_op(node, part)
    nodes: list[LocalNode] = []
    constants: dict[str, np.ndarray] = {"axes": int64((1, 2, 3)), "steps": int64((1, block, block))}
    for place in range(output.lo[1] // channels, (output.hi[1] - 1) // channels + 1):
        first, last = max(output.lo[1], place * channels), min(output.hi[1], (place + 1) * channels)
        row = output.lo[2] * block + place // block - region.lo[2]
        column = output.lo[3] * block + place % block - region.lo[3]
        start = (first - place * channels - region.lo[1], row, column)
        end = (
            start[0] + last - first,
            row + (output.shape[2] - 1) * block + 1,
            column + (output.shape[3] - 1) * block + 1,
        )
        low, high = f"low{place}", f"high{place}"
        constants[low], constants[high] = int64(start), int64(end)
        nodes.append(LocalNode("Slice", ("in0", low, high, "axes", "steps"), (f"place{place}",)))
    nodes.append(LocalNode("Concat", tuple(node.outputs[0] for node in nodes), ("out0",), {"axis": 1}))
    return LocalOp(tuple(nodes), constants)


@op("SpaceToDepth", local=space_to_depth_local)
def space_to_depth(node: NodeView, X: TensorArg) -> object:
    """The rows and columns of blocks become channels."""
    block, channels = node.attribute("blocksize"), node.size(0, 1)

    def value(b: Ix, o: Ix, y: Ix, x: Ix) -> Val:
        place = o // channels
        return X[b, o % channels, y * block + place // block, x * block + place % block]

    return value


@op("Col2Im")
def col2im(node: NodeView, X: TensorArg, image: TensorArg, block: TensorArg) -> object:
    """Adds up the columns of each channel where they lie in its image."""
    size = prod(int(value) for value in node.constant(2))

    def value(b: Ix, c: Ix, *y: Ix) -> Val:
        columns = Sum(lambda r: X[b, c * size + r, :], extents=(size,))
        return Opaque("Col2Im")(columns)[y]

    return value
