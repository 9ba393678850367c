"""Helpers of lookups and scatters that are cut along the dim that the data name.

A worker that holds positions ``lo .. hi`` of the dim counts the data's indices from lo; those that fall outside of
its part find nothing (a lookup gives zero, a scatter goes to a spare row that is cut off again). An index that is
beyond the whole dim stays as it is: it is beyond every part, and the runtime refuses it there as it does in the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from planner.graph.core.model import DType
from planner.opdefs.parts import int64
from planner.tdl.builder import Ix, NodeView
from planner.tdl.local import LocalNode, NotLocalError

_WIDEST = 16
"""A strip of known places that is wider is a lookup."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Known places along a line: those of index i are between ``first + slope * i`` and ``width`` behind it."""

    dim: int
    """Of the places' array, along which i counts."""
    slope: Fraction
    first: Fraction
    width: Fraction

    def at(self, i: Ix, end: Ix) -> Ix:
        """The one end of what index i reads, and the other, where ``end`` is 1."""
        return i * self.slope + self.first + end * self.width


def strip_of(places: np.ndarray, size: int, *, dim: int | None = None, widest: int | None = None) -> Strip | None:
    """The narrowest strip with the slope of a resized dim or of its ends; None where places are a lookup.

    Args:
        places: in a dim, counted from its front.
        size: of the dim.
        dim: of the array, along which indices count; the longest unless stated.
        widest: that is no lookup; half of the dim unless stated.
    """
    if places.size < 2 or places.min() < 0 or places.max() >= size:
        return None
    dim = int(np.argmax(places.shape)) if dim is None else dim
    lines = np.moveaxis(places, dim, 0).reshape(places.shape[dim], -1)
    low, high = lines.min(axis=1), lines.max(axis=1)
    count, strips = len(lines), []
    for slope in (Fraction(size, count), Fraction(int(low[-1] - low[0]), max(1, count - 1))):
        n, along = slope.denominator, np.arange(count) * slope.numerator
        first, last = int((low * n - along).min()), int((high * n - along).max())
        strips.append(Strip(dim, slope, Fraction(first, n), Fraction(last - first, n)))
    best = min(strips, key=lambda strip: strip.width)
    return best if best.width <= min(_WIDEST, size // 2 if widest is None else widest) else None


@dataclass(frozen=True, slots=True)
class Counted:
    """Nodes that count indices from a part's first position: ``own`` is the index, ``inside`` where it is in it."""

    nodes: tuple[LocalNode, ...]
    constants: dict[str, np.ndarray]
    indices: str
    """Name of the array of the data's indices."""

    def placed(self, elsewhere: str, name: str) -> tuple[LocalNode, ...]:
        """Nodes that make the index for the part: of what is outside of it another, of what is nowhere the data's own.

        Args:
            elsewhere: the array of what stands for an index of another part.
            name: of the array that is made.
        """
        return (
            LocalNode("Where", ("inside", "own", elsewhere), ("known",)),
            LocalNode("Less", ("position", "nought"), ("before_all",)),
            LocalNode("Less", ("position", "sizes"), ("not_behind_all",)),
            LocalNode("Where", ("before_all", self.indices, "known"), ("not_before",)),
            LocalNode("Where", ("not_behind_all", "not_before", self.indices), (name,)),
        )


def counted(
    indices: str, dtype: DType, sizes: Sequence[int], lows: Sequence[int], highs: Sequence[int], *, listed: bool
) -> Counted:
    """Counts indices from a part's first position; negative ones count from the end, as ONNX says.

    Args:
        indices: name of their array, "in1".
        dtype: of the indices.
        sizes: of the whole dims that they name.
        lows: the part's first position in each.
        highs: the one after its last.
        listed: True if the last dim of the indices lists the dims that they name (GatherND), False if there is one.
    """

    def array_of(values: Sequence[int]) -> np.ndarray:
        return np.array(values if listed else values[0], dtype=dtype.value)

    lengths = [hi - lo for lo, hi in zip(lows, highs, strict=True)]
    constants = {
        "nought": np.array(0, dtype=dtype.value),
        "sizes": array_of(sizes),
        "lows": array_of(lows),
        "lengths": array_of(lengths),
    }
    nodes = [
        LocalNode("Less", (indices, "nought"), ("from_end",)),
        LocalNode("Add", (indices, "sizes"), ("wrapped",)),
        LocalNode("Where", ("from_end", "wrapped", indices), ("position",)),
        LocalNode("Sub", ("position", "lows"), ("own",)),
        LocalNode("Less", ("own", "nought"), ("below",)),
        LocalNode("Less", ("own", "lengths"), ("short",)),
        LocalNode("Not", ("below",), ("not_below",)),
        LocalNode("And", ("not_below", "short"), ("each" if listed else "inside",)),
    ]
    # An index tuple lies inside if each of its indices does: as many are inside as it has.
    if listed:
        constants["last"] = int64((-1,))
        constants["all_of_them"] = np.array(len(sizes), dtype=np.int32)
        nodes += [
            LocalNode("Cast", ("each",), ("each_counts",), {"to": 6}),
            LocalNode("ReduceSum", ("each_counts", "last"), ("count",), {"keepdims": 1}),
            LocalNode("Equal", ("count", "all_of_them"), ("inside",)),
        ]
    return Counted(tuple(nodes), constants, indices)


def index_dtype(node: NodeView, slot: int = 1) -> DType:
    """Dtype of the input that holds the indices."""
    dtype = node.input_dtype(slot)
    return dtype


def refuse_flags(dtype: DType) -> None:
    """Raises NotLocalError for booleans: partial results of a lookup are added, which they cannot be."""
    if dtype is DType.BOOL:
        raise NotLocalError("flags that are looked up in parts cannot be added")
