"""Tables of bytes: for a tensor's tiling and an op's strategy, what moves between workers; for a strategy its excess.

What moves is counted by box overlap over all workers, exact for uneven pieces and halos. Tables are kept by content
(the op's analysis and extents, position, shapes, candidate lists), so repeated layers cost nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra import movements
from planner.algebra.counts import Counts
from planner.algebra.divisions import Divisions
from planner.algebra.movements import Movements, counted
from planner.algebra.tiling import Parts, Tiling, parts
from planner.algebra.ways import Ways
from planner.cost.accesses import Access, Regions, Tiled
from planner.cost.excess import computing, excess, repeated
from planner.cost.kernels import is_alias
from planner.graph.core.model import DType, Tensor
from planner.machine.rates import Rates
from planner.tdl.bind import BoundOp

Candidates: TypeAlias = tuple[Tiling, ...]
Table: TypeAlias = NDArray[np.int64]


class Request(NamedTuple):
    """A table that is asked for, of an op's input or output."""

    op: BoundOp
    is_input: bool
    position: int
    tensor: Tensor
    tilings: Candidates
    """Of the tensor: the rows."""
    strategies: Candidates
    """Of the op: the columns."""


class TableMemo:
    """Remembers tables.

    Candidate lists are told apart by identity, which is quick where they are long: callers pass the same list again
    for the same candidates (as ``Problem`` does), or get a table made anew. Equal requests give the same array.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], tuple[Table, tuple[Candidates, ...]]] = {}
        self.entries = 0
        """Table entries evaluated so far (not counting those found again)."""

    def _once(self, key: tuple[object, ...], lists: tuple[Candidates, ...], make: Callable[[], Table]) -> Table:
        """The table of this content and these lists, made if there is none yet."""
        entry = self._tables.get((*key, *map(id, lists)))
        return self._remember(key, lists, make()) if entry is None else entry[0]

    def _remember(self, key: tuple[object, ...], lists: tuple[Candidates, ...], table: Table) -> Table:
        table.flags.writeable = False  # it is given to all who ask for it again
        # The lists are kept with the table: an identity means something only while its object lives.
        self._tables[*key, *map(id, lists)] = (table, lists)
        self.entries += table.size
        return table


class CostTables(TableMemo):
    """Makes tables of bytes and remembers them: what moves, and what an op's excess is worth."""

    def __init__(self, rates: Rates | None = None) -> None:
        """Makes no table yet.

        Args:
            rates: of the devices, by which excess is counted; None: those of ``Rates``.
        """
        super().__init__()
        self.rates = Rates() if rates is None else rates
        self._divisions: dict[tuple[tuple[int, ...], tuple[int, ...]], Divisions] = {}
        self._counts: dict[tuple[int, ...], Counts] = {}
        self._numbers: dict[tuple[tuple[int, ...], int], tuple[Divisions, list[int], Candidates]] = {}
        """By the shape of a tensor and candidates for it, their numbers among the divisions of its index space."""
        self._as_tilings: dict[tuple[object, int], tuple[Candidates, Candidates]] = {}
        """By how ops have a tensor and candidates for these ops, those for the tensor that they come to."""
        self._partial: dict[int, tuple[Candidates, Candidates]] = {}
        """By candidates of ops, all of them if some are partial; else there is nothing to be told apart."""
        self._accesses: dict[tuple[object, ...], Access] = {}
        self._charges: dict[tuple[object, int], dict[Parts, int]] = {}
        self._repeated: dict[tuple[object, Tiling], int] = {}
        self._computing: dict[object, float] = {}
        self.lists: dict[Candidates, Candidates] = {}
        """The one list of each content; searches that share the tables share these."""
        self.shares: tuple[tuple[tuple[int, ...], ...], ...] = ()
        """By cut, in which proportions beside equal ones it may divide; () where all devices are worth the same."""
        self.local: dict[tuple[object, ...], bool] = {}
        """By an op's content and a strategy's parts, whether it can be computed by local ops; shared as well."""

    def forget_pairs(self) -> None:
        """Gives back what is known of pairs of divisions beside the tables: hundreds of MB after a bound's."""
        for counts in self._counts.values():
            counts.forget_pairs()

    def alone(self, tiling: Tiling) -> Candidates:
        """The one list of just this tiling or strategy, so that tables know it by identity."""
        return self.lists.setdefault((tiling,), (tiling,))

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """The tables that are asked for, counted together: in much less time than one by one.

        Each is of shape [tilings, strategies], and given to all who ask for it: it cannot be written to.
        """
        keys: list[tuple[Access, int, int, int]] = []
        misses: dict[tuple[Access, int, int, int], Request] = {}
        tables: list[Movements] = []
        for request in requests:
            op, is_input, position, tensor, tilings, strategies = request
            access = self._access(op, is_input, position)
            key = (access, tensor.dtype.item_bytes, id(tilings), id(strategies))
            keys.append(key)
            if key not in self._tables and key not in misses:
                misses[key] = request
                tables.append(self._movements(access, tilings, strategies))
        for ((access, item_bytes, *_), request), elements in zip(misses.items(), counted(tables), strict=True):
            self._remember((access, item_bytes), (request.tilings, request.strategies), elements * item_bytes)
        return [self._tables[key][0] for key in keys]

    def input_bytes(self, op: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates) -> Table:
        """The bytes that move so that an op can read an input, shape [tilings, strategies]."""
        return self.bytes_of([Request(op, True, slot, tensor, tilings, strategies)])[0]

    def kind(self, op: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """The key that tells the tables of ops' inputs and outputs apart: equal kinds have equal tables for equal
        lists.
        """
        return self._access(op, is_input, position), dtype.item_bytes

    def charges(self, op: BoundOp, strategies: Candidates) -> Table:
        """The charge of each strategy of an op, shape [strategies]; see ``planner.cost.excess``."""
        return self._once(("excess", self.charge_kind(op)), (strategies,), lambda: self._excess(op, strategies))

    def _excess(self, op: BoundOp, strategies: Candidates) -> Table:
        """Counted once for strategies of equal parts: which cut comes first says which worker has which."""
        charges = self._charges.setdefault((self.charge_kind(op), prod(strategies[0].ways)), {})
        of_each = [parts(strategy) for strategy in strategies]
        misses = {key: strategy for key, strategy in zip(of_each, strategies, strict=True) if key not in charges}
        if misses:
            excesses = excess(op, tuple(misses.values()), self.rates, self._compute_bytes(op)).tolist()
            charges.update(zip(misses, excesses, strict=True))
        return np.array([charges[key] for key in of_each], dtype=np.int64)

    def most_charged(self, op: BoundOp, workers: int) -> int:
        """The largest charge of an op: where all workers execute all of it."""
        return workers * ceil(self._compute_bytes(op))

    def repeated(self, op: BoundOp, strategy: Tiling) -> int:
        """The part of an op's charge that is duplicated work; the rest is unevenly divided."""
        key = (self.charge_kind(op), strategy)
        if key not in self._repeated:
            charge = int(self._excess(op, (strategy,))[0])
            again = repeated(op, strategy, self.rates, self._compute_bytes(op)) if charge else 0
            self._repeated[key] = min(charge, again)
        return self._repeated[key]

    def computing(self, op: BoundOp) -> int:
        """The cost of an op on one device, in the unit of its charge."""
        return round(self._compute_bytes(op))

    def _compute_bytes(self, op: BoundOp) -> float:
        key = self.charge_kind(op)
        if key not in self._computing:
            self._computing[key] = computing(op, self.rates)
        return self._computing[key]

    def charge_kind(self, op: BoundOp) -> tuple[object, ...]:
        """The key that tells the charges of ops apart: equal kinds have equal ones for equal lists."""
        return op.content, is_alias(op.op), op.lane

    def _access(self, op: BoundOp, is_input: bool, position: int) -> Access:
        """How an op has an input or an output: one object for all that have it alike."""
        key = (op.content, is_input, position)
        access = self._accesses.get(key)
        if access is None:
            shape = (op.node.input_shapes if is_input else op.node.output_shapes)[position]
            assert shape is not None, "an absent input or output has no table"
            dims = op.plain_read(position) if is_input else op.analysis.outputs[position]
            if dims is None:
                access = Regions(op, position, shape)
            else:
                # Most ops read by their variables alone: then only how these are laid out matters.
                reducers = () if is_input else tuple(variable.reducer for variable in op.variables)
                form = (is_input, dims, () if is_input else op.analysis.steps_of(position), reducers)
                access = self._accesses.setdefault((shape, form), Tiled(op, shape, form))
            self._accesses[key] = access
        return access

    def of_place(self, op: BoundOp) -> tuple[object, ...]:
        """The key that tells apart equal ops with different tables or candidates: here, lanes."""
        return () if op.lane is None else (op.lane,)

    def impossible(self, most_bytes: int) -> int:
        """The number that stands for an impossible entry in sums of these tables: more than a possible plan takes.

        The less, the better: bounds are sums of floats.

        Args:
            most_bytes: that any plan moves.
        """
        return most_bytes + 1

    def _movements(self, access: Access, tilings: Candidates, strategies: Candidates) -> Movements:
        """A table to be counted, shape [tilings, strategies]."""
        divisions, owned, _ = self._numbered(access.shape, tilings)
        if isinstance(access, Tiled):
            key = (access.form, id(strategies))
            if key not in self._as_tilings:
                as_tilings = access.tilings(strategies)
                self._as_tilings[key] = self.lists.setdefault(as_tilings, as_tilings), strategies
            op_numbers = self._numbered(access.shape, self._as_tilings[key][0])[1]
        else:
            op_numbers = access.needed(divisions, strategies)
        if not access.is_input:
            return movements.made(divisions, owned, op_numbers)
        if id(strategies) not in self._partial:
            some_are = any(strategy.has_partial for strategy in strategies)
            self._partial[id(strategies)] = strategies if some_are else (), strategies
        return movements.read(divisions, owned, op_numbers, self._partial[id(strategies)][0])

    def _numbered(self, shape: tuple[int, ...], tilings: Candidates) -> tuple[Divisions, list[int], Candidates]:
        """The divisions of an index space among as many workers as these tilings have, and their numbers there."""
        key = (shape, id(tilings))
        entry = self._numbers.get(key)
        if entry is None:
            ways = tilings[0].ways
            if ways not in self._counts:
                self._counts[ways] = Counts(Ways(ways))
            if (shape, ways) not in self._divisions:
                self._divisions[shape, ways] = Divisions(shape, self._counts[ways])
            divisions = self._divisions[shape, ways]
            # The tilings are kept with their numbers: an identity means something only while its object lives.
            entry = self._numbers[key] = divisions, divisions.numbers(tilings), tilings
        return entry
