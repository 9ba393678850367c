"""Tensors that have parts beside each other along a dim, and how ops carry that from one tensor to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Final, TypeAlias

from planner.algebra.region import Region
from planner.graph.core.attributes import integer
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.graph.core.traits import RESHAPES
from planner.graph.rewriting.dims import NO_LABEL, Box, WholeError, dims_of, parts_of, whole_of

JOINED_BY: Final = {"ReduceSum": "Sum", "ReduceSumSquare": "Sum", "ReduceMax": "Max", "ReduceMin": "Min"}
"""By reduction, what makes that of a whole from those of its parts."""

InParts: TypeAlias = Mapping[str, Mapping[str, Region]]
"""By tensor that a graph has no more, its parts in order, and which box of it each is."""
Placed: TypeAlias = tuple[str, Region]
"""A tensor, and a box of it."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The parts of a tensor."""

    dim: int
    blocks: int
    """How often the parts follow one another along the dim."""
    widths: tuple[int, ...]
    """Of each part in a block, in elements along the dim."""

    @property
    def places(self) -> list[tuple[int, int]]:
        """The place of each part in a block."""
        return list(pairwise(accumulate(self.widths, initial=0)))

    def shapes(self, full_shape: Shape) -> list[Shape]:
        """The shape of each part of a tensor."""
        return [(*full_shape[: self.dim], self.blocks * width, *full_shape[self.dim + 1 :]) for width in self.widths]

    def boxes(self, full_shape: Shape) -> list[Region]:
        """The box of each part in a tensor of one block."""
        starts = [[start if dim == self.dim else 0 for dim in range(len(full_shape))] for start, _ in self.places]
        return [Region.whole(shape).moved(start) for shape, start in zip(self.shapes(full_shape), starts, strict=True)]

    def part_at(self, place: Box) -> int:
        """The part that lies there.

        Raises:
            WholeError: none does.
        """
        _, dim, *ends = place
        if self.blocks > 1 or dim != self.dim or tuple(ends) not in self.places:
            raise WholeError
        return self.places.index((ends[0], ends[1]))

    def reshaped(self, before: Shape, after: Shape) -> Packing:
        """The packing of a Reshape of the tensor: one dim of it has all parts whole.

        Raises:
            WholeError: none has.
        """
        inner = prod(before[self.dim + 1 :])
        period = sum(self.widths) * inner
        for dim, size in enumerate(after):
            stride = prod(after[dim + 1 :])
            is_whole = all(width * inner % stride == 0 for width in self.widths) if stride else False
            if stride < period <= stride * size and is_whole and stride * size % period == 0:
                return Packing(dim, stride * size // period, tuple(width * inner // stride for width in self.widths))
        raise WholeError


def boxes(graph: Graph, op: Op) -> dict[str, Region]:
    """Where each operand of a Concat lies in the result."""
    parts = parts_of(graph, op)
    packing = Packing(parts[0][1], 1, tuple(end - start for _, _, start, end in parts))
    return dict(zip(op.inputs, packing.boxes(graph.tensors[op.outputs[0]].shape), strict=True))


def carried(graph: Graph, op: Op, name: str, packing: Packing) -> list[tuple[str, Packing]]:
    """The tensors of an op that are packed because another is.

    Args:
        graph: of the op.
        op: that reads or makes the tensor.
        name: the packed tensor.
        packing: how it is packed.

    Raises:
        WholeError: the op needs the whole.
    """
    if of_types(op, RESHAPES) and name in (op.inputs[0], op.outputs[0]):
        peer = op.outputs[0] if name == op.inputs[0] else op.inputs[0]
        return [(peer, packing.reshaped(graph.tensors[name].shape, graph.tensors[peer].shape))]
    dims = dims_of(graph, op)
    sides = () if dims is None else dims.labels
    labels = {side[packing.dim] for operand, side in sides if operand == name}
    if dims is None or len(labels) != 1:
        raise WholeError
    (label,) = labels
    if label != NO_LABEL and label not in dims.along:
        size, group = graph.tensors[name].shape[packing.dim], integer(op, "group", 1)
        if group > 1 and any(width * group % size for width in packing.widths):
            raise WholeError
        beside = [(peer, side.index(label)) for peer, side in sides if label in side]
        # Sizes differ from this tensor's by the channels of a group.
        sizes = [graph.tensors[peer].shape[dim] for peer, dim in beside]
        stretched = [tuple(width * extent // size for width in packing.widths) for extent in sizes]
        return [(peer, Packing(dim, packing.blocks, wide)) for (peer, dim), wide in zip(beside, stretched, strict=True)]
    if name == whole_of(op):
        for box in parts_of(graph, op):
            packing.part_at(box)
    elif op.op_type not in JOINED_BY or name != op.inputs[0]:
        raise WholeError
    return []
