"""Buckets against sums of their tables: small ones solved together and large ones alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.search.exact.buckets import KnownTables
from planner.search.exact.order import Pattern

PATTERNS: tuple[Pattern, ...] = (
    (),
    ((0,),),
    ((1, 0),),
    ((0, 1), (2, 0)),
    ((0, 2), (3, 0, 1), (2, 0)),
    ((2, 0, 1), (0, 3), (0,), (1, 2, 0)),
)


WAYS: dict[str, dict[str, int]] = {
    "together": {},
    "alone": {"planner.search.exact.buckets.BUCKET_BATCH": 3},
    "value by value": {"planner.search.exact.buckets.BUCKET_BATCH": 3, "planner.search.exact.sums.CACHED_ENTRIES": 3},
    "not kept": {"planner.search.exact.buckets.BUCKET_BATCH": 3, "planner.search.exact.sums.REMEMBERED_MINIMA": 0},
    "too much to be kept": {"planner.search.exact.buckets.BUCKET_BATCH": 3, "planner.search.exact.sums.SUM_LIMIT": 8},
}
"""How buckets of more than a few entries are solved."""


@pytest.mark.parametrize("way", WAYS)
@given(
    st.lists(st.tuples(st.sampled_from(PATTERNS), st.integers(0, 1 << 30)), min_size=1, max_size=5),
    st.sampled_from([1, 1 << 56]),
)
def test_buckets_are_minima_of_sums(way: str, asked: list[tuple[Pattern, int]], unit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in WAYS[way].items():
            patch.setattr(name, limit)
        check(asked, unit)


def check(asked: list[tuple[Pattern, int]], unit: int) -> None:
    """Solves buckets of these patterns, their tables made from these seeds in multiples of a unit, and compares."""
    known = KnownTables()
    sums, constants, keys = [], [], []
    for pattern, seed in asked:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 6, 4)
        total: np.ndarray = np.zeros((1, 1, 1, 1), dtype=np.int64)
        numbers, constant = [], 0
        for axes in pattern:
            table = unit * rng.integers(0, 9, [sizes[axis] for axis in axes])
            [(number, least)] = known.intern([table])
            numbers.append(number)
            constant += least
            spread = np.moveaxis(np.expand_dims(table, tuple(range(len(axes), 4))), range(len(axes)), axes)
            total = total + spread
        sums.append(total)
        constants.append(constant)
        keys.append((known.pattern(pattern), *numbers))
    for (pattern, _), total, constant, bucket in zip(asked, sums, constants, known.buckets(keys), strict=True):
        rank = 1 + max((axis for axes in pattern for axis in axes), default=0)
        least = total.min(axis=0)
        assert (known.table(bucket.result).reshape(least.shape) + bucket.least + constant == least).all()
        assert known.table(bucket.result) is known.table(bucket.result)
        assert bucket.entries == total.size
        rest = np.array(list(np.ndindex(total.shape[1:rank])), dtype=np.int64).reshape(least.size, rank - 1)
        assert known.values(bucket, rest).tolist() == total.argmin(axis=0).ravel().tolist()


def test_tables_of_one_mark_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.search.exact.buckets.BUCKET_BATCH", 3)
    monkeypatch.setattr("planner.search.exact.buckets._mark", lambda table: b"")
    known = KnownTables()
    tables = [np.array([0, 1, 2, 3]), np.array([0, 3, 2, 1]), np.array([0, 1, 1, 3])]
    numbers = [number for number, _ in known.intern([*tables, *tables])]
    assert numbers == [0, 1, 2, 0, 1, 2]
    assert [known.table(number).tolist() for number in numbers[:3]] == [table.tolist() for table in tables]
