"""The output of ``tofu zoo``."""

from __future__ import annotations

from typing import TextIO

from planner.features.zoo.result import ZooModels, ZooResult
from planner.printing.console import ReportConsole
from planner.units import format_bytes


def print_zoo(result: ZooResult, file: TextIO) -> None:
    """Prints a model of the zoo that was written."""
    ReportConsole(file).print_facts(
        [
            ("training graph", str(result.output)),
            ("inputs", ", ".join(result.inputs)),
            ("parameters", f"{result.parameters:,} ({format_bytes(result.weight_bytes)}), without values"),
            ("state", f"{format_bytes(result.state_bytes)} with histories and running statistics"),
            ("ops", f"{sum(result.ops_by_type.values())} of {len(result.ops_by_type)} types"),
        ],
    )


def print_models(result: ZooModels, file: TextIO) -> None:
    """Prints the models of the zoo."""
    console = ReportConsole(file)
    models = [
        (name, str(batch), row.optimizer, row.about if not number else "")
        for row in result.families
        for number, (name, batch) in enumerate(row.members.items())
    ]
    console.print_table(("model", "batch", "optimizer", "what it is"), models, ("batch",))
    console.print()
    forms = (row.form for row in result.families if row.form.lower() != row.form)  # capitals stand for numbers
    console.print_line("Other sizes by the same forms: " + ", ".join(forms))
