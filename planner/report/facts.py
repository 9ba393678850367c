"""What is said of a plan as a whole, line by line: the same names and units wherever it is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.artifacts.plan import Plan, UndescribedOp
from planner.machine.rates import Rates
from planner.report.console import ReportConsole
from planner.report.estimate import estimate_facts
from planner.units import ByteUnit, format_bytes, format_ratio

_SHOWN_UNSPLIT = 5


def memory(count: int) -> str:
    """Bytes that a worker holds: ``11.9 GiB``, the unit in which devices are sold."""
    return format_bytes(count, ByteUnit.BINARY)


def counted(number: int, what: str, plural: str = "s") -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {what}{'' if number == 1 else plural}"


def cuts_text(cuts: Sequence[int]) -> str:
    """``2 x 2``."""
    return " x ".join(map(str, cuts)) or "none"


def slowest(plan: Plan) -> list[tuple[str, str]]:
    """What repeated and uneven work costs: in time of the slowest worker, and as bytes of a link."""
    uneven = plan.excess_bytes - plan.repeated_bytes
    parts = f"{format_bytes(plan.repeated_bytes)} of repeated work, {format_bytes(uneven)} of uneven work"
    more = f"computes {format_ratio(plan.slowest_share - 1)} longer than an even share"
    return [
        ("slowest worker", f"{more}, as if {format_bytes(plan.excess_bytes)} moved ({parts})"),
        *_rates(plan.rates),
    ]


def _rates(rates: Rates) -> list[tuple[str, str]]:
    """By which excess was counted, where the user said it."""
    if rates == Rates():
        return []
    each = f"{rates.touched_bytes:.3g} bytes of memory and {rates.operations:.3g} operations"
    return [("  by rates", f"{each} in the time of a byte of a link")]


def gap(plan: Plan) -> tuple[str, str]:
    """How far the plan may be above the best one, and in what."""
    what = {"bytes": "of moved bytes and excess", "time": "of time, as the tables of the search add it up"}[plan.gap_of]
    text = "not computed" if plan.certified_gap is None else f"{format_ratio(plan.certified_gap)} {what}"
    if plan.deliveries and plan.certified_gap is not None:
        text += ", of plans in which these readers may share"
    return "gap to the optimum", text


def restrictions(plan: Plan) -> list[tuple[str, str]]:
    """What the search did not do, and what the plan leaves whole."""
    facts = []
    if plan.stopped_by is not None:
        why = {"time": "the time for it was over", "interrupt": "it was interrupted"}[plan.stopped_by]
        facts.append(("search stopped", f"{why}; it had more to do"))
    if plan.decided_apart and plan.certified_gap is None:  # a gap says better what may be lost by that
        apart = f"{plan.decided_apart:,} of the tensors and ops apart from the others"
        facts.append(("search restricted", f"the graph is too entangled to be decided all at once: {apart}"))
    if plan.deliveries:
        of = len({one.tensor for one in plan.deliveries})
        facts.append(("shared deliveries", f"{len(plan.deliveries)}, of {counted(of, 'tensor')}"))
    if plan.unsplit:
        shown = ", ".join(plan.unsplit[:_SHOWN_UNSPLIT]) + (", ..." if len(plan.unsplit) > _SHOWN_UNSPLIT else "")
        facts.append(("not split", f"{counted(len(plan.unsplit), 'op')}, which could not be at some cut: {shown}"))
    if plan.described_by is not None:
        facts.append(("described by", f"{plan.described_by.name}, sha256 {plan.described_by.sha256[:16]}"))
    if plan.undescribed:
        moved = sum(op.moved_bytes for op in plan.undescribed)
        repeated = sum(op.repeated_elements for op in plan.undescribed)
        brought = f"{format_bytes(moved)} to bring them their inputs, {counted(repeated, 'element')} touched again"
        whole = f"{counted(len(plan.undescribed), 'op')}, run whole by every worker"
        facts.append(("not described", f"{whole}: {brought}"))
    return facts


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """A plan's totals."""
    return [
        ("model", plan.model),
        ("workers", f"{plan.workers} (cuts: {cuts_text(plan.cuts)})"),
        ("strategy", plan.strategy),
        ("moved", f"{format_bytes(plan.moved_bytes)} per iteration over all workers"),
        ("memory per worker", f"{memory(max(plan.peak_bytes))} of tensors at most"),
        *slowest(plan),
        gap(plan),
        *estimate_facts(plan.estimate),
        *restrictions(plan),
    ]


def undescribed(console: ReportConsole, ops: Iterable[UndescribedOp]) -> None:
    """Prints what each op costs that is executed whole for want of a description."""
    ordered = sorted(ops, key=lambda op: (-op.moved_bytes, -op.repeated_elements, op.name))
    rows = [(op.name, op.op_type, format_bytes(op.moved_bytes), f"{op.repeated_elements:,}") for op in ordered]
    if not rows:
        return
    console.print()
    columns = ("not described, run whole", "type", "inputs brought", "elements touched again")
    console.print_table(columns, rows, columns[2:])
