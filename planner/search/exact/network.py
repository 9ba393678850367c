"""The variables of a search and the tables between them, as arrays: what one order of elimination serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from planner.cost.tables import Candidates, Table
from planner.search.effort import HELD_ENTRIES, TABLES_AT_ONCE, USUAL_CHANGES
from planner.search.exact.buckets import KnownTables
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import Solution, eliminate_known, refuse_larger
from planner.search.exact.order import Order, find_order
from planner.search.exact.rows import Ints, distinct
from planner.stop import go_on


class Link(NamedTuple):
    """A table: what moves between an op and the tensor at one of its inputs or outputs, or what an op is charged."""

    tensor: int
    """The variable of the tensor; the op's own, where the table is of its charge."""
    op: int
    is_input: bool
    position: int
    kind: int
    """Links of one kind, as often, have the same table for the same candidates."""
    name: str
    """The tensor; the first one's, where copies share the link; "" for a charge."""
    op_name: str
    """The op; the first one, where copies share the link."""
    times: int = 1
    """The number of copies that share the link."""

    @property
    def is_charge(self) -> bool:
        """Whether the table is of what an op is charged, with one axis."""
        return self.tensor == self.op


def merged(links: Sequence[Link]) -> list[Link]:
    """The links, those of copies made one."""
    keys = [(link.tensor, link.op, link.kind) for link in links]
    count = Counter(keys)
    if len(count) == len(links):
        return list(links)
    first = dict(zip(reversed(keys), reversed(links), strict=True))
    return [first[key]._replace(times=times) if times > 1 else first[key] for key, times in count.items()]


MakeTables: TypeAlias = Callable[[Sequence[tuple[Link, Candidates, Candidates]]], list[Table]]
"""Costs by the candidates of a link's tensor and op, for many links: always the same for the same candidates."""


