"""Tables of time in the place of tables of bytes, so that a search for the least cost finds the least time."""

from __future__ import annotations

from collections.abc import Sequence

from planner.algebra.partial import IMPOSSIBLE
from planner.algebra.tiling import Tiling
from planner.cost.seconds.tables import TimeTables
from planner.cost.tables import Candidates, CostTables, Request, Table
from planner.graph.core.model import DType
from planner.tdl.bind import BoundOp


class TimedTables(CostTables):
    """``CostTables`` whose entries are picoseconds."""

    def __init__(self, plain: CostTables, times: TimeTables) -> None:
        """Shares what the tables of bytes know that is not bytes.

        Args:
            plain: of an earlier search with the same descriptions.
            times: of the machine that is planned for.
        """
        super().__init__(plain.rates)
        self._times = times
        self.lists, self.local, self.shares = plain.lists, plain.local, times.shares

    def kind(self, op: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """Times depend on all that an op is."""
        return is_input, position, op.content, dtype, op.lane

    def impossible(self, most_bytes: int) -> int:
        """The number that stands for an impossible entry in sums of these tables: 20 hours."""
        return IMPOSSIBLE

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """Picoseconds until an op can read an input, or an output is where it is owned; each of shape [tilings,
        strategies].
        """
        return [self._picoseconds(request) for request in requests]

    def _picoseconds(self, request: Request) -> Table:
        op, is_input, position, tensor, tilings, strategies = request
        if is_input:
            return self._times.input_table(op, position, tensor, tilings, strategies)
        return self._times.output_table(op, position, tensor, tilings, strategies)

    def charges(self, op: BoundOp, strategies: Candidates) -> Table:
        """Picoseconds that an op computes, shape [strategies]."""
        return self._times.op_table(op, strategies)

    def charge_kind(self, op: BoundOp) -> tuple[object, ...]:
        """Times depend on all that an op is."""
        return op.content, op.op.op_type, op.lane

    def most_charged(self, op: BoundOp, workers: int) -> int:
        """Nothing: what stands for impossible entries is more than any time."""
        return 0

    def computing(self, op: BoundOp) -> int:
        """Nothing: charges are whole times here, and no excess."""
        return 0

    def repeated(self, op: BoundOp, strategy: Tiling) -> int:
        """Nothing: what of its time an op computes again is not told apart."""
        return 0
