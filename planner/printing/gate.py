"""The output of `tofu check`, as tables for people, as plain values, and as annotations for GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from planner.gate.verdict import CheckResult, OpGrowth, Verdict
from planner.graph.core.patterns import counted, without_numbers
from planner.printable import some
from planner.printing.annotation import Annotation
from planner.printing.sheet import Sheet
from planner.units import binary, format_bytes, format_ratio

_SHOWN_OPS = 12
_SHOWN_NAMES = 3
_WORDS = {
    "cost": "cost",
    "moved_bytes": "moved",
    "peak_bytes": "memory per worker",
    "certified_gap": "gap to the optimum",
}
_SHORT_WORDS = _WORDS | {"peak_bytes": "memory", "certified_gap": "gap"}
_COLUMNS = ("model", "workers", "cost", "moved", "memory", "gap", "verdict")


def print_check(result: CheckResult, sheet: Sheet) -> None:
    """Prints every plan beside the baseline's, and the ops in which costs grew."""
    sheet.title(_headline(result))
    sheet.table(_COLUMNS, [_row(verdict) for verdict in result.verdicts], numbers=_COLUMNS[1:6], names=("model",))
    for verdict in result.verdicts:
        if not verdict.is_passed:
            _print_growth(sheet, verdict)
    if not result.is_updated:
        allowed = f"{format_ratio(result.max_increase)} more" if result.max_increase else "no increase"
        sheet.line(f"allowed: {allowed}")
        if not result.is_passed:
            sheet.line("if that is meant, --update; how two plans differ, says tofu diff")
        elif any(verdict.fell for verdict in result.verdicts):
            sheet.line("some cost less: --update would hold them to it")


def growth_annotations(result: CheckResult) -> Iterator[Annotation]:
    """The annotations that GitHub shows beside a pull request's changes: an error for each plan that costs more."""
    for verdict in result.verdicts:
        if verdict.is_passed:
            continue
        ops = _folded(op for op in verdict.ops if op.growth > 0)
        facts = [*_growths(verdict), *(f"{op.name}: {_change(op.before, op.after)}" for op in ops[:_SHOWN_OPS])]
        if len(ops) > _SHOWN_OPS:
            facts.append(f"and {sum(op.count for op in ops[_SHOWN_OPS:])} more ops")
        yield Annotation(
            "error",
            f"{verdict.model} on {verdict.workers} workers costs more than {result.baseline} says",
            tuple(facts),
            file=verdict.model if Path(verdict.model).is_file() else result.baseline,
        )


def _headline(result: CheckResult) -> str:
    count = len(result.verdicts)
    bad = sum(not verdict.is_passed for verdict in result.verdicts)
    if result.is_updated:
        return f"baseline {result.baseline}, written with {count} plan{'s' if count > 1 else ''}"
    if bad:
        return f"{bad} of {count} plans cost more than {result.baseline} says"
    return (
        f"{count} plans cost no more than {result.baseline} says"
        if count > 1
        else f"1 plan costs no more than {result.baseline} says"
    )


def _row(verdict: Verdict) -> tuple[str, ...]:
    before, after = verdict.baseline, verdict.now
    if before is None:
        word = "new"
    elif verdict.grew:
        word = "GREW: " + ", ".join(_short_change(verdict, quantity) for quantity in verdict.grew)
    elif verdict.fell:
        word = "fell: " + ", ".join(_short_change(verdict, quantity) for quantity in verdict.fell)
    else:
        word = "same" if after == before else "within the allowed"
    return (
        verdict.model,
        str(verdict.workers),
        format_bytes(after.cost),
        format_bytes(after.moved_bytes),
        binary(after.peak_bytes),
        _gap(after.certified_gap),
        word,
    )


def _short_change(verdict: Verdict, quantity: str) -> str:
    """``moved +1.2%``."""
    before, after = getattr(verdict.baseline, quantity), getattr(verdict.now, quantity)
    if quantity == "certified_gap":
        return f"{_SHORT_WORDS[quantity]} {_gap(before)} to {_gap(after)}"
    return f"{_SHORT_WORDS[quantity]} {_change(before, after)}"


def _gap(gap: float | None) -> str:
    return "none" if gap is None else format_ratio(gap)


def _change(before: int, after: int) -> str:
    """``+1.2%``; ``=`` where nothing changed."""
    if before == after:
        return "="
    if before == 0:
        return f"+{format_bytes(after)}"
    return ("+" if after > before else "") + format_ratio((after - before) / before)


def _growths(verdict: Verdict) -> Iterator[str]:
    """What grew, in full."""
    for quantity in verdict.grew:
        assert verdict.baseline is not None, "what has no baseline does not grow"
        before, after = getattr(verdict.baseline, quantity), getattr(verdict.now, quantity)
        amounts = (_gap(before), _gap(after)) if quantity == "certified_gap" else (f"{before:,}", f"{after:,} bytes")
        yield f"{_WORDS[quantity]} grew from {amounts[0]} to {amounts[1]}"


def _print_growth(sheet: Sheet, verdict: Verdict) -> None:
    """The ops of one plan that cost more, and those of other sizes."""
    sheet.title(f"{verdict.model} on {verdict.workers} workers")
    for growth in _growths(verdict):
        sheet.line(growth)
    resized = [op for op in verdict.ops if op.is_resized]
    shown = _folded([op for op in verdict.ops if op.growth > 0] or resized)
    if shown:
        rows = [row for op in shown[:_SHOWN_OPS] for row in _op_rows(op)]
        sheet.table(
            ("op", "", "type and shapes", "cost", "change"),
            rows,
            numbers=("cost", "change"),
            names=("op", "type and shapes"),
        )
    if len(shown) > _SHOWN_OPS:
        sheet.line(f"and {sum(op.count for op in shown[_SHOWN_OPS:])} more ops; --json names all of them")
    if resized:
        sheet.line(f"{len(resized)} of the model's ops have other sizes than in the baseline")


@dataclass(frozen=True, slots=True)
class _Alike:
    """Ops whose costs grew alike, and whose names differ in numbers alone."""

    name: str
    count: int
    growth: OpGrowth
    """Of each."""
    before: int
    """What all of them cost in the baseline."""
    after: int


def _folded(ops: Iterable[OpGrowth]) -> list[_Alike]:
    groups: dict[object, list[OpGrowth]] = {}
    for op in ops:
        key = replace(op, names=tuple(map(without_numbers, op.names)))
        groups.setdefault(key, []).append(op)
    rows = [
        _Alike(
            some([counted(names) for names in zip(*(op.names for op in alike), strict=True)], _SHOWN_NAMES),
            len(alike),
            alike[0],
            sum(op.baseline_cost for op in alike),
            sum(op.cost for op in alike),
        )
        for alike in groups.values()
    ]
    return sorted(rows, key=lambda alike: alike.before - alike.after)


def _op_rows(op: _Alike) -> Iterator[tuple[str, ...]]:
    """Ops as in the baseline and as they are now."""
    growth = op.growth
    yield op.name, "was", f"{growth.op_type} {growth.shapes_before}", format_bytes(op.before), ""
    form = f"{growth.op_type} {growth.shapes}" if growth.is_resized else ""
    yield "", "now", form, format_bytes(op.after), _change(op.before, op.after)
