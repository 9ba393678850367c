"""Tables of bytes in which some ops are brought some tensors for nothing: less than any plan that makes them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner.cost.tables import CostTables, Request, Table
from planner.graph.core.model import DType
from planner.tdl.bind import BoundOp


class FreeReads(CostTables):
    """``CostTables`` in which it moves nothing that some ops read some tensors."""

    def __init__(self, plain: CostTables, is_free: Callable[[str, str], bool]) -> None:
        """Shares what the plain tables know, and goes on to find out.

        Args:
            plain: what moves else.
            is_free: of an op and a tensor, by name, whether the op is brought it for nothing.
        """
        self.__dict__.update(plain.__dict__)
        self._is_free = is_free

    def _free(self, op: BoundOp, is_input: bool, position: int) -> bool:
        return is_input and self._is_free(op.op.name, op.op.inputs[position])

    def kind(self, op: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """As of plain tables; what is brought for nothing is of one kind."""
        return ("free",) if self._free(op, is_input, position) else super().kind(op, is_input, position, dtype)

    def of_place(self, op: BoundOp) -> tuple[object, ...]:
        """The inputs of an op that arrive for nothing."""
        free = (slot for slot, _ in enumerate(op.op.inputs) if self._free(op, True, slot))
        return *super().of_place(op), *free

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """The bytes that move; each of shape [tilings, strategies]."""
        charged = iter(super().bytes_of([request for request in requests if not self._free(*request[:3])]))
        return [self._nothing(request) if self._free(*request[:3]) else next(charged) for request in requests]

    def _nothing(self, request: Request) -> Table:
        shape = len(request.tilings), len(request.strategies)
        lists = request.tilings, request.strategies
        return self._once(("free",), lists, lambda: np.zeros(shape, dtype=np.int64))
