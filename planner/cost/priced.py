"""Tables of bytes in which memory has a price: what moves, and a charge on what ops hold.

A Lagrangian relaxation of a limit on memory: the search goes on minimising one sum of pairwise tables. What an op holds
are the tiles of what it reads and makes, and the regions that are assembled for it or that it makes for others; over
all workers and all ops that is *held bytes*. This is a proxy (ops do not run all at once, tensors live on between
them); whether a plan fits is judged by its program.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.region import index_space
from planner.cost.tables import Candidates, CostTables, Table
from planner.graph.model import Graph, Tensor, is_used
from planner.plan import Plan
from planner.tdl.bind import BoundOp


def input_held(bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates) -> Table:
    """Bytes that an op holds for an input, [tilings, strategies]: tiles, and what it needs if they lack it."""
    space = index_space(tensor.shape)
    reads = [bound.reads(bound.ranges(strategy))[slot].boxes for strategy in strategies]
    lo, hi = np.stack([boxes.lo for boxes in reads]), np.stack([boxes.hi for boxes in reads])
    needed = np.maximum(hi - lo, 0).prod(axis=2)
    owned = [tiling.boxes(space) for tiling in tilings]
    own_lo, own_hi = np.stack([boxes.lo for boxes in owned])[:, None], np.stack([boxes.hi for boxes in owned])[:, None]
    here = np.maximum(np.minimum(hi[None], own_hi) - np.maximum(lo[None], own_lo), 0).prod(axis=3)
    assembled = np.where(here < needed[None], needed[None], 0).sum(axis=2)
    tiles = np.maximum(own_hi - own_lo, 0).prod(axis=3).sum(axis=2)
    table: Table = (tiles + assembled) * tensor.dtype.item_bytes
    return table


def output_held(bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates) -> Table:
    """Bytes that an op holds for an output, [tilings, strategies]: tiles, and what it makes where that is no tile."""
    dims = bound.analysis.outputs[position]
    assert dims is not None, "an absent output has no table"
    space = index_space(tensor.shape)
    made = [made_tiling(strategy, dims, bound.reducers(strategy)) for strategy in strategies]
    boxes = [tiling.boxes(space) for tiling in made]
    lo, hi = np.stack([one.lo for one in boxes])[None], np.stack([one.hi for one in boxes])[None]
    owned = [tiling.boxes(space) for tiling in tilings]
    own_lo, own_hi = np.stack([one.lo for one in owned])[:, None], np.stack([one.hi for one in owned])[:, None]
    in_place = ((lo == own_lo) & (hi == own_hi)).all(axis=3)
    in_place &= ~np.array([tiling.has_partial for tiling in made])[None, :, None]
    apart = np.where(in_place, 0, np.maximum(hi - lo, 0).prod(axis=3)).sum(axis=2)
    tiles = np.maximum(own_hi - own_lo, 0).prod(axis=3).sum(axis=2)
    table: Table = (tiles + apart) * tensor.dtype.item_bytes
    return table


def op_held(graph: Graph, bound: BoundOp, plan: Plan) -> Iterator[int]:
    """What an op of a plan holds, input by input and output by output."""
    strategy = (plan.strategies[bound.op.name].tiling,)
    for slot, first in bound.delivered_slots.items():
        name = bound.op.inputs[slot]
        if slot == first and name not in graph.constants:
            yield int(input_held(bound, slot, graph.tensors[name], (plan.tilings[name],), strategy)[0, 0])
    for position, name in enumerate(bound.op.outputs):
        if name and is_used(graph, name):
            yield int(output_held(bound, position, graph.tensors[name], (plan.tilings[name],), strategy)[0, 0])


class PricedTables(CostTables):
    """``CostTables`` that add a charge for each byte that is held."""

    def __init__(self, plain: CostTables, price: Fraction) -> None:
        """Shares what the plain tables know.

        Args:
            plain: what moves.
            price: moved bytes that a held byte is worth; not negative.
        """
        super().__init__()
        self._plain = plain
        self._price = price
        self.lists, self.local = plain.lists, plain.local

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """What moves, and the charge; shape [tilings, strategies]."""
        key = ("in", slot, bound.content, tensor.dtype, id(tilings), id(strategies))
        return self._remember(
            key,
            tilings,
            strategies,
            lambda: (
                self._plain.input_bytes(bound, slot, tensor, tilings, strategies)
                + self._charge(input_held(bound, slot, tensor, tilings, strategies))
            ),
        )

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """What moves, and the charge; shape [tilings, strategies]."""
        key = ("out", position, bound.content, tensor.dtype, id(tilings), id(strategies))
        return self._remember(
            key,
            tilings,
            strategies,
            lambda: (
                self._plain.output_bytes(bound, position, tensor, tilings, strategies)
                + self._charge(output_held(bound, position, tensor, tilings, strategies))
            ),
        )

    def _charge(self, held: Table) -> Table:
        # Whole bytes, rounded down by integers alone: equal plans cost the same on every machine.
        charge: Table = held * self._price.numerator // self._price.denominator
        return charge
