"""Tensors that have parts beside each other along a dim, and how ops carry that from one tensor to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Final, TypeAlias

from planner.algebra.region import Region
from planner.graph.core.attributes import axis_of, integer, integers, reduced_dims
from planner.graph.core.model import Graph, Op, Shape
from planner.graph.core.traits import CONVOLUTIONS, ELEMENT_WISE, PRODUCTS, RESHAPES
from planner.graph.rewriting.products import product_of

TAKING: Final = frozenset(("Gather", "Slice", "Split"))
"""Ops that take parts of their first operand."""
PUTTING: Final = frozenset(("Concat", "Pad"))
"""Ops whose operands are parts of the result."""
JOINED_BY: Final = {"ReduceSum": "Sum", "ReduceSumSquare": "Sum", "ReduceMax": "Max", "ReduceMin": "Min"}
"""By reduction, what makes that of a whole from those of its parts."""

InParts: TypeAlias = Mapping[str, Mapping[str, Region]]
"""By tensor that a graph has no more, its parts in order, and which box of it each is."""
Placed: TypeAlias = tuple[str, Region]
"""A tensor, and a box of it."""
Place: TypeAlias = tuple[str, int, int, int]
"""A tensor that lies in another one: along which dim, from where to where."""
_Labels: TypeAlias = tuple[int | None, ...]
"""By dim, equal where an op reads and makes the same places along it; None where it moves, joins or repeats them."""


class WholeError(Exception):
    """An op reads or makes a whole, and has no use for its parts."""


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

    def part_at(self, place: Place) -> int:
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


def places(graph: Graph, op: Op) -> list[Place]:
    """The parts that an op of ``TAKING`` takes, or one of ``PUTTING`` puts together; nothing of a dim that is taken
    whole.

    Raises:
        WholeError: that is not known, or these are no boxes.
    """
    shape = graph.tensors[op.inputs[0]].shape
    if op.op_type in ("Concat", "Split"):
        axis, names = axis_of(op, len(shape), 0), op.inputs if op.op_type == "Concat" else op.outputs
        if not all(names):
            raise WholeError
        borders = pairwise(accumulate((graph.tensors[name].shape[axis] for name in names), initial=0))
        return [(name, axis, start, end) for name, (start, end) in zip(names, borders, strict=True)]
    arrays = [value for name in op.inputs[1:] if (value := graph.constants.get(name)) is not None]
    if not arrays or len(arrays) < len(op.inputs) - 1:
        raise WholeError
    rank, values = len(shape), [value.reshape(-1).tolist() for value in arrays]
    if op.op_type == "Gather":
        axis, index = axis_of(op, rank, 0), [position % shape[axis_of(op, rank, 0)] for position in values[0]]
        if arrays[0].ndim > 1 or not index or index != list(range(index[0], index[0] + len(index))):
            raise WholeError
        return [(op.outputs[0], axis, index[0], index[-1] + 1)]
    if op.op_type == "Pad":
        before, after = values[0][:rank], values[0][rank:]
        is_plain = op.attribute("mode", "constant") == "constant" and len(after) == rank and min(values[0]) >= 0
        if not is_plain or any(any(value) for value in values[1:]):
            raise WholeError
        around = enumerate(zip(before, after, shape, strict=True))
        return [(op.inputs[0], dim, low, low + size) for dim, (low, high, size) in around if low or high]
    count = len(values[0])
    # A Slice may leave out its axes, then the first ones, and its steps, then 1.
    stated = [*values, *([*range(count)], [1] * count)[len(values) - 2 :]]
    parts = []
    for start, end, axis, step in zip(*stated, strict=True):
        span = range(*slice(start, end, step).indices(shape[axis]))
        if span.step != 1 or not span:
            raise WholeError
        if len(span) < shape[axis]:
            parts.append((op.outputs[0], axis % rank, span.start, span.stop))
    return parts


def boxes(graph: Graph, op: Op) -> dict[str, Region]:
    """Where each operand of a Concat lies in the result."""
    parts = places(graph, op)
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
    if op.domain or not any(op.inputs[:1]) or (len(op.outputs) > 1 and op.op_type != "Split"):
        raise WholeError
    if op.op_type in RESHAPES and name in (op.inputs[0], op.outputs[0]):
        peer = op.outputs[0] if name == op.inputs[0] else op.inputs[0]
        return [(peer, packing.reshaped(graph.tensors[name].shape, graph.tensors[peer].shape))]
    sides = _labelled(graph, op)
    labels = {side[packing.dim] if packing.dim < len(side) else None for operand, side in sides if operand == name}
    if len(labels) != 1:
        raise WholeError
    (label,) = labels
    if label is not None:
        size, group = graph.tensors[name].shape[packing.dim], integer(op, "group", 1)
        if group > 1 and any(width * group % size for width in packing.widths):
            raise WholeError
        beside = [(peer, side.index(label)) for peer, side in sides if label in side]
        # Sizes differ from this tensor's by the channels of a group.
        sizes = [graph.tensors[peer].shape[dim] for peer, dim in beside]
        stretched = [tuple(width * extent // size for width in packing.widths) for extent in sizes]
        return [(peer, Packing(dim, packing.blocks, wide)) for (peer, dim), wide in zip(beside, stretched, strict=True)]
    if name == (op.inputs if op.op_type in TAKING else op.outputs)[0] and op.op_type in TAKING | PUTTING:
        parts = [packing.part_at(place) for place in places(graph, op)]
        if op.op_type != "Concat" or parts == list(range(len(packing.widths))):
            return []
    elif op.op_type in JOINED_BY and name == op.inputs[0]:
        return []
    raise WholeError


def _labelled(graph: Graph, op: Op) -> list[tuple[str, _Labels]]:
    """The tensors of an op that may be packed, with labels of their dims; [] of an op that knows wholes alone."""
    shapes = {name: graph.tensors[name].shape for name in (*op.inputs, *op.outputs) if name}
    source, target = op.inputs[0], op.outputs[0]
    plain = tuple(range(len(shapes[source])))

    def broadcast(result: _Labels, names: Sequence[str]) -> list[tuple[str, _Labels]]:
        return [
            (name, _without(result[len(result) - len(shape) :], [dim for dim, size in enumerate(shape) if size == 1]))
            for name in names
            if (shape := shapes.get(name)) is not None
        ]

    if op.op_type in ELEMENT_WISE:
        result = tuple(range(len(shapes[target])))
        return [*broadcast(result, op.inputs), (target, result)]
    if op.op_type in PRODUCTS:
        product = product_of(op, graph.tensors)
        if product is None:
            return []
        added = broadcast(product.result, op.inputs[2:] if op.op_type == "Gemm" else ())
        return [*zip(product.operands, product.labels, strict=True), *added, (target, product.result)]
    if op.op_type == "Transpose":
        return [(source, plain), (target, integers(op, "perm", plain[::-1]))]
    if op.op_type in CONVOLUTIONS and integer(op, "group", 1) > 1:
        # With groups, channels correspond and nothing else does: dim 1 of images, dim 0 of filters and bias.
        of_groups = {"": 1, source: 1, op.inputs[1]: 0, **dict.fromkeys(op.inputs[2:], 0), target: 1}
        return [(name, (*(None,) * dim, 0)) for name, dim in of_groups.items() if name]
    if op.op_type in TAKING | PUTTING:
        if op.op_type == "Gather":
            axis = axis_of(op, len(plain), 0)
            index: _Labels = (None,) * len(shapes[op.inputs[1]])
            return [(source, _without(plain, (axis,))), (target, (*plain[:axis], *index, *plain[axis + 1 :]))]
        labels = _without(plain, {dim for _, dim, _, _ in places(graph, op)})
        names = {"Concat": (*op.inputs, target), "Split": (source, *op.outputs)}.get(op.op_type, (source, target))
        return [(name, labels) for name in names]
    if op.op_type.startswith("Reduce"):
        axes = reduced_dims(op, len(plain), graph.constants.get)
        if axes is not None:
            labels = _without(plain, axes)
            return [(source, labels), (target, tuple(d for d in labels if d is not None or integer(op, "keepdims", 1)))]
    return []


def _without(labels: _Labels, dims: Collection[int]) -> _Labels:
    return tuple(None if dim in dims else label for dim, label in enumerate(labels))
