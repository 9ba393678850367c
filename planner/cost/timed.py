"""Tables of time in the place of tables of bytes, so that a search for the fewest bytes finds the least time.

What an op computes is a table of one variable. It is added along the tilings of the op's first output, which has the
op's strategies in its other direction: sums over a whole plan are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.partial import IMPOSSIBLE
from planner.cost.tables import CostTables, Request, Table
from planner.cost.time import TimeTables
from planner.graph.model import DType
from planner.tdl.bind import BoundOp


class TimedTables(CostTables):
    """``CostTables`` whose entries are picoseconds."""

    def __init__(self, plain: CostTables, times: TimeTables) -> None:
        """Shares what the tables of bytes know that is not bytes.

        Args:
            plain: of an earlier search with the same descriptions.
            times: of the machine that is planned for.
        """
        super().__init__()
        self._times = times
        self.lists, self.local = plain.lists, plain.local

    def kind(self, bound: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """Times depend on all that an op is."""
        return is_input, position, bound.content, dtype

    def impossible(self, most_bytes: int) -> int:
        """What stands for an impossible entry in sums of these tables: 20 hours."""
        return IMPOSSIBLE

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """Picoseconds until an op can read an input, or an output is where it is owned; each of shape [tilings,
        strategies].

        With an op's first output, those of computing as well.
        """
        return [self._picoseconds(request) for request in requests]

    def _picoseconds(self, request: Request) -> Table:
        bound, is_input, position, tensor, tilings, strategies = request
        if is_input:
            return self._times.input_table(bound, position, tensor, tilings, strategies)
        arriving = self._times.output_table(bound, position, tensor, tilings, strategies)
        if position != bound.first_output:
            return arriving
        return self._once(
            self.kind(bound, False, position, tensor.dtype),
            (tilings, strategies),
            lambda: np.asarray(arriving + self._times.op_table(bound, strategies)[None], dtype=np.int64),
        )
