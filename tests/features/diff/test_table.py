"""The tables of `tofu diff` at 80 and 120 columns and as Markdown, and their numbers beside the JSON's."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from golden import same_as_golden
from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.plan import Plan
from planner.features.diff.difference import Difference, OpChange, OpSide, TensorChange, TensorSide
from planner.features.diff.table import SHOWN_DIFFERENCES, print_difference
from planner.machine.rates import Rates
from planner.printing.sheet import Sheet
from planner.records import plain_record
from planner.units import format_bytes
from printed import as_markdown, as_text, on_terminal

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "[red]a|b`c\x1b[31m<script>alert(1)</script>@all"


def plan(moved: int, excess: int, **others: object) -> Plan:
    """A plan of which only totals matter."""
    totals = Plan(
        cuts=(2, 2),
        tilings={},
        strategies={},
        tensor_bytes={},
        moved_bytes=moved,
        computing_bytes=10_000_000,
        excess_bytes=excess,
        repeated_bytes=excess,
        rates=Rates(),
        certified_gap=0.0123,
        gap_of="bytes",
        strategy="tofu",
        unsplit=(),
        model="gpt",
        model_digest="a" * 64,
        soybean_bytes=0,
        peak_bytes=(3_000_000, 2_900_000, 3_000_000, 3_000_000),
    )
    return replace(totals, **others)  # type: ignore[arg-type]


def tensor(tiling: str | None, moved: int, shape: tuple[int, ...] = (1024, 4096), role: str = "state") -> TensorSide:
    return TensorSide(role, shape, tiling, moved)


ESTIMATE = TimeEstimate("dgx-h100", (0, 1, 2, 3), 0.004, 0.002, 0.001, 0.006, (), (), (), ())
FOUND = Difference(
    paths=(Path("main/plan"), Path("plan")),
    plans=(
        plan(5_000_000, 100_000),
        plan(9_718_592, 90_000, estimate=ESTIMATE, certified_gap=None, model="gpt-wide", peak_bytes=(2_500_000,) * 4),
    ),
    matched_by="surroundings",
    tensors=(
        TensorChange(
            tuple((f"h.{layer}.mlp.w.grad", f"h.{layer}.mlp.w.grad") for layer in range(36)),
            tensor("S(0)/2 S(1)/2", 0),
            tensor("R/2 S(0)@1/2", 131_072),
        ),
        TensorChange((("embedding", "wte.weight"),), tensor("S(0)/2 R/2", 300_000), tensor("R/2 R/2", 100_000)),
        TensorChange(((HOSTILE, HOSTILE),), tensor("R/2 R/2", 7), tensor("R/2 R/2", 9, shape=(1024, 8192))),
        TensorChange((("position", None),), tensor("S(1)/2 R/2", 100_000, shape=(1024, 64)), None),
        TensorChange(((None, "h.35.bias"), (None, "h.36.bias")), None, tensor("R/2 R/2", 0, shape=(64,))),
        TensorChange((("scale", "scale"),), tensor("R/2 R/2", 0), tensor(None, 0, role="constant")),
        TensorChange((("turned", "turned"),), tensor(None, 0, role="activation"), tensor("S(1)/2 S(1)/2", 0)),
    ),
    ops=(
        OpChange(
            tuple((f"h.{layer}.mlp.update", f"h.{layer}.mlp.update") for layer in range(36)),
            OpSide("Sub", "i0/2 i1/2", 0),
            OpSide("Sub", "R/2 R/2", 2_000),
        ),
        OpChange(
            (("softmax", "softmax"),), OpSide("Softmax", "i0/2 i0/2", 12), OpSide("Softmax", "through its body", 0)
        ),
        OpChange(((None, "turn"),), None, OpSide("Transpose", "i0/2 i1/2", 0)),
    ),
    compared_tensors=410,
    compared_ops=333,
    knows_excess=True,
)


def report(sheet: Sheet) -> None:
    print_difference(FOUND, sheet)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_terminal(report, columns, monkeypatch)
    assert max(map(len, text.splitlines())) <= columns
    same_as_golden(GOLDEN / f"diff.{columns}.txt", text)


def test_the_tables_as_markdown() -> None:
    same_as_golden(GOLDEN / "diff.md", as_markdown(report))


def test_the_json() -> None:
    record = plain_record(FOUND)
    assert record["schema_version"] == 1
    same_as_golden(GOLDEN / "diff.json", json.dumps(record, indent=1) + "\n")


def test_the_numbers_are_those_of_the_json() -> None:
    text, record = as_text(report), plain_record(FOUND)
    for key, name in (("moved_bytes", "moved"), ("excess_bytes", "penalty"), ("cost", "cost (moved and penalty)")):
        match = re.search(rf"^{re.escape(name)} +(\S+ \S+) +(\S+ \S+) ", text, re.MULTILINE)
        assert match is not None
        assert match.groups() == tuple(format_bytes(record[side][key]) for side in ("a", "b"))
    assert len(record["tensors"]) == len(FOUND.tensors)
    lines = text.splitlines()
    for change in [*record["tensors"][:3], record["ops"][0]]:
        total = change.get("total_moved_bytes") or change["total_excess_bytes"]
        name = change["names"][0][0].replace("0", "*").replace("\x1b", "\\x1b")
        at = next(number for number, line in enumerate(lines) if line.startswith(name))
        assert lines[at].endswith(f" {format_bytes(total['a'])}")
        sign = "+" if total["added"] > 0 else "-"
        assert re.search(rf" {format_bytes(total['b'])} +[+-]", lines[at + 1])
        assert lines[at + 1].endswith(f" {sign}{format_bytes(abs(total['added']))}")
        amount = change["a"].get("moved_bytes", change["a"].get("excess_bytes"))
        assert total["a"] == change["count"] * amount


def test_a_name_from_a_model_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [on_terminal(report, 120, monkeypatch), as_text(report), as_markdown(report)]
    for text in shown:
        assert "\x1b" not in text
    assert "[red]a|b`c\\x1b[31m<script>" in shown[1]
    row = next(line for line in shown[2].splitlines() if "script" in line)
    assert "<script" not in row
    assert "`c" not in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 6, "five cells"


def test_few_rows_unless_all_are_wanted() -> None:
    many = replace(
        FOUND,
        tensors=tuple(
            TensorChange(((f"{'x' * number}",) * 2,), tensor("R/2 R/2", 0), tensor("R/2 R/2", number))
            for number in range(1, SHOWN_DIFFERENCES + 4)
        ),
    )
    assert "and 3 smaller differences of tensors: --all shows them" in as_text(
        lambda sheet: print_difference(many, sheet)
    )
    text = as_text(lambda sheet: print_difference(many, sheet, shows_all=True))
    assert "smaller differences" not in text
    assert "x" * (SHOWN_DIFFERENCES + 3) in text


def test_plans_that_do_not_differ() -> None:
    text = as_text(
        lambda sheet: print_difference(replace(FOUND, tensors=(), ops=(), plans=(FOUND.plans[0],) * 2), sheet)
    )
    assert "no tensor and no op differs" in text
    assert "tiling" not in text


def test_the_excess_of_ops_is_left_out_where_it_is_not_known() -> None:
    ops = (OpChange((("own", "own"),), OpSide("my.Own", "R/2 R/2", None), OpSide("my.Own", "i0/2 R/2", None)),)
    difference = replace(FOUND, ops=ops, knows_excess=False)
    text = as_text(lambda sheet: print_difference(difference, sheet))
    assert re.search(r"^own +A +my.Own R/2 R/2$", text, re.MULTILINE)
    assert "--opdefs" in text
    assert "total_excess_bytes" not in plain_record(difference)["ops"][0]
