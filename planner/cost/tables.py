"""Pairwise tables of bytes: for a tensor's tiling and an op's strategy, what moves between workers.

Every entry is a count by box overlap over all workers, exact for uneven pieces and halos. Tables are kept by
content (the op's analysis and extents, position, shapes, candidate lists), so repeated layers cost nothing again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import made_tiling, redistribution_table
from planner.algebra.region import Boxes, BoxStack, index_space
from planner.algebra.tiling import Tiling
from planner.graph.model import Tensor
from planner.tdl.bind import BoundOp

Candidates: TypeAlias = tuple[Tiling, ...]
Table: TypeAlias = NDArray[np.int64]


class CostTables:
    """Makes tables and remembers them.

    Candidate lists are told apart by identity, which is quick where they are long: callers pass the same list again
    for the same candidates (as ``Problem`` does), or get a table made anew. Equal requests give the same array.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], tuple[Table, Candidates, Candidates]] = {}
        self._reads: dict[tuple[object, ...], dict[int, Boxes]] = {}
        self.entries = 0
        """Table entries evaluated so far (not counting those found again)."""
        self.lists: dict[Candidates, Candidates] = {}
        """The one list of each content; searches that share the tables share these."""
        self.local: dict[tuple[object, ...], bool] = {}
        """Whether a strategy can be computed by local ops, by the op's content and strategy; shared as well."""

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an op can read an input, shape [tilings, strategies]."""
        key = ("in", slot, bound.content, id(tilings), id(strategies))
        elements = self._remember(
            key, tilings, strategies, lambda: self._input_elements(bound, slot, tilings, strategies)
        )
        return elements * tensor.dtype.item_bytes

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an output arrives where it is owned, shape [tilings, strategies]."""
        item_bytes = tensor.dtype.item_bytes
        key = ("out", position, bound.content, item_bytes, id(tilings), id(strategies))
        return self._remember(
            key, tilings, strategies, lambda: output_elements(bound, position, tilings, strategies) * item_bytes
        )

    def _remember(
        self, key: tuple[object, ...], tilings: Candidates, strategies: Candidates, make: Callable[[], Table]
    ) -> Table:
        known = self._tables.get(key)
        if known is None:
            # The lists are kept with the table: an identity means something only while its object lives.
            known = self._tables[key] = (make(), tilings, strategies)
            self.entries += known[0].size
        return known[0]

    def _input_elements(self, bound: BoundOp, slot: int, tilings: Candidates, strategies: Candidates) -> Table:
        needs = BoxStack.of([needed[slot] for needed in self._needed(bound, strategies)])
        shape = bound.node.input_shapes[slot]
        assert shape is not None, "an absent input has no table"
        owned = BoxStack.of([tiling.boxes(shape) for tiling in tilings])
        return needs.elements[None] - owned.overlaps(needs)

    def _needed(self, bound: BoundOp, strategies: Candidates) -> list[dict[int, Boxes]]:
        """For each strategy the region of each input that each worker needs, by input position."""
        keys = [(bound.content, strategy) for strategy in strategies]
        new = [(key, strategy) for key, strategy in zip(keys, strategies, strict=True) if key not in self._reads]
        if new:
            ranges = [bound.ranges(strategy) for _, strategy in new]
            together = Boxes(np.concatenate([r.lo for r in ranges]), np.concatenate([r.hi for r in ranges]))
            reads = bound.reads(together)
            for number, (key, strategy) in enumerate(new):
                rows = slice(number * strategy.workers, (number + 1) * strategy.workers)
                self._reads[key] = {
                    slot: Boxes(read.boxes.lo[rows], read.boxes.hi[rows]) for slot, read in reads.items()
                }
        return [self._reads[key] for key in keys]


def output_elements(bound: BoundOp, position: int, tilings: Candidates, strategies: Candidates) -> Table:
    """Elements that move so that an output arrives where it is owned, shape [tilings, strategies]."""
    dims, shape = bound.analysis.outputs[position], bound.node.output_shapes[position]
    assert dims is not None, "an absent output has no table"
    assert shape is not None, "an absent output has no table"
    numbers: dict[Tiling, int] = {}
    which = [
        numbers.setdefault(made_tiling(strategy, dims, bound.reducers(strategy)), len(numbers))
        for strategy in strategies
    ]
    return redistribution_table(list(numbers), tilings, index_space(shape))[:, which]
