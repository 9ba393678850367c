"""Ops whose constants state the number of samples, or name samples: all else follows from the ops' descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from planner import opdefs
from planner.errors import UnsupportedError
from planner.graph.core.attributes import integer, integers, refuse
from planner.graph.core.model import Graph, Op, Shape
from planner.tdl import builder
from planner.tdl.builder import NodeView, TensorArg, call
from planner.tdl.flow import Flow, Passage, Track

_SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {"AffineGrid": 1, "CenterCropPad": 1, "Expand": 1, "Reshape": 1, "Resize": 3, "Slice": 2}
)
"""By operator, the operand that states sizes of its output, or the ends of what is read."""


@builder.op("Bernoulli", "RandomNormalLike", "RandomUniformLike")
def _random(node: NodeView, X: TensorArg) -> object:
    """An element of its own for each: of operators that no plan takes, and a training step may have."""
    return lambda *i: call(node.op.op_type, X[i])


class SampleFlow(Flow):
    """The flow of samples by the standard descriptions, and through index tuples that pick them by their number."""

    def __init__(self, graph: Graph, samples: int) -> None:
        super().__init__(graph, opdefs.standard(_random), samples)

    def through(self, op: Op, tracks: Mapping[str, Track]) -> Passage:
        """See ``Flow.through``."""
        try:
            return super().through(op, tracks)
        except UnsupportedError:
            dims = self._numbered_dims(op, tracks)
            if len(dims) != 1:
                raise
            return Passage((Track(dims[0]),), {1: Track(dims[0])})

    def _numbered_dims(self, op: Op, tracks: Mapping[str, Track]) -> list[int]:
        """Of a GatherND with known index tuples, the dims along which their first index counts the samples."""
        indices = self.graph.constants.get(op.inputs[1]) if op.op_type == "GatherND" and not op.domain else None
        if indices is None or tracks.get(op.inputs[0]) != Track(0) or integer(op, "batch_dims", 0):
            return []
        numbers = indices[..., 0]
        return [
            dim
            for dim, size in enumerate(numbers.shape)
            if size == self.samples and np.array_equal(numbers, counting(numbers.shape, dim))
        ]


def counting(shape: Shape, dim: int) -> np.ndarray:
    """0, 1, 2 ... along a dim."""
    line = np.arange(shape[dim]).reshape([-1 if index == dim else 1 for index in range(len(shape))])
    return np.broadcast_to(line, shape)


def restated(graph: Graph, op: Op, track: Track, shape: Shape) -> tuple[int, np.ndarray] | None:
    """The operand of an op that states how many samples there are, and its new value; None if none does.

    Args:
        graph: at its own number of samples.
        op: of the graph.
        track: the samples' place in the op's output.
        shape: of the output, at the new number of samples.

    Raises:
        UnsupportedError: the operand is no known constant; or the op drops a dim of 1, and the samples are one.
    """
    slot, rank = _SIZES.get(op.op_type), len(shape)
    if op.op_type == "Squeeze" and len(op.inputs) < 2 and shape[track.dim] == 1:
        raise refuse(op, "it would drop a batch of 1: it states no axes")
    if slot is None or op.domain or not op.has_input(slot):
        return None
    if op.op_type in ("Expand", "Reshape"):
        return slot, np.array(shape, np.int64)
    value = graph.constants.get(op.inputs[slot])
    if value is None:
        raise refuse(op, f"its operand {op.inputs[slot]!r} states sizes, and is no known constant")
    axes = graph.constants.get(op.inputs[3]) if op.op_type == "Slice" and op.has_input(3) else None
    numbers = integers(op, "axes", tuple(range(rank))) if axes is None else axes.ravel().tolist()
    size = np.iinfo(value.dtype).max if op.op_type == "Slice" else shape[track.dim]
    sizes = [size if axis % rank == track.dim else int(old) for axis, old in zip(numbers, value, strict=False)]
    return None if sizes == value.tolist() else (slot, np.array(sizes, value.dtype))
