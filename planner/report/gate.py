"""What `tofu check` found, as a table for people and as plain values."""

from __future__ import annotations

from typing import Any, TextIO

from planner.gate.baseline import PlanCost
from planner.gate.verdict import CheckResult, OpGrowth, Verdict
from planner.report.console import ReportConsole
from planner.units import ByteUnit, format_bytes, format_ratio

SCHEMA_VERSION = 2
_SHOWN_OPS = 12
_WORDS = {
    "cost": "cost",
    "moved_bytes": "moved",
    "peak_bytes": "memory per worker",
    "certified_gap": "gap to the optimum",
}


def check_json(result: CheckResult) -> dict[str, Any]:
    """What ``tofu check --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": result.baseline,
        "max_increase": float(result.max_increase),
        "passed": result.is_passed,
        "updated": result.is_updated,
        "plans": [
            {
                "model": verdict.model,
                "workers": verdict.workers,
                "passed": verdict.is_passed,
                "grew": list(verdict.grew),
                "fell": list(verdict.fell),
                **_cost(verdict.now),
                "baseline": None if verdict.baseline is None else _cost(verdict.baseline),
                "ops": [
                    {
                        "names": list(op.names),
                        "op_type": op.op_type,
                        "shapes": op.shapes,
                        "baseline_shapes": op.shapes_before,
                        "cost": op.cost,
                        "baseline_cost": op.baseline_cost,
                    }
                    for op in verdict.ops
                ],
            }
            for verdict in result.verdicts
        ],
    }


def _cost(cost: PlanCost) -> dict[str, Any]:
    return {
        "cost": cost.cost,
        "moved_bytes": cost.moved_bytes,
        "peak_bytes": cost.peak_bytes,
        "certified_gap": cost.certified_gap,
    }


def print_check(result: CheckResult, file: TextIO) -> None:
    """Prints every plan beside the baseline's, and the ops in which costs grew."""
    console = ReportConsole(file)
    columns = ("model", "workers", "cost", "change", "moved", "change", "memory per worker", "change", "gap", "verdict")
    console.print_table(columns, [_row(verdict) for verdict in result.verdicts], columns[1:9])
    for verdict in result.verdicts:
        if not verdict.is_passed:
            console.print()
            _print_growth(console, verdict)
    console.print()
    bad = sum(not verdict.is_passed for verdict in result.verdicts)
    facts = [("baseline", result.baseline + (", written" if result.is_updated else ""))]
    if not result.is_updated:
        facts.append(("allowed", f"{format_ratio(result.max_increase)} more" if result.max_increase else "no increase"))
        count = len(result.verdicts)
        facts.append(("verdict", f"{bad} of {count} plans cost more" if bad else f"{count} plans cost no more"))
        if not bad and any(verdict.fell for verdict in result.verdicts):
            facts.append(("note", "some cost less: --update would hold them to it"))
    console.print_facts(facts)


def _row(verdict: Verdict) -> tuple[str, ...]:
    before, now = verdict.baseline, verdict.now
    if before is None:
        word = "new"
    elif verdict.grew:
        word = "GREW: " + ", ".join(_WORDS[what] for what in verdict.grew)
    else:
        word = "fell" if verdict.fell else "same" if now == before else "within the allowed"
    return (
        verdict.model,
        str(verdict.workers),
        format_bytes(now.cost),
        "" if before is None else _change(before.cost, now.cost),
        format_bytes(now.moved_bytes),
        "" if before is None else _change(before.moved_bytes, now.moved_bytes),
        format_bytes(now.peak_bytes, ByteUnit.BINARY),
        "" if before is None else _change(before.peak_bytes, now.peak_bytes),
        _gap(now.certified_gap),
        word,
    )


def _gap(gap: float | None) -> str:
    return "none" if gap is None else format_ratio(gap)


def _change(before: int, now: int) -> str:
    """``+1.2%``; ``=`` where nothing changed."""
    if before == now:
        return "="
    if before == 0:
        return f"+{format_bytes(now)}"
    return ("+" if now > before else "") + format_ratio((now - before) / before)


def _print_growth(console: ReportConsole, verdict: Verdict) -> None:
    """The ops of one plan that cost more, and those of other sizes."""
    where = f"{verdict.model} on {verdict.workers} workers"
    for what in verdict.grew:
        assert verdict.baseline is not None, "what has no baseline does not grow"
        before, now = getattr(verdict.baseline, what), getattr(verdict.now, what)
        amounts = (_gap(before), _gap(now)) if what == "certified_gap" else (f"{before:,}", f"{now:,} bytes")
        console.print_line(f"{where}: {_WORDS[what]} grew from {amounts[0]} to {amounts[1]}")
    resized = [op for op in verdict.ops if op.is_resized]
    shown = [op for op in verdict.ops if op.growth > 0] or resized
    if shown:
        columns = ("op", "type", "shapes", "cost", "change")
        console.print_table(columns, [_op_row(op) for op in shown[:_SHOWN_OPS]], columns[3:])
    if len(shown) > _SHOWN_OPS:
        console.print_line(f"and {len(shown) - _SHOWN_OPS} more ops; --json names all of them")
    if resized:
        console.print_line(f"{len(resized)} of the model's ops have other sizes than in the baseline")


def _op_row(op: OpGrowth) -> tuple[str, ...]:
    return (
        ", ".join(op.names),
        op.op_type,
        f"{op.shapes}, was {op.shapes_before}" if op.is_resized else op.shapes,
        format_bytes(op.cost),
        _change(op.baseline_cost, op.cost),
    )
