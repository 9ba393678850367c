"""How much work a search does between two looks at whether it is to end."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import pytest

from planner import opdefs
from planner.cost.tables import Candidates, Table, TableMemo
from planner.features.zoo.models import build
from planner.planning.bodies import decide_with_bodies
from planner.search.effort import MAX_TABLE_ENTRIES, TABLES_AT_ONCE
from planner.search.exact import buckets
from planner.search.exact.rows import Ints
from planner.search.exact.sums import SumForm
from planner.search.request import SearchRequest
from planner.stop import Stop, StoppedBy

MOST_TABLES = 1 << 20
"""Entries of tables between two looks: tables of 64 workers of so many entries take about a second."""


class Counting(Stop):
    """Counts the work between looks.

    Attributes:
        looks: how many there were.
        most: the most entries of tables, and of buckets, between two of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.most = {"tables": 0, "buckets": 0}
        self._since = dict(self.most)

    def works(self, what: str, entries: int) -> None:
        """Counts work."""
        self._since[what] += entries
        self.most[what] = max(self.most[what], self._since[what])

    def reason(self) -> StoppedBy | None:
        """See ``Stop.reason``."""
        self.looks += 1
        self._since = dict.fromkeys(self._since, 0)
        return None


@pytest.mark.slow
def test_a_search_never_works_long_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Counting()
    remember, small, least = TableMemo._remember, buckets.KnownTables._solve, SumForm.least

    def remembered(memo: TableMemo, key: tuple[object, ...], lists: tuple[Candidates, ...], table: Table) -> Table:
        stop.works("tables", table.size)
        return remember(memo, key, lists, table)

    def solved(known: buckets.KnownTables, new: Sequence[tuple[buckets.Key, buckets._Layout]]) -> None:
        stop.works("buckets", sum(layout.entries for _, layout in new))
        small(known, new)

    def found_least(form: SumForm, tables: Sequence[Table], most: int) -> tuple[Table, Ints | None]:
        stop.works("buckets", prod(form.shape))
        return least(form, tables, most)

    monkeypatch.setattr(TableMemo, "_remember", remembered)
    monkeypatch.setattr(buckets.KnownTables, "_solve", solved)
    monkeypatch.setattr(SumForm, "least", found_least)
    ask = SearchRequest(8, (2, 2, 2), effort="thorough", stop=stop, is_needed=False)
    found = decide_with_bodies(build("gpt-1x64-4h", batch=16), opdefs.standard(), ask)
    assert found.certified_gap is not None
    assert ask.tables.entries > 4 * TABLES_AT_ONCE
    assert stop.looks > 100
    assert 0 < stop.most["tables"] < MOST_TABLES
    assert 0 < stop.most["buckets"] <= MAX_TABLE_ENTRIES
