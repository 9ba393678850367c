"""One op that reads a tensor at two places: what is brought to it, and what it shares, is counted and moved once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from planner import api, opdefs
from planner.cost.tables import CostTables
from planner.graph.reading.from_onnx import read_model
from planner.partition.build import partition
from planner.planning.deliveries import with_savings
from planner.planning.goal import least_cost
from planner.planning.limit.room import shared_where_room
from planner.planning.limit.trial import Trial
from planner.planning.paid_again import paid_for_twice, savings
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
GRAM = f"""{HEAD}
step (float[4, 256] g) => (float[4, 4] a) {{
    a = Gemm <transB = 1> (g, g)
}}"""
SEVERAL = f"""{HEAD}
step (float[4, 256] g) => (float[4, 256] b, float[4, 4] a, float[4, 256] c) {{
    b = Softmax <axis = 0> (g)
    a = Gemm <transB = 1> (g, g)
    c = LogSoftmax <axis = 0> (g)
}}"""


def muon(sizes: tuple[int, ...], steps: int) -> str:
    """Momenta made orthogonal by steps of Newton and Schulz, matrix by matrix; of unequal sizes none are stacked."""
    given, made, ops = [], [], []
    for number, size in enumerate(sizes):
        x = f"x{number}"
        given.append(f"float[{size}, {size}] m{number}")
        ops.append(f"{x} = Div(m{number}, hundred)")
        for step in range(steps):
            t, a, b, c, d, e = (f"{letter}{number}_{step}" for letter in "tabcde")
            ops += [
                f"{t} = Transpose <perm = [1, 0]> ({x})",
                f"{a} = MatMul({x}, {t})",
                f"{b} = MatMul({a}, {a})",
                f"{c} = Add({a}, {b})",
                f"{d} = MatMul({c}, {x})",
                f"{e} = Sub({x}, {d})",
            ]
            x = e
        made.append(f"float[{size}, {size}] {x}")
    signature = f"step ({', '.join(given)}) => ({', '.join(made)}) <float hundred = {{100}}>"
    return f"{HEAD} {signature} {{ {' '.join(ops)} }}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str) -> Path:
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return Path("m.onnx")


def decided(text: str, **pins: str) -> Decision:
    """A plan for four workers in which each reader has its own deliveries."""
    graph, descriptions = read_model(written(text)), opdefs.standard()
    ask = SearchRequest(4, rules=Rules({"g": "S(0)", **pins}), effort="quick")
    return decide(graph, descriptions.bind_all(graph), ask)


COLUMNS = 4 * 4 * 256 * 4 * 3 // 16
"""Bytes of a quarter of the columns, of which each of four workers has a row."""


def test_what_an_op_needs_at_two_places_is_brought_once(here: Path) -> None:
    """A Gram matrix cut along its terms."""
    plain = decided(GRAM)
    (found,) = savings(plain, paid_for_twice(plain, CostTables()))
    assert len(found.delivery.readers) == 1
    assert (found.paid_bytes, found.once_bytes) == ((2 * COLUMNS,), COLUMNS)
    sharing = with_savings(plain, [found], opdefs.standard(), CostTables())
    program = partition(sharing.graph, sharing.ops, sharing).program
    assert program.predicted_bytes == sharing.moved_bytes == plain.moved_bytes - COLUMNS


def test_readers_that_are_told_apart_save_what_they_pay(here: Path) -> None:
    """Where there is not the memory for one delivery to all, some share; one who reads it twice, with itself."""
    plain, tables, descriptions = decided(SEVERAL, b="S(1)", c="S(1)"), CostTables(), opdefs.standard()
    (saving,) = savings(plain, paid_for_twice(plain, tables))
    assert saving.paid_bytes == (COLUMNS, 2 * COLUMNS, COLUMNS)
    for first, end, times in ((0, 3, 3), (0, 2, 2), (1, 3, 2), (1, 2, 1), (0, 1, 0)):
        found = with_savings(plain, [saving.among(first, end)], descriptions, tables)
        assert plain.moved_bytes - found.moved_bytes == saving.among(first, end).saved_bytes == times * COLUMNS


def test_where_not_all_fits_some_share(here: Path) -> None:
    """The groups that are tried are those that save something."""
    plain, tables = decided(SEVERAL, b="S(1)", c="S(1)"), CostTables()
    alone = Trial(plain)
    tried: list[int] = []

    def of(trial: Trial) -> int:
        tried.append(alone.decided.moved_bytes - trial.decided.moved_bytes)
        return trial.decided.cost

    ask = SearchRequest(4, tables=tables)
    found = shared_where_room(alone, replace(least_cost(tables), of=of), ask, opdefs.standard(), [1] * 4)
    assert found is alone
    assert sorted({saved for saved in tried if saved}) == [COLUMNS, 2 * COLUMNS, 3 * COLUMNS]


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_momenta_made_orthogonal_are_planned_and_moved_as_predicted(here: Path, gpus: int) -> None:
    result = api.plan(written(muon((24, 20), 3)), gpus=gpus, pin={"m*": "S(0)"}, replicate="none", out=Path("plan"))
    assert result.plan.deliveries
    run = api.run(Path("plan"), verify=True)
    assert run.verified
    assert run.moved_bytes == result.plan.moved_bytes > 0


@pytest.mark.slow
def test_a_delivery_to_one_op_moves_what_was_predicted(here: Path) -> None:
    result = api.plan(written(GRAM), gpus=4, pin={"g": "S(0)"}, out=Path("plan"))
    (delivery,) = result.plan.deliveries
    assert len(delivery.readers) == 1
    run = api.run(Path("plan"), verify=True)
    assert run.verified
    assert run.moved_bytes == result.plan.moved_bytes
    assert api.explain(Path("plan"), subject=delivery.name).ops
