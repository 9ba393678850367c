"""``tofu ops``: coverage, one operator's page, and what the verifier found, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, get_args

from planner.report.console import ReportConsole
from planner.training.table import GradientRow, Kind
from planner.verify.conformance import Conformance, Stock
from planner.verify.coverage import Coverage, OperatorClass, OperatorRow
from planner.verify.page import OperatorPage
from planner.verify.verification import OperatorVerification, Verification

SCHEMA_VERSION = 1
_MOST_WRONG = 50


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """What ``tofu ops --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "described": coverage.described,
        "counts": {kind.value: coverage.count(kind) for kind in OperatorClass},
        "operators": [_row_json(row) for row in coverage.rows],
    }


def _row_json(row: OperatorRow) -> dict[str, Any]:
    return {
        "domain": row.domain,
        "op_type": row.op_type,
        "since_version": row.since_version,
        "versions": list(row.versions),
        "described": row.described,
        "class": row.operator_class.value,
        "opaque": row.is_opaque,
        "reductions": row.has_reductions,
        "reason": row.reason,
        "gradient": row.gradient,
        "deprecated": row.is_deprecated,
        "body": row.has_body,
    }


def gradients_json(rows: Sequence[GradientRow]) -> dict[str, Any]:
    """What ``tofu ops --gradients --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "counts": _counts(rows),
        "operators": [
            {"domain": "", "op_type": row.op_type, "gradient": row.passes, "kind": row.kind, "detail": row.detail}
            for row in rows
        ],
    }


def _counts(rows: Sequence[GradientRow]) -> dict[str, int]:
    found = Counter(row.kind for row in rows)
    return {kind: found[kind] for kind in get_args(Kind)}


def print_gradients(rows: Sequence[GradientRow], file: TextIO) -> None:
    """Prints which operators a gradient passes, by what, and why not the others."""
    console = ReportConsole(file)
    if len(rows) > 1:
        counts = _counts(rows)
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


def page_json(page: OperatorPage, verification: OperatorVerification | None) -> dict[str, Any]:
    """What ``tofu ops NAME --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "domain": page.domain,
        "op_type": page.op_type,
        "source": page.source,
        "documentation": page.documentation,
        "body": page.body,
        "parts_of": page.parts_of,
        "parts": [
            {
                "name": part.name,
                "op_type": part.op_type,
                "reads": list(part.reads),
                "shape": list(part.shape),
                "joined": list(part.joined),
            }
            for part in page.parts
        ],
        "examples": [
            {
                "case": example.case,
                "mathematics": list(example.mathematics),
                "variables": [
                    {
                        "name": line.name,
                        "extent": line.extent,
                        "kind": line.kind,
                        "how": line.how,
                        "reads": list(line.reads),
                    }
                    for line in example.variables
                ],
            }
            for example in page.examples
        ],
        "verification": None if verification is None else _operator_json(verification),
    }


