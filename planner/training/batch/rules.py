"""Ops whose constants state the number of samples, or name samples: all else follows from the ops' descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner import opdefs
from planner.errors import UnsupportedError
from planner.graph.core.attributes import integer, integers, refuse
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.tdl import builder
from planner.tdl.builder import NodeView, TensorArg, call
from planner.tdl.flow import Flow, Passage, Track

_LAST: Final = 2**63 - 1
"""An end that is behind every dim."""
Stating: TypeAlias = Callable[[Graph, Op, Track, Shape], "tuple[int, np.ndarray] | None"]
"""From what ``restated`` takes to the position of an operand and its new value."""


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
        indices = self.graph.constants.get(op.inputs[1]) if of_types(op, ("GatherND",)) else None
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
    rule = None if op.domain else _STATING.get(op.op_type)
    return None if rule is None else rule(graph, op, track, shape)


def _shape(graph: Graph, op: Op, track: Track, shape: Shape) -> tuple[int, np.ndarray]:
    return 1, np.array(shape, np.int64)


def _sizes(slot: int) -> Stating:
    """Of an operand that states sizes of the axes that an attribute names, or of all."""

    def rule(graph: Graph, op: Op, track: Track, shape: Shape) -> tuple[int, np.ndarray] | None:
        return _along(graph, op, slot, integers(op, "axes", tuple(range(len(shape)))), track, shape[track.dim])

    return rule


def _ends(graph: Graph, op: Op, track: Track, shape: Shape) -> tuple[int, np.ndarray] | None:
    axes = graph.constants.get(op.inputs[3]) if op.has_input(3) else None
    numbers = range(len(shape)) if axes is None else axes.ravel().tolist()
    return _along(graph, op, 2, numbers, track, _LAST)


def _along(
    graph: Graph, op: Op, slot: int, axes: Sequence[int], track: Track, size: int
) -> tuple[int, np.ndarray] | None:
    """A constant with another number at the axis of the samples; None where it has none."""
    if not op.has_input(slot):
        return None
    value, rank = graph.constants.get(op.inputs[slot]), len(graph.tensors[op.outputs[0]].shape)
    if value is None:
        raise refuse(op, f"its operand {op.inputs[slot]!r} states sizes, and is no known constant")
    size = min(size, np.iinfo(value.dtype).max)
    sizes = [size if axis % rank == track.dim else int(old) for axis, old in zip(axes, value, strict=False)]
    return None if sizes == value.tolist() else (slot, np.array(sizes, value.dtype))


def _dropped(graph: Graph, op: Op, track: Track, shape: Shape) -> None:
    if len(op.inputs) < 2 and shape[track.dim] == 1:
        raise refuse(op, "it would drop a batch of 1: it states no axes")


_STATING: Final[Mapping[str, Stating]] = MappingProxyType(
    {
        "AffineGrid": _sizes(1),
        "CenterCropPad": _sizes(1),
        "Expand": _shape,
        "Reshape": _shape,
        "Resize": _sizes(3),
        "Slice": _ends,
        "Squeeze": _dropped,
    }
)
"""By operator that states sizes of its output, or ends of what it reads."""
