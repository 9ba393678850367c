"""Orders of elimination: every variable once, no two neighbours in a round, factors where they belong."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.search.exact.order import Order, find_order, find_order_settling, order_of
from planner.search.exact.rows import distinct, distinct_rows

Scopes = list[tuple[int, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Scopes]:
    count = draw(st.integers(1, 9))
    scope = st.lists(st.integers(0, count - 1), max_size=3, unique=True).map(tuple)
    return count, draw(st.lists(scope, max_size=14))


def check(order: Order, count: int, scopes: Scopes) -> None:
    """Carries an order out on sets of variables."""
    left = {number: set(scope) for number, scope in enumerate(scopes)}
    gone: set[int] = set()
    for steps in order.rounds:
        for row, variable in enumerate(steps.variables.tolist()):
            assert variable not in gone
            gone.add(variable)
            bucket, rest = steps.factors[row].tolist(), steps.neighbours[row].tolist()
            assert bucket == [number for number, scope in sorted(left.items()) if variable in scope]
            assert set(rest) == set().union(*(left[number] for number in bucket)) - {variable}
            for axes, number in zip(steps.pattern, bucket, strict=True):
                assert {(variable, *rest)[axis] for axis in axes} == left.pop(number)
                if number < len(scopes):
                    assert tuple((variable, *rest)[axis] for axis in axes) == scopes[number]
            left[int(steps.produced[row])] = set(rest)
    assert gone | set(order.core) == set(range(count))
    assert not gone & set(order.core)
    assert {number: scope for number, scope in left.items() if scope} == {
        number: set(scope) for number, scope in order.open
    }


@given(graphs(), st.data())
def test_every_variable_is_eliminated_once(graph: tuple[int, Scopes], data: st.DataObject) -> None:
    count, scopes = graph
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    order = find_order(sizes, scopes, kinds)
    check(order, count, scopes)
    assert order.core == ()
    for steps in order.rounds:
        assert not set(steps.variables.tolist()) & set(steps.neighbours.ravel().tolist())


@given(graphs(), st.integers(0, 3), st.integers(1, 60))
def test_what_is_too_large_is_left(graph: tuple[int, Scopes], most_neighbours: int, most_entries: int) -> None:
    count, scopes = graph
    order = find_order([3] * count, scopes, [0] * count, most_neighbours=most_neighbours, most_entries=most_entries)
    check(order, count, scopes)
    assert order.rounds or order.core
    for steps in order.rounds:
        assert steps.neighbours.shape[1] <= most_neighbours
        assert 3 ** (1 + steps.neighbours.shape[1]) <= most_entries


@given(graphs(), st.randoms())
def test_a_given_sequence_is_kept_to(graph: tuple[int, Scopes], random) -> None:
    count, scopes = graph
    sequence = list(range(count))
    random.shuffle(sequence)
    order = order_of(sequence, count, scopes)
    check(order, count, scopes)
    assert [steps.variables.tolist() for steps in order.rounds] == [[variable] for variable in sequence]


@given(graphs(), st.data())
def test_batches_are_the_same_eliminations(graph: tuple[int, Scopes], data: st.DataObject) -> None:
    """As many together as do not need what another one of them makes."""
    count, scopes = graph
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    order = find_order(sizes, scopes, [0] * count)
    singly = [
        (
            steps.pattern,
            *(part[row].tolist() for part in (steps.variables, steps.neighbours, steps.factors, steps.produced)),
        )
        for steps in order.rounds
        for row in range(len(steps.variables))
    ]
    batched = []
    for batch in order.batches:
        assert not set(batch.factors.ravel().tolist()) & set(batch.produced.tolist())
        for row, pattern in enumerate(batch.pattern.tolist()):
            factors = [factor for factor in batch.factors[row].tolist() if factor >= 0]
            places = max((axis for axes in batch.patterns[pattern] for axis in axes), default=0)
            rest = batch.neighbours[row, :places].tolist()
            numbers = batch.variables[row].tolist(), rest, factors, batch.produced[row].tolist()
            batched.append((batch.patterns[pattern], *numbers))
    assert batched == singly
    assert len(order.batches) <= len(order.rounds)


def test_a_chain_is_contracted_side_by_side() -> None:
    count = 1024
    order = find_order([4] * count, [(one, one + 1) for one in range(count - 1)], [0] * count)
    assert order.largest_bucket(np.full(count, 4)) == 64
    assert len(order.rounds) < 100


def test_a_chain_with_large_buckets_is_contracted_from_its_ends() -> None:
    """Less to keep at once is worth more than fewer rounds."""
    count = 64
    order = find_order([100] * count, [(one, one + 1) for one in range(count - 1)], [0] * count)
    assert order.largest_bucket(np.full(count, 100)) == 10_000
    check(order, count, [(one, one + 1) for one in range(count - 1)])


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=12), st.booleans())
def test_rows_are_told_apart(rows: list[list[int]], is_wide: bool) -> None:
    matrix = np.array(rows, dtype=np.int64)
    # Numbers so large that keys of all columns together would overflow.
    first, group = distinct_rows(matrix + (1 << 40) * is_wide, (1 << 41) if is_wide else 6)
    assert (matrix[first][group] == matrix).all()
    assert len(first) == len({tuple(row) for row in rows})


@given(st.lists(st.integers(0, 9), max_size=20), st.sampled_from([10, 1 << 40]))
def test_numbers_are_told_apart(numbers: list[int], below: int) -> None:
    first, group = distinct(np.array(numbers, dtype=np.int64), below)
    different = sorted(set(numbers))
    assert [numbers[place] for place in first.tolist()] == different
    assert first.tolist() == [numbers.index(number) for number in different]
    assert [different[one] for one in group.tolist()] == numbers


@given(graphs(), st.integers(3, 60), st.data())
def test_what_would_be_too_large_is_settled_and_all_else_eliminated(
    graph: tuple[int, Scopes], most_entries: int, data: st.DataObject
) -> None:
    count, scopes = graph
    sizes = data.draw(st.lists(st.integers(2, 3), min_size=count, max_size=count))
    stayed = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    staying, order = find_order_settling(sizes, scopes, [0] * count, stayed, most_entries)
    check(order, count, [tuple(one for one in scope if one not in staying) for scope in scopes])
    assert set(order.core) == staying
    assert order.largest_bucket(np.array(sizes)) <= most_entries
    assert find_order(sizes, scopes, [0] * count, most_entries=most_entries).core or not staying


def test_the_variable_that_all_others_meet_is_settled_first_and_another_one_the_next_time() -> None:
    hub = [(0, other) for other in range(1, 8)] + [(other, other % 7 + 1) for other in range(1, 8)]
    first, _ = find_order_settling([4] * 8, hub, [0] * 8, [0] * 8, 4**3)
    assert first == {0}
    second, _ = find_order_settling([4] * 8, hub, [0] * 8, [1, *[0] * 7], 4**3)
    assert second
    assert 0 not in second
