"""The variables of an instance of ``iopddl``, those made one that a table makes functions of others."""

from __future__ import annotations

from collections import deque

import numpy as np
from iopddl_instance import IMPOSSIBLE, Instance, Ints
from numpy.typing import NDArray

from planner.errors import InfeasibleError

_MOST_COMPARED = 1 << 17
"""Entries that are looked at to compare the values of a variable along one edge; above, none of them is dropped."""


class Merged:
    """A sum of pairwise tables that is least where the instance's is: variables are nodes, fewer of them.

    A node that an edge leaves one possible strategy for each one of another is merged into that, and what is possible
    with no strategy of a neighbour is taken out, until nothing changes.

    Attributes:
        own: of each node left its costs by value; None for a node that is merged into another.
        near: of each node its neighbours, with the table [own values, neighbour's values].
        kept: the strategies that the values of a node stand for.
    """

    def __init__(self, instance: Instance) -> None:
        """Merges.

        Raises:
            InfeasibleError: every choice of strategies has an impossible pair.
        """
        self.own: list[Ints | None] = [np.minimum(costs, IMPOSSIBLE) for costs in instance.costs]
        self.near: list[dict[int, Ints]] = [{} for _ in instance.costs]
        self.kept: list[Ints] = [np.arange(len(costs)) for costs in instance.costs]
        self._sizes = [len(costs) for costs in instance.costs]
        self._merges: list[tuple[int, int, Ints]] = []
        self._changed = set(range(len(self.own)))
        for (first, second), table in zip(instance.edges.tolist(), instance.tables, strict=True):
            self._add(first, second, table)
        self._queue = deque((one, other) for one, near in enumerate(self.near) for other in near if one < other)
        for node, own in enumerate(self.own):
            assert own is not None
            self._restrict(node, np.asarray(own < IMPOSSIBLE))
        self._merge()

    def left(self) -> list[int]:
        """The nodes that are variables yet."""
        return [node for node, own in enumerate(self.own) if own is not None]

    def chosen(self, values: dict[int, int]) -> list[int]:
        """The strategy of every node.

        Args:
            values: of each node left.
        """
        found = [0] * len(self.own)
        for node, value in values.items():
            found[node] = int(self.kept[node][value])
        for node, into, strategy in reversed(self._merges):
            found[node] = int(strategy[found[into]])
        return found

    def members(self) -> list[tuple[int, Ints]]:
        """By node, into which it was merged (or itself), and its strategy by value of that."""
        into = list(range(len(self.own)))
        strategies = list(self.kept)
        for node, other, strategy in reversed(self._merges):
            into[node], strategies[node] = into[other], strategy[strategies[other]]
        return list(zip(into, strategies, strict=True))

    def drop(self, usages: dict[int, Ints], fits: dict[int, NDArray[np.bool_]]) -> None:
        """Takes out values, and merges what that allows: some, and those that another one may stand for everywhere.

        Values are compared where a node or a table of it has changed since they were last.

        Args:
            usages: of each node left that takes memory, what it takes, shape [intervals, values].
            fits: of the same, which values there may be.

        Raises:
            InfeasibleError: none is left of a node.
        """
        changed, self._changed = self._changed, set()
        for node in self.left():
            if node in changed:
                self._restrict(node, self._undominated(node, usages.get(node)) & fits.get(node, np.bool_(True)))
            elif node in fits:
                self._restrict(node, fits[node])
        self._merge()

    def _undominated(self, node: int, usages: Ints | None) -> NDArray[np.bool_]:
        own, near = self.own[node], self.near[node]
        assert own is not None
        is_kept = np.ones(len(own), dtype=np.bool_)
        if len(own) == 1 or any(len(own) * table.size > _MOST_COMPARED for table in near.values()):
            return is_kept
        # What the value of a row costs more than that of a column, at most.
        more = own[:, None] - own[None, :]
        for table in near.values():
            rows = table[:, None, :] - table[None, :, :]
            rows = np.where(table[None, :, :] >= IMPOSSIBLE, -IMPOSSIBLE, rows).max(axis=2)
            more = np.maximum(np.minimum(more + rows, IMPOSSIBLE), -IMPOSSIBLE)  # as np.clip, whose call takes longer
        may = more <= 0
        if usages is not None and len(usages) > 1:
            usages = np.unique(usages, axis=0)
        for row in () if usages is None else usages:
            may &= row[:, None] <= row[None, :]
        np.fill_diagonal(may, False)
        for value in np.flatnonzero(may.any(axis=0)).tolist():
            is_kept[value] = not (may[:, value] & is_kept).any()
        return is_kept

    def _add(self, first: int, second: int, table: Ints) -> None:
        if second in self.near[first]:
            table = np.minimum(self.near[first][second] + table, IMPOSSIBLE)
        self.near[first][second], self.near[second][first] = table, table.T

    def _restrict(self, node: int, is_kept: NDArray[np.bool_]) -> None:
        own = self.own[node]
        assert own is not None
        if is_kept.all():
            return
        if not is_kept.any():
            raise InfeasibleError(f"every strategy of node {node} is impossible with those of its neighbours")
        self.own[node], self.kept[node] = own[is_kept], self.kept[node][is_kept]
        self._changed.update((node, *self.near[node]))
        for other, table in list(self.near[node].items()):
            self.near[node][other] = table[is_kept]
            self.near[other][node] = self.near[node][other].T
            self._queue.append((node, other))

    def _merge(self) -> None:
        while self._queue:
            one, other = self._queue.popleft()
            if self.own[one] is None or self.own[other] is None or other not in self.near[one]:
                continue
            possible = self.near[one][other] < IMPOSSIBLE
            rows, columns = possible.sum(axis=1), possible.sum(axis=0)
            if not rows.all() or not columns.all():
                self._restrict(one, np.asarray(rows > 0))
                possible = self.near[one][other] < IMPOSSIBLE
                self._restrict(other, np.asarray(possible.any(axis=0)))
                self._queue.append((one, other))
                continue
            both = rows.max() == 1 and columns.max() == 1
            if rows.max() == 1 and not (both and len(self.near[other]) > len(self.near[one])):
                self._join(other, one, possible.argmax(axis=1))
            elif columns.max() == 1:
                self._join(one, other, possible.argmax(axis=0))
            elif len(self.near[one][other]) == 1 or len(self.near[other][one]) == 1:
                self._settle(one, other)
        self._gather()

    def _gather(self) -> None:
        """Makes one of all nodes without a choice; nothing is between them and others."""
        settled = [
            node for node, own in enumerate(self.own) if own is not None and len(own) == 1 and not self.near[node]
        ]
        for node in settled[1:]:
            own, into = self.own[node], self.own[settled[0]]
            assert own is not None
            assert into is not None
            strategy = np.full(self._sizes[settled[0]], self.kept[node][0])
            self._merges.append((node, settled[0], strategy))
            self.own[settled[0]], self.own[node] = np.minimum(into + own, IMPOSSIBLE), None

    def _settle(self, one: int, other: int) -> None:
        """A table of a node with one value is a cost of the other node."""
        table = self.near[one][other]
        node = other if len(table) == 1 else one
        self._changed.add(node)
        own = self.own[node]
        assert own is not None
        self.own[node] = np.minimum(own + table.ravel(), IMPOSSIBLE)
        del self.near[one][other], self.near[other][one]
        costs = self.own[node]
        assert costs is not None
        self._restrict(node, np.asarray(costs < IMPOSSIBLE))

    def _join(self, node: int, into: int, values: Ints) -> None:
        """Merges a node into another, which has these values of it."""
        gone, own = self.own[node], self.own[into]
        assert gone is not None
        assert own is not None
        table = self.near[into].pop(node)
        del self.near[node][into]
        self.own[into] = np.minimum(own + gone[values] + table[np.arange(len(values)), values], IMPOSSIBLE)
        strategy = np.full(self._sizes[into], -1)
        strategy[self.kept[into]] = self.kept[node][values]
        self._merges.append((node, into, strategy))
        for other, more in self.near[node].items():
            del self.near[other][node]
            self._add(into, other, more[values])
            self._queue.append((into, other))
        self._changed.update((into, *self.near[node]))
        self.near[node] = {}
        self.own[node] = None
        costs = self.own[into]
        assert costs is not None
        self._restrict(into, np.asarray(costs < IMPOSSIBLE))
