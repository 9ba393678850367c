"""The output of ``tofu report``."""

from __future__ import annotations

from typing import TextIO

from planner.features.report.result import ReportResult
from planner.printing.console import ReportConsole
from planner.printing.facts import counted
from planner.printing.planned import and_more
from planner.printing.simulated import simulated_text
from planner.units import format_bytes


def print_report(result: ReportResult, file: TextIO) -> None:
    """Prints what was written of a plan."""
    console = ReportConsole(file)
    facts = []
    if result.page is not None:
        facts.append(("page", f"{result.page}, {format_bytes(result.page_bytes)}"))
    if result.svg is not None:
        facts.append(("picture", str(result.svg)))
    if result.trace is not None:
        measured = ", simulated and measured" if result.is_measured else ", simulated"
        facts.append(("trace", f"{result.trace}, {counted(result.trace_events, 'event')}{measured}"))
        facts.append(("", "open it on ui.perfetto.dev"))
        if result.simulated_seconds is not None and result.estimated_seconds is not None:
            facts.append(("simulated", simulated_text(result.estimated_seconds, result.simulated_seconds)))
    if result.differing:
        where = f"{and_more([op.name for op in result.differing])}: `tofu explain {result.directory} --view time`"
        facts.append(("differs in", where))
    facts += [("left out", remark) for remark in result.left_out]
    console.print_facts(facts)
