"""The reader, the judge and the solver of ``bench/iopddl.py``, on instances small enough to be enumerated."""

import gzip
import itertools
import json
import math
from pathlib import Path

import iopddl
import iopddl_instance
import iopddl_prices
import iopddl_solver
import numpy as np
import pytest
from scipy.optimize import LinearConstraint, linprog, milp

from planner.errors import InfeasibleError

Drawn = dict[str, dict[str, object]]


def problem(limit: int = 25) -> Drawn:
    """Three nodes in a row: the first two take memory at times 0 to 3 and 2 to 5."""
    nodes = {
        "intervals": [[0, 4], [2, 6], [0, 0]],
        "costs": [[15, 55], [45, 65], [10, 0]],
        "usages": [[10, 25], [20, 10], [99, 99]],
    }
    edges = {"nodes": [[0, 1], [2, 1]], "costs": [[30, 40, 20, 50], [7, 3, 11, 5]]}
    return {"problem": {"name": "row", "nodes": nodes, "edges": edges, "usage_limit": limit}}


def written(folder: Path, content: Drawn) -> Path:
    path = folder / "tiny-X.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_costs_and_usages_are_those_added_by_hand(tmp_path: Path) -> None:
    """15 + 65 + 10 of the nodes, 40 + 3 of the edges; at times 2 and 3 the first two take 10 each."""
    instance = iopddl_instance.read(written(tmp_path, problem()))
    assert iopddl_instance.judge(instance, [0, 1, 0]) == iopddl_instance.Judged(cost=133, usage=20)
    assert iopddl_instance.judge(instance, [0, 0, 1]) == iopddl_instance.Judged(cost=15 + 45 + 0 + 30 + 11, usage=30)


def test_an_interval_ends_before_its_upper_time(tmp_path: Path) -> None:
    content = problem()
    content["problem"]["nodes"]["intervals"] = [[0, 2], [2, 6], [0, 0]]  # type: ignore[index]
    instance = iopddl_instance.read(written(tmp_path, content))
    assert iopddl_instance.judge(instance, [1, 0, 0]).usage == 25


def test_the_cheapest_plan_within_the_limit_is_found(tmp_path: Path) -> None:
    instance = iopddl_instance.read(written(tmp_path, problem()))
    solved = iopddl_solver.solve(instance, math.inf, most_rounds=50)
    assert solved.chosen is not None
    assert iopddl_instance.judge(instance, solved.chosen) == iopddl_instance.Judged(cost=133 - 10 - 3 + 5, usage=20)


def drawn(seed: int) -> Drawn:
    """A few nodes with memory; an edge in three excludes strategies, one in three makes a node another's function."""
    numbers = np.random.default_rng(seed)
    sizes = numbers.integers(1, 4, 6).tolist()
    pairs = [pair for pair in itertools.permutations(range(6), 2) if numbers.random() < 0.25]
    tables = []
    for one, other in pairs:
        table = numbers.integers(0, 30, (sizes[one], sizes[other]))
        kind = numbers.integers(3)
        if kind == 1:
            table[numbers.random(table.shape) < 0.2] = iopddl_instance.IMPOSSIBLE
        elif kind == 2 and sizes[one] == sizes[other]:
            table[~np.eye(sizes[one], dtype=bool)] = iopddl_instance.IMPOSSIBLE
        tables.append(table.ravel().tolist())
    starts = numbers.integers(0, 6, 6).tolist()
    nodes = {
        "intervals": [[start, start + int(numbers.integers(0, 5))] for start in starts],
        "costs": [numbers.integers(0, 30, size).tolist() for size in sizes],
        "usages": [numbers.integers(0, 10, size).tolist() for size in sizes],
    }
    edges = {"nodes": [list(pair) for pair in pairs], "costs": tables}
    limit = int(numbers.integers(8, 22))
    return {"problem": {"name": f"drawn {seed}", "nodes": nodes, "edges": edges, "usage_limit": limit}}


def test_the_optimum_of_enumeration_is_found_and_proven(tmp_path: Path) -> None:
    plans = impossible = limited = 0
    for seed in range(25):
        instance = iopddl_instance.read(written(tmp_path, drawn(seed)))
        judged = [
            iopddl_instance.judge(instance, one) for one in itertools.product(*(range(len(c)) for c in instance.costs))
        ]
        possible = [one.cost for one in judged if one.usage <= instance.limit and one.cost < iopddl_instance.IMPOSSIBLE]
        best = min(possible, default=None)
        try:
            iopddl_instance.refuse_impossible(instance)
            solved = iopddl_solver.solve(instance, math.inf, most_rounds=30)
        except InfeasibleError:
            assert best is None
            impossible += 1
            continue
        if best is None:
            assert solved.chosen is None
            continue
        limited += min(one.cost for one in judged) < best
        assert solved.chosen is not None
        found = iopddl_instance.judge(instance, solved.chosen)
        assert found.usage <= instance.limit
        assert found.cost == best == solved.lower
        plans += 1
    assert plans >= 15
    assert impossible >= 1
    assert limited >= 3


