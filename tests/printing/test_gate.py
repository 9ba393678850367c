"""The tables of `tofu check` at 80 and 120 columns and as Markdown, what GitHub is told, and the JSON beside them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from golden import same_as_golden
from planner.gate.baseline import PlanCost
from planner.gate.verdict import CheckResult, OpGrowth, Verdict
from planner.printing.gate import growth_annotations, print_check
from planner.printing.sheet import Sheet
from planner.records import plain_record
from planner.units import ByteUnit, format_bytes
from printed import as_markdown, as_text, on_terminal

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "[b]|`x\x1b[31m<script>\n::error::,:%"
SHAPES = ("[64, 1024] [1024, 4096] -> [64, 4096]", "[64, 1024] [1024, 4097] -> [64, 4097]")


def cost(moved: int, peak: int = 3_000_000, gap: float | None = 0.0) -> PlanCost:
    return PlanCost(moved + 1_000, moved, peak, gap, {})


GREW = ("cost", "moved_bytes", "peak_bytes", "certified_gap")
RESULT = CheckResult(
    "costs.json",
    Fraction(0),
    (
        Verdict("train.onnx", 2, cost(5_000_000), cost(5_000_000), (), (), ()),
        Verdict(
            "train.onnx",
            4,
            cost(5_000_000),
            cost(5_250_000, 3_100_000, 0.021),
            GREW,
            (),
            (
                OpGrowth(("block1.up", "block2.up"), "Gemm", SHAPES[1], SHAPES[0], 1_000_000, 1_150_000),
                OpGrowth((HOSTILE,), "Gemm", SHAPES[0], SHAPES[0], 0, 100_000),
                *(OpGrowth((f"n{one}",), "Relu", SHAPES[1], SHAPES[0], 0, 10) for one in range(12)),
                *(OpGrowth((f"{'m' * one}",), "Mul", SHAPES[0], SHAPES[0], 0, 1) for one in range(1, 13)),
            ),
        ),
        Verdict("models/export.onnx", 8, cost(6_000_000), cost(5_000_000), (), ("cost", "moved_bytes"), ()),
        Verdict("gpt-2x1024", 8, None, cost(7_000_000, gap=None), (), (), ()),
    ),
    is_updated=False,
)


def report(sheet: Sheet) -> None:
    print_check(RESULT, sheet)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_terminal(report, columns, monkeypatch)
    assert max(map(len, text.splitlines())) <= columns
    same_as_golden(GOLDEN / f"check.{columns}.txt", text)


def test_the_tables_as_markdown() -> None:
    text = as_markdown(report)
    assert "<script" not in text
    assert "\x1b" not in text
    same_as_golden(GOLDEN / "check.md", text)


def test_the_json() -> None:
    found = plain_record(RESULT)
    assert found["schema_version"] == 2
    same_as_golden(GOLDEN / "check.json", json.dumps(found, indent=1) + "\n")


def test_the_numbers_are_those_of_the_json() -> None:
    lines = as_text(report).splitlines()
    plans = plain_record(RESULT)["plans"]
    assert len(plans) == len(RESULT.verdicts)
    for plan in plans:
        cells = [
            plan["model"],
            str(plan["workers"]),
            format_bytes(plan["cost"]),
            format_bytes(plan["moved_bytes"]),
            format_bytes(plan["peak_bytes"], ByteUnit.BINARY),
        ]
        assert any(" ".join(line.split()).startswith(" ".join(cells)) for line in lines)
    assert "cost grew from 5,001,000 to 5,251,000 bytes" in lines


def test_what_github_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [str(one) for one in growth_annotations(RESULT)]
    same_as_golden(GOLDEN / "check.annotations.txt", "".join(f"{line}\n" for line in lines))
    assert len(lines) == 1, "of the plan that grew, alone"
    assert lines[0].startswith("::error file=costs.json,")
    Path("train.onnx").write_bytes(b"")
    assert next(growth_annotations(RESULT)).file == "train.onnx"


def test_a_baseline_that_was_written() -> None:
    written = CheckResult("costs.json", Fraction(0), RESULT.verdicts[3:], is_updated=True)
    text = as_text(lambda sheet: print_check(written, sheet))
    assert text.startswith("baseline costs.json, written with 1 plan\n")
    assert "allowed" not in text
