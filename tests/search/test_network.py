"""The variables and tables of a search: equal tables over variables of which one never has a choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.tiling import UNCUT, Replicate, Shard
from planner.cost.tables import Candidates, Table
from planner.search.exact.choices import Choices
from planner.search.exact.network import Link, MetTables, Network


def test_links_of_one_kind_may_differ_in_which_variables_have_a_choice() -> None:
    several: Candidates = (UNCUT.extend(Shard(0), 2), UNCUT.extend(Replicate(), 2))
    one: Candidates = several[:1]
    links = [Link(tensor, op, True, 0, 0, f"t{tensor}", f"op{op}") for tensor, op in ((0, 1), (2, 3))]
    network = Network([1, 0, 1, 1], links, [0, 1, 0, 2], MetTables())

    def make(asked: Sequence[tuple[Link, Candidates, Candidates]]) -> list[Table]:
        rows = [np.arange(3, 3 - len(tilings), -1, dtype=np.int64)[:, None] for _, tilings, _ in asked]
        return [row + np.zeros(len(lists[2]), dtype=np.int64) for row, lists in zip(rows, asked, strict=True)]

    solution = network.solve(Choices.of([several, one, several, one]), make, 1 << 10)
    assert solution.total == 4
    assert solution.values.tolist() == [1, 0, 1, 0]
