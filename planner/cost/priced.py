"""Tables of bytes in which memory has prices: what moves, and a charge on what lies there at chosen moments.

A Lagrangian relaxation of a limit on memory: the search goes on minimising one sum of pairwise tables. What has a price
is residence (``planner.cost.residence``) at the moments at which plans are fullest, each with a price of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from planner.algebra.partial import IMPOSSIBLE
from planner.algebra.tiling import Tiling
from planner.cost.residence import Residence, Weights
from planner.cost.tables import Candidates, CostTables, Request, Table
from planner.graph.core.model import DType
from planner.tdl.bind import BoundOp

_MOST_CHARGED = 1 << 61
"""The charges of a graph add up to less: to an integer of 64 bits, with room for what moves."""
_MOMENTS = 16
"""As many moments have the highest price at most."""


class PricedTables(CostTables):
    """``CostTables`` that add a charge for each byte that lies on a worker at a moment that has a price."""

    def __init__(self, plain: CostTables, residence: Residence, prices: Mapping[int, Fraction]) -> None:
        """Shares what the plain tables know.

        Args:
            plain: what moves.
            residence: of the graph that is planned.
            prices: by moment, the moved bytes that a byte is worth; not negative.
        """
        super().__init__(plain.rates)
        self._plain = plain
        self._residence = residence
        weights = residence.weights(prices)
        as_rounded: dict[Weights, Weights] = {
            triple: (rounded(triple[0]), rounded(triple[1]), rounded(triple[2]))
            for triple in dict.fromkeys(weights.values())
        }
        self._weights = {port: as_rounded[triple] for port, triple in weights.items()}
        self.lists, self.local, self.shares = plain.lists, plain.local, plain.shares

    def kind(self, op: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """As of plain tables; ops that are equal differ if they run at moments of different prices."""
        port = (op.op.name, is_input, position)
        weights = self._weights.get(port)
        if weights is None:
            return self._plain.kind(op, is_input, position, dtype)
        return is_input, position, op.content, dtype, weights, self._residence.kind(port)

    def of_place(self, op: BoundOp) -> tuple[object, ...]:
        """The weights of an op's ports: ops that run far from moments that have a price have the same."""
        name = op.op.name
        ports = [(name, True, slot) for slot in range(len(op.op.inputs))]
        ports += [(name, False, position) for position in range(len(op.op.outputs))]
        weights = tuple((place, self._weights[port]) for place, port in enumerate(ports) if port in self._weights)
        return (*super().of_place(op), *weights)

    def impossible(self, most_bytes: int) -> int:
        """The number that stands for an impossible entry in sums of these tables: more than a plan takes with all
        charges.

        What lies on the workers because of a link is at most what it may bring there.
        """
        highest_weight = max((sum(weights) for weights in dict.fromkeys(self._weights.values())), default=Fraction(0))
        return self._plain.impossible(most_bytes) + most_bytes * ceil(highest_weight)

    def charges(self, op: BoundOp, strategies: Candidates) -> Table:
        """As of plain tables."""
        return self._plain.charges(op, strategies)

    def charge_kind(self, op: BoundOp) -> tuple[object, ...]:
        """As of plain tables."""
        return self._plain.charge_kind(op)

    def most_charged(self, op: BoundOp, workers: int) -> int:
        """As of plain tables."""
        return self._plain.most_charged(op, workers)

    def computing(self, op: BoundOp) -> int:
        """As of plain tables."""
        return self._plain.computing(op)

    def repeated(self, op: BoundOp, strategy: Tiling) -> int:
        """As of plain tables."""
        return self._plain.repeated(op, strategy)

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """The bytes that move, and the charge; each of shape [tilings, strategies]."""
        moved = self._plain.bytes_of(requests)
        return [self._charged(request, table) for request, table in zip(requests, moved, strict=True)]

    def _charged(self, request: Request, moved: Table) -> Table:
        op, is_input, position, tensor, tilings, strategies = request
        weights = self._weights.get((op.op.name, is_input, position))
        if weights is None:
            return moved

        def make() -> Table:
            held_tables = self._residence.tables(request)
            table = moved.copy()
            for held, price in zip(held_tables, weights, strict=True):
                if price:
                    # Whole bytes, rounded down by integers alone: equal plans cost the same on every machine.
                    table += held * price.numerator // price.denominator
            # What is impossible stays what it is: a charge does not make it dearer, nor anything possible impossible.
            return np.where(moved < IMPOSSIBLE, np.minimum(table, IMPOSSIBLE - 1), moved)

        return self._once(self.kind(op, is_input, position, tensor.dtype), (tilings, strategies), make)


def payable(price: Fraction, residence: Residence, workers: int) -> Fraction:
    """A price of a byte, lower where the charges of a large graph would add up to more than an integer of 64 bits.

    Args:
        price: that is wanted.
        residence: of the graph: at no moment does a plan hold more than all of it on every worker, as tiles and once
            again for the ops that read and make it.
        workers: how many.
    """
    most_bytes = 2 * residence.worth(workers) * int(residence.least().max(initial=1)) * _MOMENTS
    return min(price, Fraction(_MOST_CHARGED, max(1, most_bytes)))


def rounded(price: Fraction) -> Fraction:
    """A price in 12 binary digits, rounded down: times any tensor's bytes it is an integer of 64 bits."""
    if not price:
        return price
    step = Fraction(2) ** (price.numerator.bit_length() - price.denominator.bit_length() - 12)
    return price // step * step
