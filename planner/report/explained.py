"""What ``tofu explain`` prints: a plan in brief, its rows, or one tensor or op."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from planner.graph.model import Role
from planner.report.answer import answer
from planner.report.bounds import bounds, op_memory
from planner.report.console import ReportConsole
from planner.report.facts import counted, plan_facts, undescribed
from planner.report.planned import and_more, cause_item
from planner.results import Explanation, TensorRow
from planner.units import binary, format_bytes, format_ratio

_SHOWN_TENSORS = 10
_SHOWN_CAUSES = 5
_SHOWN_TILINGS = 200
"""Lines of the brief table of all tilings, at most."""
_ORDER = (Role.STATE, Role.NEXT_STATE, Role.DATA, Role.RESULT, Role.CONSTANT, Role.ACTIVATION)
_PURPOSES = [*(role.value for role in _ORDER), "delivery"]
_NARROWEST = 40
"""Characters of a line of that table, at least."""


def explain(result: Explanation, file: TextIO) -> None:
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
    """Totals, what moves, what several workers have and why."""
    plan = result.plan
    guessed = sum(row.is_inferred for row in result.state)
    known = f"{counted(len(result.state), 'tensor')}" + (f", {guessed} of them inferred (--all)" if guessed else "")
    console.print_paragraphs([*plan_facts(plan), ("state", known)])
    moving = sorted((row for row in result.tensors if row.moved_bytes), key=lambda row: -row.moved_bytes)
    if moving:
        total = sum(row.moved_bytes for row in moving)
        console.print()
        more = f"; {_SHOWN_TENSORS} of {len(moving):,} tensors" if len(moving) > _SHOWN_TENSORS else ""
        console.print_text(f"what moves, of {format_bytes(total)} per iteration{more}:")
        console.print_items([_moved_item(row, total) for row in moving[:_SHOWN_TENSORS]])
    if result.causes:
        parts = f"{format_bytes(plan.moved_bytes)} moved, {format_bytes(plan.excess_bytes)} excess"
        console.print()
        console.print_text(f"what it comes from ({parts}):")
        console.print_items([cause_item(cause) for cause in result.causes[:_SHOWN_CAUSES]])
        rest = result.causes[_SHOWN_CAUSES:]
        if rest:
            share = format_ratio(sum(cause.share for cause in rest))
            console.print_text(f"and {share} from {counted(len(rest), 'further cause')} (--json)", 2)
    if result.apart:
        console.print()
        console.print_text("equal ops beside each other that have no owners, and what they cost:")
        console.print_items([cause_item(cause) for cause in result.apart[:_SHOWN_CAUSES]])
        if len(result.apart) > _SHOWN_CAUSES:  # their costs do not add up: some tensors are of several
            console.print_text(f"and in {counted(len(result.apart) - _SHOWN_CAUSES, 'further place')} (--json)", 2)
    if result.kept:
        console.print()
        # An activation is held for a part of the iteration, so that these do not add up to memory.
        console.print_text("what several workers have, and what the copies take over all of them, if not all at once:")
        console.print_items([((binary(one.held_bytes),), and_more(one.names), one.reason) for one in result.kept])
    tilings(console, result.tensors)
    undescribed(console, plan.undescribed)
    console.print()
    what = f"{counted(len(result.tensors), 'tensor')} and {counted(len(result.ops), 'op')}"
    console.print_text(
        f"all {what}: --all; some: 'PATTERN', --role ROLE, --op TYPE; one and why: its name; memory: --memory"
    )


def tilings(console: ReportConsole, tensors: Sequence[TensorRow]) -> None:
    """The tilings of all tensors: those of one purpose and tiling together, names that differ in numbers as one."""
    alike: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in tensors:
        names = alike.setdefault((_purpose(row), row.tiling), {})
        names.setdefault(re.sub(r"\d+", "*", row.name), []).append(row.name)
    items: list[tuple[tuple[str], str, str]] = []
    room, left = _SHOWN_TILINGS, 0
    for (purpose, tiling), patterns in sorted(alike.items(), key=lambda item: _PURPOSES.index(item[0][0])):
        told = ", ".join(
            names[0] if len(names) == 1 else f"{pattern} ({len(names)})" for pattern, names in patterns.items()
        )
        room -= 2 + len(told) // _NARROWEST
        if room >= 0:
            items.append(((purpose,), tiling, told))
        else:
            left += sum(map(len, patterns.values()))
    console.print()
    console.print_text(f"how all {counted(len(tensors), 'tensor')} are divided, a * for numbers that differ:")
    console.print_items(items)
    if left:
        console.print_text(f"and {counted(left, 'further tensor')} (--all)", 2)


def _moved_item(row: TensorRow, total: int) -> tuple[tuple[str, ...], str, str]:
    delivers = f", brings {row.delivers}" if row.delivers else ""
    return (
        (format_bytes(row.moved_bytes), format_ratio(row.moved_bytes / total)),
        row.name,
        f"{row.role.value} {_shape(row.shape)}, {row.tiling}{delivers}",
    )


def _rows(console: ReportConsole, result: Explanation) -> None:
    """All rows, as tables; a table without rows is left out."""
    is_first = True

    def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
        nonlocal is_first
        if rows:
            if not is_first:
                console.print()
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