def verification_json(result: Verification) -> dict[str, Any]:
    """What ``tofu ops --verify --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "right": result.is_right,
        "executed": result.executed,
        "in_steps": result.stepped,
        "ways": [list(ways) for ways in result.ways],
        "wrong": list(result.wrong),
        "missing": list(result.missing),
        "operators": [_operator_json(operator) for operator in result.operators],
    }


def _operator_json(operator: OperatorVerification) -> dict[str, Any]:
    return {
        "domain": operator.domain,
        "op_type": operator.op_type,
        "right": operator.is_right,
        "shapes": operator.shapes,
        "executed": operator.executed,
        "pairs": operator.pairs,
        "in_steps": operator.stepped,
        "bit_equal": operator.bit_equal,
        "largest_error": operator.largest_error,
        "variables": list(operator.variables),
        "vetoed": operator.vetoed,
        "veto_reason": operator.veto_reason,
        "wrong": list(operator.wrong),
        "missing": list(operator.missing),
        "left_out": list(operator.left_out),
    }


def print_coverage(coverage: Coverage, file: TextIO) -> None:
    """Prints the counts in the form of Tofu, section 4.1, and every operator."""
    console = ReportConsole(file)
    described = [row for row in coverage.rows if row.described]
    own = [row for row in coverage.rows if row.domain == "" and row.versions]
    others = len(coverage.rows) - len(own)
    counts = [
        ("operators", f"{len(own)} of ONNX's default domain" + _deprecated(own) + f", {others} others"),
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


def print_page(page: OperatorPage, verification: OperatorVerification | None, file: TextIO) -> None:
    """Prints one operator: its mathematics, strategies with halos, and verification."""
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
            console.print_table(("variable", "extent", "kind", "cut along it", "read by 2 workers"), rows)
    if page.parts:
        console.print()
        console.print_line(f"{page.parts_of} through simpler ops")
        columns = ("op", "operator", "reads", "makes", "joined by 2 workers where it is cut along that")
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
    if verification is not None:
        console.print()
        _print_operator(console, verification)


def _print_operator(console: ReportConsole, operator: OperatorVerification) -> None:
    pairs = f"{operator.pairs} of them pairs of cuts" if operator.pairs else "single cuts; --verify tries pairs, too"
    pairs += f", {operator.stepped} in steps" if operator.stepped else ""
    facts = [
        ("verified", f"{operator.executed} strategies of {operator.shapes} ops, {pairs}"),
        ("equal bit by bit", str(operator.bit_equal)),
        ("largest error", f"{operator.largest_error:.1e}"),
        ("wrong", str(len(operator.wrong))),
        ("missing", str(len(operator.missing))),
    ]
    if operator.vetoed:
        facts.append(("without local op", f"{operator.vetoed}: {operator.veto_reason}"))
    console.print_facts(facts, keep="\n")
    _print_findings(console, operator.wrong, operator.missing)
    for text in operator.left_out:
        console.print_line(f"left out: {text}")


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
    console.print_table(("operator", "cut along", *numbers), rows, numbers)
    console.print()
    console.print_facts(
        [
            ("operators", str(len(result.operators))),
            ("strategies executed", f"{result.executed:,}"),
            ("of these, in steps", f"{result.stepped:,}"),
            ("incorrect", str(len(result.wrong))),
            ("missing", str(len(result.missing))),
            ("left out, with a reason", str(sum(len(operator.left_out) for operator in result.operators))),
        ],
    )
    _print_findings(console, result.wrong, result.missing)


def conformance_json(result: Conformance) -> dict[str, Any]:
    """What ``tofu ops --onnx-cases --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workers": result.workers,
        "right": result.is_right,
        "cases": len(result.outcomes),
        "stock": {stock.value: len(result.with_stock(stock)) for stock in Stock},
        "passed": len(result.passed),
        "cut": len(result.cut),
        "strategies": result.strategies,
        "in_steps": result.in_steps,
        "with_constants": {outcome.name: list(outcome.constants) for outcome in result.with_constants},
        "not_cut": _by_reason(result.not_cut()),
        "refused": _by_reason({reason.value: names for reason, names in result.refused().items()}),
        "differing": {outcome.name: list(outcome.differences) for outcome in result.differing},
        "failed": {outcome.name: outcome.error for outcome in result.failed},
    }


def _by_reason(cases: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    return [{"reason": reason, "count": len(names), "cases": list(names)} for reason, names in cases.items()]


def print_conformance(result: Conformance, file: TextIO) -> None:
    """Prints how many of ONNX's own cases pass, and why the others do not."""
    console = ReportConsole(file)
    console.print_facts(
        [
            ("cases of the onnx package", f"{len(result.outcomes):,}"),
            ("the stock runtime passes", f"{len(result.with_stock(Stock.PASSES)):,}"),
            (f"of these, as expected on {result.workers} workers", f"{len(result.passed):,}"),
            ("  and cut", f"{len(result.cut):,}"),
            ("  and not cut", f"{len(result.passed) - len(result.cut):,}"),
            ("  with inputs given as constants", f"{len(result.with_constants):,}"),
            ("other strategies, as expected", f"{result.strategies:,}"),
            ("  of them in steps", f"{result.in_steps:,}"),
            ("refused, for a reason below", str(sum(len(names) for names in result.refused().values()))),
            ("refused for another reason", str(len(result.failed))),
            ("differing", str(len(result.differing))),
        ],
    )
    refused = {reason.value: names for reason, names in result.refused().items() if names}
    for what, cases in (("refused because", refused), ("not cut because", result.not_cut())):
        if not cases:
            continue
        console.print()
        rows = [(reason, str(len(names)), names[0]) for reason, names in cases.items()]
        console.print_table((what, "cases", "e.g."), rows, ("cases",))
    for outcome in result.differing:
        console.print_line(f"differing: {outcome.name}: {'; '.join(outcome.differences)}")
    for outcome in result.failed:
        console.print_line(f"refused: {outcome.name}: {outcome.error}")


def _print_findings(console: ReportConsole, wrong: Sequence[str], missing: Sequence[str]) -> None:
    for what, texts in (("incorrect", wrong), ("missing", missing)):
        for text in texts[:_MOST_WRONG]:
            console.print_line(f"{what}: {text}")
        if len(texts) > _MOST_WRONG:
            console.print(f"{what}: {len(texts) - _MOST_WRONG} more; --json lists them all")
