"""The output of `tofu diff`, as tables for people and as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

from planner.artifacts.plan import Plan
from planner.features.diff.difference import Change, Difference, OpSide, Side, TensorSide
from planner.graph.core.patterns import counted
from planner.printing.sheet import Sheet, TextSheet
from planner.units import Number, binary, format_bytes, format_ratio, format_seconds

SHOWN_DIFFERENCES: Final = 20
_MATCHED_BY = {
    "places": "matched by place: the models have one structure, whatever the names",
    "surroundings": "matched by names and surroundings: the models differ in more than sizes",
}


def print_difference(diff: Difference, sheet: Sheet, *, shows_all: bool = False) -> None:
    """Prints two plans side by side, and the tensors and ops that differ.

    Args:
        diff: what differs.
        sheet: to print on.
        shows_all: print every diff, not only the largest.
    """
    of = [f" of {plan.model}" if len({plan.model for plan in diff.plans}) > 1 else "" for plan in diff.plans]
    sheet.title(f"A is {diff.paths[0]}{of[0]}, B is {diff.paths[1]}{of[1]}")
    sheet.table(("", "A", "B", "B - A"), list(_totals(*diff.plans)), numbers=("A", "B", "B - A"))
    machines = [_topology(plan) for plan in diff.plans]
    if machines[0] != machines[1]:
        sheet.line(f"topology: {machines[0]} in A, {machines[1]} in B")
    if diff.matched_by in _MATCHED_BY:
        sheet.line(_MATCHED_BY[diff.matched_by])
    for line in _summary(diff):
        sheet.line(line)
    shown = None if shows_all else SHOWN_DIFFERENCES
    _table(sheet, "tensor", "tiling", "moved", diff.tensors, _describe_tensor, shown)
    _table(sheet, "op", "strategy", "penalty" if diff.knows_excess else "", diff.ops, _describe_op, shown)
    if not diff.knows_excess and diff.ops:
        sheet.line("the penalty of ops is not told: `tofu ops --opdefs FILE` executes the descriptions once")


def print_as_text(difference: Difference, file: TextIO) -> None:
    """Prints the largest differences for people."""
    print_difference(difference, TextSheet(file))


def _totals(a: Plan, b: Plan) -> Iterator[tuple[str, ...]]:
    """A line for each number of the plans, and one for what else they are, where that differs."""
    for name, facts in (
        ("workers", (_workers(a), _workers(b))),
        ("strategy", (a.strategy, b.strategy)),
    ):
        if name == "workers" or facts[0] != facts[1]:
            yield name, *facts, "" if facts[0] != facts[1] else "="
    yield _total("moved", a.moved_bytes, b.moved_bytes, format_bytes)
    yield _total("penalty", a.excess_bytes, b.excess_bytes, format_bytes)
    yield _total("cost (moved and penalty)", a.cost, b.cost, format_bytes)
    yield _total("memory per worker", max(a.peak_bytes), max(b.peak_bytes), binary)
    times = [None if plan.estimate is None else plan.estimate.estimated_seconds for plan in (a, b)]
    if times != [None, None]:
        yield _total("estimated time", times[0], times[1], format_seconds)
    yield "gap to the optimum", _gap(a), _gap(b), "=" if _gap(a) == _gap(b) else ""


def _workers(plan: Plan) -> str:
    return f"{plan.workers} ({' x '.join(map(str, plan.cuts)) or 'no cuts'})"


def _topology(plan: Plan) -> str:
    return "none" if plan.estimate is None else plan.estimate.topology


def _gap(plan: Plan) -> str:
    return "unknown" if plan.certified_gap is None else f"{format_ratio(plan.certified_gap)} of {_GAP_OF[plan.gap_of]}"


_GAP_OF = {"bytes": "cost", "time": "time"}


def _total(name: str, a: float | None, b: float | None, text_of: Callable[[Number], str]) -> tuple[str, ...]:
    if a is None or b is None:
        return name, "unknown" if a is None else text_of(a), "unknown" if b is None else text_of(b), ""
    return name, text_of(a), text_of(b), _added(a, b, text_of)


def _added(a: float, b: float, text_of: Callable[[Number], str]) -> str:
    """``+2.2 MB (+18%)``; ``=`` where nothing is added."""
    if a == b:
        return "="
    sign = "+" if b > a else "-"
    text = f"{sign}{text_of(abs(b - a))}"
    if not a:
        return text
    return f"{text} (x{b / a:,.0f})" if b > _MANY * a else f"{text} ({sign}{format_ratio(abs(b - a) / a)})"


_MANY = 10
"""From so many times as much on, nobody wants it in percent."""


def _summary(diff: Difference) -> Iterator[str]:
    if diff.is_none:
        yield "no tensor and no op differs"
        return
    for kind, changes, compared in (
        ("tensors", diff.tensors, diff.compared_tensors),
        ("ops", diff.ops, diff.compared_ops),
    ):
        count = {at: sum(change.count for change in changes if change.only_in == at) for at in (None, "a", "b")}
        only = "".join(f", {count[at]:,} only in {at.upper()}" for at in ("a", "b") if count[at])
        yield f"{kind} that differ: {count[None]:,} of {compared:,} that both have{only}"


def _table(
    sheet: Sheet,
    kind: str,
    how: str,
    amount: str,
    changes: Sequence[Change[Side]],
    describe: Callable[[Side], tuple[str, str]],
    shown: int | None,
) -> None:
    """Prints differences, a line for each plan that has such a tensor or op.

    Args:
        sheet: to print on.
        kind: tensor, or op.
        how: what a plan gives it.
        amount: what is told in bytes; "" if nothing is.
        changes: to be printed.
        describe: of one in a plan its size, or what else its name needs, and what the plan gives it.
        shown: how many differences, at most; None: all.
    """
    if not changes:
        return
    numbers: tuple[str, ...] = (amount, "B - A") if amount else ()
    rows = [row[: 3 + len(numbers)] for change in changes[:shown] for row in _rows(change, describe)]
    sheet.table((kind, "in", how, *numbers), rows, numbers=numbers, names=(kind, how))
    if len(changes) > len(changes[:shown]):
        sheet.line(f"and {len(changes[shown:]):,} smaller differences of {kind}s: --all shows them")


def _rows(change: Change[Side], describe: Callable[[Side], tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """The lines of one difference, under A and under B; what B has in common with A is not said again."""
    sizes = [None if side is None else describe(side)[0] for side in (change.a, change.b)]
    before = ""
    for at, (side, size) in enumerate(zip((change.a, change.b), sizes, strict=True)):
        if side is None:
            continue
        name = counted([pair[at] or "" for pair in change.names])
        shown = [name] if name != before else []
        if size and sizes[0] != sizes[1]:
            shown.append(size)
        where = "AB"[at] + (" only" if change.only_in else "")
        last = at or change.only_in
        amount = format_bytes(change.b_bytes if at else change.a_bytes)
        yield (
            " ".join(shown),
            where,
            describe(side)[1],
            amount,
            _signed(change.added_bytes) if last else "",
        )
        before = name


def _describe_tensor(side: TensorSide) -> tuple[str, str]:
    return str(list(side.shape)), side.tiling or ("constant" if side.role == "constant" else "read in place")


def _describe_op(side: OpSide) -> tuple[str, str]:
    return "", f"{side.op_type} {side.strategy}"


def _signed(added: int) -> str:
    return "=" if not added else f"{'+' if added > 0 else '-'}{format_bytes(abs(added))}"