def optimum(instance: iopddl_instance.Instance) -> int | None:
    """The least cost of a plan by HiGHS, or None where there is none: a share of each strategy and of each pair."""
    starts = np.cumsum([0, *(len(costs) for costs in instance.costs)])
    costs, equal, right = np.concatenate(instance.costs).astype(float).tolist(), [], []
    for node, own in enumerate(instance.costs):
        equal.append([(int(starts[node]) + value, 1) for value in range(len(own))])
        right.append(1)
    for (one, other), table in zip(instance.edges.tolist(), instance.tables, strict=True):
        entry = len(costs) + np.arange(table.size).reshape(table.shape)
        costs += np.where(table < iopddl_instance.IMPOSSIBLE, table, 10**6).ravel().tolist()
        for node, lines in ((one, entry), (other, entry.T)):
            for value, line in enumerate(lines.tolist()):
                equal.append([(int(starts[node]) + value, -1), *((column, 1) for column in line)])
                right.append(0)
    most = []
    for time in range(int(instance.intervals.max(initial=0))):
        alive = np.flatnonzero((instance.intervals[:, 0] <= time) & (time < instance.intervals[:, 1])).tolist()
        most.append([(int(starts[n]) + v, int(use)) for n in alive for v, use in enumerate(instance.usages[n])])
    rows = np.zeros((len(equal) + len(most), len(costs)))
    for number, line in enumerate(equal + most):
        for column, share in line:
            rows[number, column] = share
    upper = np.array(right + [instance.limit] * len(most))
    lower = np.array([*right, *([-np.inf] * len(most))])
    whole = np.ones(len(costs))
    found = milp(np.array(costs), constraints=LinearConstraint(rows, lower, upper), bounds=(0, 1), integrality=whole)
    return None if found.x is None or found.fun > 10**6 - 1 else round(found.fun)


@pytest.mark.parametrize(
    "seeds", [range(1000, 1008), pytest.param(range(2000, 4000), marks=pytest.mark.nightly)], ids=["8", "2000"]
)
def test_an_integer_programme_is_met_where_there_is_no_gap_and_is_within_it_elsewhere(
    tmp_path: Path, seeds: range
) -> None:
    plans = optimal = 0
    for seed in seeds:
        instance = iopddl_instance.read(written(tmp_path, drawn(seed)))
        best = optimum(instance)
        try:
            iopddl_instance.refuse_impossible(instance)
            solved = iopddl_solver.solve(instance, math.inf, most_rounds=12)
        except InfeasibleError:
            assert best is None
            continue
        assert best is None or solved.lower <= best
        if solved.chosen is not None:
            found = iopddl_instance.judge(instance, solved.chosen)
            assert best is not None
            assert best <= found.cost
            assert found.usage <= instance.limit
            plans, optimal = plans + 1, optimal + (found.cost == best == solved.lower)
    assert plans >= len(seeds) / 2
    assert optimal >= len(seeds) / 4


def test_prices_for_proposals_are_those_of_the_linear_programme() -> None:
    for seed in range(20):
        numbers = np.random.default_rng(seed)
        costs, highest = numbers.random(12), numbers.random(3)
        over = numbers.random((12, 3)) - 0.5
        prices = iopddl_prices.best_prices(costs, over, highest)
        peer = linprog(
            [-1, 0, 0, 0],
            A_ub=np.column_stack([np.ones(12), -over]),
            b_ub=costs,
            bounds=[(None, None), *((0, most) for most in highest)],
        )
        assert (costs + over @ prices).min() == pytest.approx(-peer.fun)


def test_nodes_that_take_too_much_at_least_have_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match="at time 2 nodes take at least 20, 1 more than the limit"):
        iopddl_instance.refuse_impossible(iopddl_instance.read(written(tmp_path, problem(limit=19))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it ends early"),
        ('{"problem": {"nodes": {', "it ends early"),
        ('{"problem": 3}', "it has no 'problem'"),
        (json.dumps(problem()).replace("55", "1e2"), "expected"),
        (json.dumps(problem()).replace("55", "-55"), "node 0 has a cost or usage below 0"),
        (json.dumps(problem()).replace("[2, 1]", "[2, 7]"), "edge 1 is between"),
        (json.dumps(problem()).replace("[7, 3, 11, 5]", "[7, 3, 11]"), "edge 1 has 3 costs"),
        (json.dumps(problem()).replace("[99, 99]", "[99]"), "node 2 has 2 costs, 1 usages"),
        (json.dumps(problem()).replace("[99, 99]", f"[99, {1 << 62}]"), "its nodes may take 4,611,686,018,427,387,904"),
        (json.dumps(problem()) + "]", "there is text after its end"),
    ],
)
def test_what_is_no_instance_is_refused_with_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tiny-X.json"
    path.write_text(text)
    with pytest.raises(iopddl_instance.NoInstanceError, match="is no instance: ") as refused:
        iopddl_instance.read(path)
    assert told in str(refused.value)


def test_the_command_ends_with_2_for_what_is_no_instance_and_with_1_for_what_has_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["iopddl.py", str(tmp_path), "X", "--seconds", "0.2", "--solutions", str(tmp_path)])
    path = written(tmp_path, problem())
    assert iopddl.main() == 0
    assert json.loads((tmp_path / "row.txt").read_text()) == [0, 1, 1]
    written(tmp_path, problem(limit=19))
    assert iopddl.main() == 1
    assert "X: no plan: at time 2 nodes take at least 20, 1 more than the limit" in capsys.readouterr().out
    path.write_bytes(b"no gzip")
    assert iopddl.main() == 2
    assert "is no instance" in capsys.readouterr().err
