"""Facts of a plan as a whole, line by line: the same names and units wherever it is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.artifacts.plan import Plan, UndescribedOp
from planner.graph import patterns
from planner.machine.rates import Rates
from planner.printing.console import ReportConsole
from planner.printing.estimate import estimate_facts
from planner.units import binary, format_bytes, format_ratio, format_seconds

_SHOWN_UNSPLIT = 5
_SHOWN_PATTERNS = 4


def counted(number: int, noun: str, plural: str = "s") -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def cuts_text(cuts: Sequence[int]) -> str:
    """``2 x 2``."""
    return " x ".join(map(str, cuts)) or "none"


def slowest(plan: Plan) -> list[tuple[str, str]]:
    """What repeated and uneven work costs: in time of the slowest worker, and as bytes of a link."""
    uneven = plan.excess_bytes - plan.repeated_bytes
    parts = f"{format_bytes(plan.repeated_bytes)} of repeated work, {format_bytes(uneven)} of uneven work"
    delay = f"computes {format_ratio(plan.slowest_share - 1)} longer than an even share"
    return [
        ("slowest worker", f"{delay}, as if {format_bytes(plan.excess_bytes)} moved ({parts})"),
        *_rates(plan.rates),
    ]


def _rates(rates: Rates) -> list[tuple[str, str]]:
    """By which excess was counted, where the user said it."""
    if rates == Rates():
        return []
    amounts = f"{rates.touched_bytes:.3g} bytes of memory and {rates.operations:.3g} operations"
    return [("  by rates", f"{amounts} in the time of a byte of a link")]


def gap(plan: Plan) -> tuple[str, str]:
    """How far the plan may be above the best one, and in what."""
    unit = {"bytes": "of moved bytes and excess", "time": "of time, as the tables of the search add it up"}[plan.gap_of]
    if plan.certified_gap is None:
        return "gap to the optimum", "not computed"
    return "gap to the optimum", f"{format_ratio(plan.certified_gap)} {unit}, among {gap_scope(plan)}"


def gap_scope(plan: Plan) -> str:
    """The plans that the gap is to the best of."""
    qualifier = "other " if plan.deliveries else ""
    return f"tilings offered for these cuts, without idle workers or {qualifier}shared transfers"


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
        of = len({delivery.tensor for delivery in plan.deliveries})
        facts.append(("shared deliveries", f"{len(plan.deliveries)}, of {counted(of, 'tensor')}"))
    facts += recomputed(plan)
    if plan.owned:
        blocks = ", ".join(f"{count} from op {name} on" for name, count in plan.owned.items())
        facts.append(("with owners", f"equal parts of the graph, of which each worker has some whole: {blocks}"))
    if plan.unsplit:
        shown = ", ".join(plan.unsplit[:_SHOWN_UNSPLIT]) + (", ..." if len(plan.unsplit) > _SHOWN_UNSPLIT else "")
        facts.append(("not split", f"{counted(len(plan.unsplit), 'op')}, which could not be at some cut: {shown}"))
    if plan.described_by is not None:
        facts.append(("described by", f"{plan.described_by.name}, sha256 {plan.described_by.sha256[:16]}"))
    if plan.undescribed:
        moved = sum(op.moved_bytes for op in plan.undescribed)
        repeated = sum(op.repeated_elements for op in plan.undescribed)
        brought = f"{format_bytes(moved)} to bring them their inputs, {counted(repeated, 'element')} touched again"
        subject = f"{counted(len(plan.undescribed), 'op')}, run whole by every worker"
        facts.append(("not described", f"{subject}: {brought}"))
    return facts


def recomputed(plan: Plan) -> list[tuple[str, str]]:
    """What is computed again for the backward pass, and what is kept for it."""
    again = plan.recomputed
    if again is None:
        return []
    held = _patterns(again.kept)
    if not again.tensors:
        return [("computed again", f"nothing: no blocks repeat, and all activations are kept: {held}")]
    saved = f"saves {binary(again.saved_bytes)} a worker" if again.saved_bytes > 0 else "saves no memory"
    costs = f"costs {format_ratio(again.work_share)} of the work"
    return [("kept", held or "nothing"), ("computed again", f"{_patterns(again.tensors)}; {saved}, {costs}")]


def _patterns(names: Sequence[str]) -> str:
    """Tensors, those of one pattern as one, the most numerous first."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(patterns.without_numbers(name), []).append(name)
    shown = sorted(groups.values(), key=lambda group: -len(group))
    hidden = sum(map(len, shown[_SHOWN_PATTERNS:]))
    return ", ".join(map(patterns.counted, shown[:_SHOWN_PATTERNS])) + (f" and {hidden:,} more" if hidden else "")


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """A plan's totals."""
    return [
        ("model", plan.model),
        ("workers", f"{plan.workers} (cuts: {cuts_text(plan.cuts)})"),
        ("strategy", plan.strategy),
        ("moved", f"{format_bytes(plan.moved_bytes)} per iteration over all workers"),
        ("memory per worker", memory_needed(plan)),
        *slowest(plan),
        gap(plan),
        *estimate_facts(plan.estimate),
        *table_facts(plan),
        *restrictions(plan),
    ]


def memory_needed(plan: Plan) -> str:
    """What the worker that needs most takes, or the least that it can be where no program tells."""
    peak, limits = binary(max(plan.peak_bytes)), plan.asked.limit_bytes
    limit_range = dict.fromkeys(map(binary, (min(limits), max(limits)))) if limits else ()
    limit_text = f"; it may take {' to '.join(limit_range)}" if limit_range else ""
    if not plan.has_program:
        return f"at least {peak}: what lies there op by op{limit_text}"
    return f"{peak} of tensors at most{limit_text}"


def table_facts(plan: Plan) -> list[tuple[str, str]]:
    """What a plan takes as the tables of time add it up, where no program tells."""
    if plan.table_seconds is None:
        return []
    return [("estimated time", f"{format_seconds(plan.table_seconds)} per iteration, as the tables of time add it up")]


def undescribed(console: ReportConsole, ops: Iterable[UndescribedOp]) -> None:
    """Prints what each op costs that is executed whole for want of a description."""
    ordered = sorted(ops, key=lambda op: (-op.moved_bytes, -op.repeated_elements, op.name))
    rows = [(op.name, op.op_type, format_bytes(op.moved_bytes), f"{op.repeated_elements:,}") for op in ordered]
    if not rows:
        return
    console.print()
    columns = ("not described, run whole", "type", "inputs brought", "elements touched again")
    console.print_table(columns, rows, columns[2:])
