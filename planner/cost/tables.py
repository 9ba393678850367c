"""Pairwise tables of bytes: for a tensor's tiling and an op's strategy, what moves between workers.

Every entry is a count by box overlap over all workers, exact for uneven pieces and halos. Tables are kept by
content (the op's analysis and extents, position, shapes, candidate lists), so repeated layers cost nothing again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import made_tiling, redistribution_elements
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Tiling
from planner.graph.model import Tensor
from planner.tdl.bind import BoundOp

Candidates: TypeAlias = tuple[Tiling, ...]
Table: TypeAlias = NDArray[np.int64]


def content_key(bound: BoundOp) -> tuple[object, ...]:
    """What an op's tables depend on, besides candidates: equal for repeated layers."""
    return (id(bound.analysis), bound.extents, bound.node.input_shapes, bound.node.output_shapes)


class CostTables:
    """Makes tables and remembers them."""

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], Table] = {}
        self._reads: dict[tuple[object, ...], dict[int, Boxes]] = {}
        self.entries = 0
        """Table entries evaluated so far (not counting those found again)."""

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an op can read an input, shape [tilings, strategies]."""
        key = ("in", slot, content_key(bound), tilings, strategies)
        elements = self._remember(key, lambda: self._input_elements(bound, slot, tilings, strategies))
        return elements * tensor.dtype.item_bytes

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an output arrives where it is owned, shape [tilings, strategies]."""
        key = ("out", position, content_key(bound), tilings, strategies)
        elements = self._remember(key, lambda: output_elements(bound, position, tilings, strategies))
        return elements * tensor.dtype.item_bytes

    def _remember(self, key: tuple[object, ...], make: Callable[[], Table]) -> Table:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = make()
            self.entries += table.size
        return table

    def _input_elements(self, bound: BoundOp, slot: int, tilings: Candidates, strategies: Candidates) -> Table:
        needs = [self._needed(bound, strategy)[slot] for strategy in strategies]
        lo, hi = np.stack([boxes.lo for boxes in needs]), np.stack([boxes.hi for boxes in needs])
        shape = bound.node.input_shapes[slot]
        assert shape is not None, "an absent input has no table"
        owned = [tiling.boxes(shape) for tiling in tilings]
        own_lo, own_hi = np.stack([boxes.lo for boxes in owned]), np.stack([boxes.hi for boxes in owned])
        needed = np.maximum(hi - lo, 0).prod(axis=2).sum(axis=1)
        common = np.minimum(hi[None], own_hi[:, None]) - np.maximum(lo[None], own_lo[:, None])
        here = np.maximum(common, 0).prod(axis=3).sum(axis=2)
        table: Table = needed[None] - here
        return table

    def _needed(self, bound: BoundOp, strategy: Tiling) -> dict[int, Boxes]:
        """The region of each input that each worker needs, by input position."""
        key = (content_key(bound), strategy)
        known = self._reads.get(key)
        if known is None:
            reads = bound.reads(bound.ranges(strategy))
            known = self._reads[key] = {slot: read.boxes for slot, read in reads.items()}
        return known


def output_elements(bound: BoundOp, position: int, tilings: Candidates, strategies: Candidates) -> Table:
    """Elements that move so that an output arrives where it is owned, shape [tilings, strategies]."""
    dims, shape = bound.analysis.outputs[position], bound.node.output_shapes[position]
    assert dims is not None, "an absent output has no table"
    assert shape is not None, "an absent output has no table"
    space = index_space(shape)
    made = [made_tiling(strategy, dims, bound.reducers(strategy)) for strategy in strategies]
    rows = [[redistribution_elements(source, tiling, space) for source in made] for tiling in tilings]
    return np.array(rows, dtype=np.int64)
