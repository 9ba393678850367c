"""``tofu ops``: coverage, one operator's page, and what the verifier found, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from planner.features.ops.coverage import Coverage, OperatorClass, OperatorRow
from planner.features.ops.gradients import GradientTable
from planner.features.ops.page import OperatorPage
from planner.features.ops.verification import Verification
from planner.printing.console import ReportConsole

_MOST_WRONG = 50


def print_gradients(table: GradientTable, file: TextIO) -> None:
    """Prints which operators a gradient passes, by what, and why not the others."""
    console, rows, counts = ReportConsole(file), table.operators, table.counts
    if len(rows) > 1:
        console.print_facts(
            [
                ("operators", str(len(rows))),
                ("passed by a gradient", str(sum(row.passes for row in rows))),
                ("  by a rule", str(counts["rule"])),
                ("  written out first", str(counts["expanded"])),
                ("  by ONNX's function body", str(counts["body"])),
                ("ends there, derivative 0", str(counts["stops"])),
                ("no floats", str(counts["no floats"])),
                ("none", str(counts["none"])),
            ],
        )
        console.print()
    console.print_table(("operator", "gradient", "how, or why not"), [(r.op_type, r.kind, r.detail) for r in rows])


def print_coverage(coverage: Coverage, file: TextIO) -> None:
    """Prints the counts in the form of Tofu, section 4.1, and every operator."""
    console = ReportConsole(file)
    described = [row for row in coverage.rows if row.described]
    core = [row for row in coverage.rows if row.domain == "" and row.versions]
    beyond = len(coverage.rows) - len(core)
    counts = [
        ("operators", f"{len(core)} of ONNX's default domain" + _deprecated(core) + f", {beyond} others"),
        ("described", str(len(described))),
        ("  element-wise", str(coverage.count(OperatorClass.ELEMENTWISE))),
        ("  with reductions", str(sum(row.has_reductions for row in described))),
        ("  with an opaque function", str(sum(row.is_opaque for row in described))),
        ("  other affine indices", str(coverage.count(OperatorClass.AFFINE))),
        ("  lowered to others", str(coverage.count(OperatorClass.LOWERED))),
        ("  that cannot be cut", str(sum(row.is_uncut for row in described))),
        ("  also cut through simpler ops", str(sum(row.has_body for row in described))),
        ("excluded", str(coverage.count(OperatorClass.EXCLUDED))),
    ]
    console.print_facts(counts)
    console.print()
    rows = [
        (
            f"{row.domain}.{row.op_type}" if row.domain else row.op_type,
            ", ".join(map(str, row.versions)),
            row.operator_class.value,
            "; ".join(filter(None, (row.reason, "also cut through simpler ops" if row.has_body else ""))),
        )
        for row in coverage.rows
    ]
    console.print_table(("operator", "opsets", "class", "remarks"), rows)


def _deprecated(rows: Sequence[OperatorRow]) -> str:
    count = sum(row.is_deprecated for row in rows)
    return f", {count} of them deprecated" if count else ""


def print_page(page: OperatorPage, file: TextIO) -> None:
    """Prints one operator: its mathematics, and strategies with halos."""
    console = ReportConsole(file)
    name = f"{page.domain}.{page.op_type}" if page.domain else page.op_type
    facts = [("operator", name), ("described in", page.source), ("says", page.documentation)]
    if page.body:
        facts.append(("also cut", f"through simpler ops, where that costs less: {page.body}"))
    console.print_facts(facts, keep="\n")
    for example in page.examples:
        console.print()
        console.print_line(example.case)
        for line in example.mathematics:
            console.print_line(f"  {line}")
        rows = [(line.name, str(line.extent), line.kind, line.how, "; ".join(line.reads)) for line in example.variables]
        if rows:
            console.print_table(("variable", "extent", "kind", "split along it", "read by 2 workers"), rows)
    if page.parts:
        console.print()
        console.print_line(f"{page.parts_of} through simpler ops")
        columns = ("op", "operator", "reads", "makes", "joined by 2 workers where it is split along that")
        console.print_table(
            columns,
            [
                (
                    part.name,
                    part.op_type,
                    ", ".join(part.reads),
                    "x".join(map(str, part.shape)) or "1",
                    "; ".join(part.joined),
                )
                for part in page.parts
            ],
        )
    if page.examples:
        console.print()
        console.print_line(f"from the description alone: `tofu ops --verify {name}` runs every strategy")


def print_verification(result: Verification, file: TextIO) -> None:
    """Prints what was found of every operator, then what is wrong or missing."""
    console = ReportConsole(file)
    rows = [
        (
            operator.op_type,
            " ".join(operator.variables),
            str(operator.shapes),
            str(operator.executed),
            str(operator.bit_equal),
            f"{operator.largest_error:.0e}",
            str(operator.vetoed),
            str(len(operator.wrong)),
            str(len(operator.missing)),
        )
        for operator in result.operators
    ]
    numbers = ("ops", "executed", "bit-equal", "error", "vetoed", "wrong", "missing")
    console.print_table(("operator", "split along", *numbers), rows, numbers)
    console.print()
    console.print_facts(
        [
            ("operators", str(len(result.operators))),
            ("strategies executed", f"{result.executed:,}"),
            ("of these, in steps", f"{result.stepped:,}"),
            ("incorrect", str(len(result.wrong))),
            ("missing", str(len(result.missing))),
            *[("not executed", str(len(result.not_executed)))][: len(result.not_executed)],
            ("left out, with a reason", str(sum(len(operator.left_out) for operator in result.operators))),
        ],
    )
    _print_findings(console, (("incorrect", result.wrong), ("missing", result.missing), ("", result.not_executed)))
    # One operator's reasons are listed; of many there would be too many, and their count stands above.
    for operator in result.operators[: len(result.operators) == 1]:
        for text in (*filter(None, [operator.veto_reason]), *operator.left_out):
            console.print_line(f"left out: {text}")


def _print_findings(console: ReportConsole, findings: Sequence[tuple[str, Sequence[str]]]) -> None:
    for title, texts in findings:
        for text in texts[:_MOST_WRONG]:
            console.print_line(": ".join(filter(None, (title, text))))
        if len(texts) > _MOST_WRONG:
            console.print(f"{title}: {len(texts) - _MOST_WRONG} more; --json lists them all")