class MetTables:
    """The tables met so far, of networks of one problem, and the numbers under which they are known."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.tables = KnownTables()
        self.numbers: dict[tuple[object, ...], tuple[int, int, Candidates, Candidates]] = {}


class Network:
    """Variables and links, with the order in which to eliminate them, and the tables met so far."""

    def __init__(
        self,
        directions: Sequence[int],
        links: Sequence[Link],
        kinds: Sequence[int],
        met: MetTables,
        order: Order | None = None,
    ) -> None:
        """Takes note of the structure.

        Args:
            directions: along how many directions each variable can be cut; 0: it has one value, whatever the cuts.
            links: the tables to be.
            kinds: of each variable; equal for those of repeated layers.
            met: the tables met so far.
            order: of elimination; None: it is found when it is needed.
        """
        self._sizes = [1 if count == 0 else count + USUAL_CHANGES for count in directions]
        self._links = links
        self._variable_kinds = kinds
        numbers: dict[tuple[object, ...], int] = {}
        # Tables of one kind over other variables have other axes: what has one value, whatever the cuts, has none.
        has_axis = [size > 1 for size in self._sizes]
        self._kinds = np.array(
            [
                numbers.setdefault((link.kind, link.times, has_axis[link.tensor], has_axis[link.op]), len(numbers))
                for link in links
            ],
            dtype=np.int64,
        )
        self._kind_names = list(numbers)
        tensors, ops = [link.tensor for link in links], [link.op for link in links]
        self._tensors, self._ops = np.array(tensors, dtype=np.int64), np.array(ops, dtype=np.int64)
        self.scopes = [
            tuple(variable for variable in dict.fromkeys((tensor, op)) if has_axis[variable])
            for tensor, op in zip(tensors, ops, strict=True)
        ]
        self._order = order
        self.met = met

    def solve(
        self, choices: Choices, make: MakeTables, max_table_entries: int, check: Callable[[], None] = go_on
    ) -> Solution:
        """The least sum of all tables; see ``eliminate``.

        Args:
            choices: each variable's candidates.
            make: makes tables.
            max_table_entries: how large a bucket may be.
            check: called between parts of the work; what it raises ends it.

        Raises:
            InfeasibleError: a bucket would be larger.
        """
        if self._order is None:
            self._order = find_order(self._sizes, self.scopes, self._variable_kinds)
        refuse_larger(self._order.largest_bucket(choices.sizes), max_table_entries)
        if self.met.tables.held > HELD_ENTRIES:
            self.met.forget()
        first, table_of = self._different(choices)
        pairs = self._table_numbers(first, choices, make, check)
        numbers = np.array([number for number, _ in pairs], dtype=np.int64)
        constant = np.array([least for _, least in pairs], dtype=np.int64)
        return eliminate_known(self._order, self.met.tables, numbers[table_of], int(constant[table_of].sum()), check)

    def _table_numbers(
        self, links: Sequence[int], choices: Choices, make: MakeTables, check: Callable[[], None]
    ) -> list[tuple[int, int]]:
        """The number of each link's table, and the minimum that was taken out of it."""
        kinds = [self._kind_names[kind] for kind in self._kinds[links].tolist()]
        lists = [(choices[self._links[link].tensor], choices[self._links[link].op]) for link in links]
        keys = [(kind, id(tilings), id(strategies)) for kind, (tilings, strategies) in zip(kinds, lists, strict=True)]
        missing = [place for place, key in enumerate(keys) if key not in self.met.numbers]
        tables = self._tables([links[place] for place in missing], choices, make, check)
        for place, interned in zip(missing, self.met.tables.intern(tables), strict=True):
            # The lists are kept with the number: an identity means something only while its object lives.
            self.met.numbers[keys[place]] = (*interned, *lists[place])
        return [self.met.numbers[key][:2] for key in keys]

    def tables(self, choices: Choices, make: MakeTables, check: Callable[[], None] = go_on) -> tuple[list[Table], Ints]:
        """The different tables for these candidates, and the number of each link's.

        Axes of variables that have one value, whatever the cuts, are left out.

        Args:
            choices: each variable's candidates.
            make: makes tables.
            check: called between parts of the work; what it raises ends it.
        """
        first, table_of = self._different(choices)
        return self._tables(first, choices, make, check), table_of

    def _tables(
        self, links: Sequence[int], choices: Choices, make: MakeTables, check: Callable[[], None]
    ) -> list[Table]:
        tables: list[Table] = []
        for part in self._parts(links, choices):
            check()
            requests = [(link, choices[link.tensor], choices[link.op]) for link in map(self._links.__getitem__, part)]
            tables.extend(make(requests))
        shapes = [[len(choices[name]) for name in self.scopes[link]] for link in links]
        return [table.reshape(shape) for table, shape in zip(tables, shapes, strict=True)]

    def _parts(self, links: Sequence[int], choices: Choices) -> Iterator[list[int]]:
        """The links in parts whose tables have about ``TABLES_AT_ONCE`` entries together."""
        part: list[int] = []
        entries = 0
        for number in links:
            link = self._links[number]
            part.append(number)
            entries += len(choices[link.tensor]) * len(choices[link.op])
            if entries >= TABLES_AT_ONCE:
                yield part
                part, entries = [], 0
        if part:
            yield part

    def table_entries(self, choices: Choices) -> int:
        """Entries of all different tables for these candidates."""
        links = [self._links[number] for number in self._different(choices)[0]]
        return sum(len(choices[link.op]) * (1 if link.is_charge else len(choices[link.tensor])) for link in links)

    def _different(self, choices: Choices) -> tuple[list[int], Ints]:
        """The first link with each table, and for every link the number of its table."""
        of, lists = choices.list_of, len(choices.lists)
        # One after the other: there are far fewer pairs than there could be, and few numbers are told apart quickly.
        first, pair = distinct(self._kinds * lists + of[self._tensors], len(self._kind_names) * lists)
        first, table_of = distinct(pair * lists + of[self._ops], len(first) * lists)
        return first.tolist(), table_of
