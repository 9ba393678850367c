"""The variables of a search and the tables between them, as arrays: what one order of elimination serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from planner.cost.tables import Candidates, Table
from planner.search.eliminate import Solution, eliminate, refuse_larger
from planner.search.order import Ints, Order, find_order


@dataclass(frozen=True, slots=True)
class Link:
    """A pairwise table: an op's input or output and the tensor there."""

    tensor: int
    op: int
    is_input: bool
    position: int
    kind: int
    """Links of one kind, as often, have the same table for the same candidates."""
    name: str
    """The tensor; the first one's, where copies share the link."""
    times: int = 1
    """How many copies share the link."""


def merged(links: Sequence[Link]) -> list[Link]:
    """The links, those of copies made one."""
    count: dict[tuple[int, int, int], int] = {}
    first: dict[tuple[int, int, int], Link] = {}
    for link in links:
        key = (link.tensor, link.op, link.kind)
        count[key] = count.get(key, 0) + 1
        first.setdefault(key, link)
    return [replace(link, times=count[key]) if count[key] > 1 else link for key, link in first.items()]


MakeTable: TypeAlias = Callable[[Link, Candidates, Candidates], Table]
"""Bytes by the candidates of a link's tensor and op."""


_CHANGES = 4
"""Candidates of a variable beside its directions, about: replication, and what improvement offers."""


class Network:
    """Variables and links, with the order in which to eliminate them."""

    def __init__(self, directions: Sequence[int], links: Sequence[Link]) -> None:
        """Takes note of the structure.

        Args:
            directions: along how many directions each variable can be cut; 0: it has one value, whatever the cuts.
            links: the tables to be.
        """
        self._sizes = [1 if count == 0 else count + _CHANGES for count in directions]
        self._links = links
        kinds: dict[tuple[int, int], int] = {}
        self._kinds = np.array(
            [kinds.setdefault((link.kind, link.times), len(kinds)) for link in links], dtype=np.int64
        )
        self._tensors = np.array([link.tensor for link in links], dtype=np.int64)
        self._ops = np.array([link.op for link in links], dtype=np.int64)
        self.scopes = [self._scope(link) for link in links]
        self._order: Order | None = None

    def solve(
        self, choices: Sequence[Candidates], make_table: MakeTable, kinds: Sequence[int], max_table_entries: int
    ) -> Solution:
        """The least sum of all tables; see ``eliminate``.

        Args:
            choices: each variable's candidates; equal ones are one object.
            make_table: makes a link's table.
            kinds: equal for variables of repeated layers.
            max_table_entries: how large a bucket may be.

        Raises:
            InfeasibleError: a bucket would be larger.
        """
        if self._order is None:
            self._order = find_order(self._sizes, self.scopes, kinds)
        refuse_larger(self._order.largest_bucket(np.array([len(values) for values in choices])), max_table_entries)
        return eliminate(self._order, *self.tables(choices, make_table))

    def tables(self, choices: Sequence[Candidates], make_table: MakeTable) -> tuple[list[Table], Ints]:
        """The different tables for these candidates, and the number of each link's.

        Axes of variables that have one value, whatever the cuts, are left out.
        """
        first, which = self._different(choices)
        tables = []
        for number in first:
            link = self._links[number]
            table = make_table(link, choices[link.tensor], choices[link.op])
            tables.append(table.reshape([len(choices[name]) for name in self.scopes[number]]))
        return tables, which

    def table_entries(self, choices: Sequence[Candidates]) -> int:
        """Entries of all different tables for these candidates."""
        links = [self._links[number] for number in self._different(choices)[0]]
        return sum(len(choices[link.tensor]) * len(choices[link.op]) for link in links)

    def _different(self, choices: Sequence[Candidates]) -> tuple[list[int], Ints]:
        """The first link with each table, and for every link the number of its table."""
        lists: dict[int, int] = {}
        of = np.array([lists.setdefault(id(values), len(lists)) for values in choices], dtype=np.int64)
        keys = (self._kinds * len(lists) + of[self._tensors]) * len(lists) + of[self._ops]
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        return first.tolist(), which.astype(np.int64)

    def _scope(self, link: Link) -> tuple[int, ...]:
        return tuple(variable for variable in (link.tensor, link.op) if self._sizes[variable] > 1)
