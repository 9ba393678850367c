"""The output of ``tofu prove``."""

from __future__ import annotations

from typing import TextIO

from planner.features.prove.result import ProveResult
from planner.printing.console import ReportConsole


def print_proof(result: ProveResult, file: TextIO) -> None:
    """Prints what was proven, or where that ended."""
    fault, plan = result.fault, ("plan", f"{result.directory}: {result.model}, {result.workers:,} workers")
    if fault is None:
        facts = [
            ("proven", f"{result.tensors:,} results and states over {result.buffers:,} buffers"),
            plan,
            ("followed", f"{result.functions:,} kinds of calls, {result.fetches:,} fetches"),
        ]
    else:
        places = (
            ("worker", "" if fault.worker is None else f"{fault.worker}"),
            ("step", fault.step),
            ("op", fault.op),
            ("buffer", fault.buffer),
        )
        facts = [
            ("wrong" if fault.is_counterexample else "not proven", fault.op or fault.step or "the program"),
            plan,
            *((name, value) for name, value in places if value),
            ("holds", fault.holds),
            ("should", fault.should),
        ]
    ReportConsole(file).print_facts(facts)
