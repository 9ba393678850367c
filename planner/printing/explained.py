"""The output of ``tofu explain``: a plan in brief, its rows, or one tensor or op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from planner.descriptions import how_to_give
from planner.printing.answer import answer
from planner.printing.bounds import bounds, op_memory
from planner.printing.console import ReportConsole
from planner.printing.facts import counted, plan_facts, undescribed
from planner.printing.planned import cause_item, largest
from planner.printing.tilings import tilings
from planner.results import Explanation, TensorRow
from planner.units import binary, format_bytes, format_ratio

_SHOWN_CAUSES = 4


def print_explanation(result: Explanation, file: TextIO) -> None:
    """Prints a plan in brief, or the tensors and ops that were asked for."""
    console = ReportConsole(file)
    if result.is_of_bounds:
        bounds(console, result.distances)
    elif result.why is not None:
        answer(console, result.why)
        if result.distances:
            console.print()
            bounds(console, result.distances)
        op_memory(console, result.memory)
        undescribed(console, (op for op in result.plan.undescribed if op.name == result.subject))
    elif result.is_brief:
        _in_brief(console, result)
    else:
        _rows(console, result)


def _in_brief(console: ReportConsole, result: Explanation) -> None:
    """Totals, what moves and why, and how every tensor is tiled."""
    plan = result.plan
    guessed = sum(row.is_inferred for row in result.state)
    state = f"{counted(len(result.state), 'tensor')}" + (
        f", {guessed} of them inferred (--view all)" if guessed else ""
    )
    facts = [*plan_facts(plan), ("state", state)]
    if result.kept:
        held = binary(sum(replica.held_bytes for replica in result.kept))
        copied = counted(sum(len(replica.names) for replica in result.kept), "tensor")
        facts.append(("replicated", f"copies of {copied}: {held}, not all at once"))
    console.print_paragraphs(facts)
    largest(console, result.causes[:_SHOWN_CAUSES], plan.moved_bytes, plan.excess_bytes)
    if lesser_causes := result.causes[_SHOWN_CAUSES:]:
        share = format_ratio(sum(cause.share for cause in lesser_causes))
        console.print_text(f"and {share} from {counted(len(lesser_causes), 'further cause')} (--json)", 2)
    if plan.described_by is not None and plan.cost and not result.causes:
        console.print()
        console.print_text(f"the largest costs need {plan.described_by.name}: {how_to_give(plan.described_by)}")
    if result.apart:
        console.print()
        console.print_text("equal parallel ops that are split rather than placed whole, and their cost:")
        console.print_items([cause_item(cause) for cause in result.apart[:_SHOWN_CAUSES]])
        if len(result.apart) > _SHOWN_CAUSES:  # their costs do not add up: some tensors are of several
            console.print_text(f"and in {counted(len(result.apart) - _SHOWN_CAUSES, 'further place')} (--json)", 2)
    tilings(console, result.tensors, result.state)
    undescribed(console, plan.undescribed)
    console.print()
    console.print_text("one tensor or op: give its name; several: 'PATTERN', TYPE, --view ROLE; memory: --view memory")


def _rows(console: ReportConsole, result: Explanation) -> None:
    """All rows, as tables; a table without rows is left out."""
    is_first = True

    def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
        nonlocal is_first
        if rows:
            if not is_first:
                console.print()
            # Only a table with rows counts as the first: the output begins with no blank line.
            console.print_table(columns, rows, numbers)
            is_first = False

    tensors = [
        (
            row.name,
            _shape(row.shape),
            _purpose(row),
            row.tiling,
            _shape(row.tile_shape),
            format_bytes(row.moved_bytes),
        )
        for row in result.tensors
    ]
    table(("tensor", "shape", "role", "tiling", "tile", "moved"), tensors, ("moved",))
    in_place = [(row.name, _shape(row.shape), row.held_by, " ".join(row.read_by)) for row in result.in_place]
    table(("tensor", "shape", "is held by", "read in place by"), in_place)
    inferred = [
        (row.current, row.following, " ".join(row.evidence), row.why) for row in result.state if row.is_inferred
    ]
    table(("state", "replaced by", "evidence", "why"), inferred)
    ops = [(row.name, row.op_type, row.strategy, " ".join(row.variables)) for row in result.ops]
    table(("op", "type", "strategy", "index variables"), ops)
    names = {row.name for row in result.ops}
    undescribed(console, (op for op in result.plan.undescribed if op.name in names))


def _purpose(row: TensorRow) -> str:
    return "delivery" if row.delivers else row.role.value


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
