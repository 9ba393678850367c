"""Tables of bytes in which memory has prices: what moves, and a charge on what lies there at chosen moments.

A Lagrangian relaxation of a limit on memory: the search goes on minimising one sum of pairwise tables. What has a price
is residence (``planner.cost.residence``) at the moments at which plans are fullest, each with a price of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from planner.cost.residence import Residence, Weights
from planner.cost.tables import Candidates, CostTables, Table
from planner.graph.model import Tensor
from planner.tdl.bind import BoundOp


class PricedTables(CostTables):
    """``CostTables`` that add a charge for each byte that lies on a worker at a moment that has a price."""

    def __init__(
        self,
        plain: CostTables,
        residence: Residence,
        prices: Mapping[int, Fraction],
        tilt: Fraction = Fraction(0),
        charges: Mapping[str, Fraction] | None = None,
    ) -> None:
        """Shares what the plain tables know.

        Args:
            plain: what moves.
            residence: of the graph that is planned.
            prices: by moment, the moved bytes that a byte is worth; not negative.
            tilt: see ``Residence.weights``.
            charges: see there.
        """
        super().__init__()
        self._plain = plain
        self._residence = residence
        self._weights: dict[tuple[str, bool, int], Weights] = {
            port: (rounded(during), rounded(between), rounded(always))
            for port, (during, between, always) in residence.weights(prices, tilt, charges).items()
            if during or between or always
        }
        self.lists, self.local = plain.lists, plain.local

    def apart(self, op: str, is_input: bool, position: int) -> object:
        """Ops that are equal have different tables if they run at moments of different prices."""
        weights = self._weights.get((op, is_input, position))
        return None if weights is None else (weights, self._residence.kind((op, is_input, position)))

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """What moves, and the charge; shape [tilings, strategies]."""
        moved = self._plain.input_bytes(bound, slot, tensor, tilings, strategies)
        return self._charged(moved, bound, True, slot, tensor, tilings, strategies)

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """What moves, and the charge; shape [tilings, strategies]."""
        moved = self._plain.output_bytes(bound, position, tensor, tilings, strategies)
        return self._charged(moved, bound, False, position, tensor, tilings, strategies)

    def _charged(
        self,
        moved: Table,
        bound: BoundOp,
        is_input: bool,
        position: int,
        tensor: Tensor,
        tilings: Candidates,
        strategies: Candidates,
    ) -> Table:
        weights = self._weights.get((bound.op.name, is_input, position))
        if weights is None:
            return moved

        def make() -> Table:
            there = self._residence.tables(bound, is_input, position, tensor, tilings, strategies)
            table = moved.copy()
            for held, price in zip(there, weights, strict=True):
                if price:
                    # Whole bytes, rounded down by integers alone: equal plans cost the same on every machine.
                    table += held * price.numerator // price.denominator
            return table

        apart = self.apart(bound.op.name, is_input, position)
        return self._once((is_input, position, bound.content, tensor.dtype, apart), (tilings, strategies), make)


def rounded(price: Fraction) -> Fraction:
    """A price in 12 binary digits, rounded down: times any tensor's bytes it is an integer of 64 bits."""
    if not price:
        return price
    step = Fraction(2) ** (price.numerator.bit_length() - price.denominator.bit_length() - 12)
    return price // step * step
