"""Facts of a plan as a whole, line by line: the same names and units wherever it is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.artifacts.plan import Plan, UndescribedOp
from planner.graph.core import patterns
from planner.machine.rates import Rates
from planner.printing.console import ReportConsole
from planner.printing.estimate import estimate_facts
from planner.units import binary, format_bytes, format_ratio, format_seconds

_SHOWN_UNSPLIT = 5
_SHOWN_PATTERNS = 4
_ALMOST_ALL = 0.9
_NOTABLE = 1e-4
"""A smaller share of load imbalance is none that one would act on."""


def counted(number: int, noun: str, plural: str = "s") -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def cuts_text(cuts: Sequence[int]) -> str:
    """``2 x 2``."""
    return " x ".join(map(str, cuts)) or "none"


def imbalance(plan: Plan) -> list[tuple[str, str]]:
    """How much longer the slowest worker computes than an even share, and mostly why; the rates that users gave."""
    if not plan.excess_bytes or plan.slowest_share - 1 < _NOTABLE:
        return [("load imbalance", f"below {format_ratio(_NOTABLE)}"), *_rates(plan.rates)]
    duplicated = plan.repeated_bytes / plan.excess_bytes
    share = max(duplicated, 1 - duplicated)
    amount = "all" if share == 1 else "almost all" if share >= _ALMOST_ALL else "mostly"
    work = "duplicated work" if 2 * duplicated >= 1 else "uneven work"
    return [
        ("load imbalance", f"slowest worker +{format_ratio(plan.slowest_share - 1)}, {amount} {work}"),
        *_rates(plan.rates),
    ]


def _rates(rates: Rates) -> list[tuple[str, str]]:
    """The rates that users gave."""
    if rates == Rates():
        return []
    amounts = f"{rates.touched_bytes:.3g} bytes of memory, {rates.operations:.3g} operations"
    return [("  by rates", f"{amounts} in the time of one byte on a link")]


def gap(plan: Plan, effort: str = "") -> tuple[str, str]:
    """The optimality gap of the plan, and its unit."""
    unit = {"bytes": "", "time": " of time, as the search adds it up"}[plan.gap_of]
    amount = "not computed" if plan.certified_gap is None else format_ratio(plan.certified_gap) + unit
    return "optimality gap", f"{amount} ({effort})" if effort else amount


def gap_scope(plan: Plan) -> str:
    """The plans that the gap is to the best of."""
    qualifier = "other " if plan.deliveries else ""
    return f"tilings offered for these cuts, without idle workers or {qualifier}shared transfers"


def stopped(plan: Plan) -> list[tuple[str, str]]:
    """The stop of the search by its time limit or by the user, if any."""
    if plan.stopped_by is None:
        return []
    why = {"time": "by the time limit", "interrupt": "by an interrupt"}[plan.stopped_by]
    return [("search stopped", f"{why}; a longer search may find better")]


def restrictions(plan: Plan, *, is_brief: bool = False) -> list[tuple[str, str]]:
    """The parts of the search that were left out, and the ops that the plan leaves whole.

    Args:
        plan: the plan.
        is_brief: neither the stop of the search, which a summary has first, nor the whole ops.
    """
    facts = [] if is_brief else stopped(plan)
    if plan.decided_apart and plan.certified_gap is None:  # a gap says better what may be lost by that
        apart = f"{plan.decided_apart:,} tensors and ops decided apart from the rest"
        facts.append(("search restricted", f"the graph is too entangled for one search: {apart}"))
    if plan.deliveries:
        of = len({delivery.tensor for delivery in plan.deliveries})
        facts.append(("shared transfers", f"{len(plan.deliveries)}, of {counted(of, 'tensor')}"))
    facts += recomputed(plan)
    if plan.owned:
        blocks = ", ".join(f"{count} from op {name} on" for name, count in plan.owned.items())
        facts.append(("whole blocks", f"each worker runs some of these equal blocks: {blocks}"))
    if plan.unsplit and not is_brief:
        shown = ", ".join(plan.unsplit[:_SHOWN_UNSPLIT]) + (", ..." if len(plan.unsplit) > _SHOWN_UNSPLIT else "")
        facts.append(("not split", f"{counted(len(plan.unsplit), 'op')}, at some cut: {shown}"))
    if plan.described_by is not None:
        facts.append(("described by", f"{plan.described_by.name}, sha256 {plan.described_by.sha256[:16]}"))
    if plan.undescribed:
        moved = sum(op.moved_bytes for op in plan.undescribed)
        repeated = sum(op.repeated_elements for op in plan.undescribed)
        cost = f"{format_bytes(moved)} to gather inputs, {counted(repeated, 'element')} of duplicated work"
        subject = f"{counted(len(plan.undescribed), 'op')}, run in full by every worker"
        facts.append(("not described", f"{subject}: {cost}"))
    return facts


def recomputed(plan: Plan) -> list[tuple[str, str]]:
    """The tensors that are recomputed for the backward pass, and those kept for it."""
    again = plan.recomputed
    if again is None:
        return []
    held = by_pattern(again.kept)
    if not again.tensors:
        return [("recomputed", f"nothing: no blocks repeat, and all activations are kept: {held}")]
    saved = f"saves {binary(again.saved_bytes)} per worker" if again.saved_bytes > 0 else "saves no memory"
    costs = f"adds {format_ratio(again.work_share)} of work"
    return [("kept", held or "nothing"), ("recomputed", f"{by_pattern(again.tensors)}; {saved}, {costs}")]


def by_pattern(names: Sequence[str]) -> str:
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
        ("moved", f"{format_bytes(plan.moved_bytes)} per step, all workers together"),
        ("memory per worker", memory_needed(plan)),
        *imbalance(plan),
        gap(plan),
        *estimate_facts(plan.estimate),
        *table_facts(plan),
        *restrictions(plan),
    ]


def memory_needed(plan: Plan) -> str:
    """The memory of the worker that needs most, or the least that it can be if there is no program."""
    peak, limits = binary(max(plan.peak_bytes)), plan.asked.limit_bytes
    limit_range = dict.fromkeys(map(binary, (min(limits), max(limits)))) if limits else ()
    limit_text = f"; limit {' to '.join(limit_range)}" if limit_range else ""
    if not plan.has_program:
        return f"at least {peak} (a lower bound, op by op){limit_text}"
    return f"{peak} of tensors at peak{limit_text}"


def table_facts(plan: Plan) -> list[tuple[str, str]]:
    """The memory and time of a plan as the tables of time add them up, if there is no program."""
    if plan.table_seconds is None:
        return []
    return [("estimated time", f"{format_seconds(plan.table_seconds)} per step, as the search adds it up")]


def undescribed(console: ReportConsole, ops: Iterable[UndescribedOp]) -> None:
    """Prints the cost of each op that is executed whole for want of a description."""
    ordered = sorted(ops, key=lambda op: (-op.moved_bytes, -op.repeated_elements, op.name))
    rows = [(op.name, op.op_type, format_bytes(op.moved_bytes), f"{op.repeated_elements:,}") for op in ordered]
    if not rows:
        return
    console.print()
    columns = ("not described, run in full", "type", "inputs gathered", "elements duplicated")
    console.print_table(columns, rows, columns[2:])
