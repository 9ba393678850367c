"""The work of ``tofu ops``: coverage, one operator's page, and verification by running split against whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from planner import opdefs
from planner.errors import UsageError, did_you_mean
from planner.features.ops.cases.case import by_type, qualified
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.coverage import Coverage, coverage
from planner.features.ops.gradients import GradientTable, gradient_table
from planner.features.ops.page import OperatorPage, operator_page
from planner.features.ops.verification import THOROUGH, Verification, verify_operators
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.installed import require_runtime, runtime_notes
from planner.opdefs.exclusions import EXCLUDED, LOWERED
from planner.progress import Progress, silent


class Operators:
    """The operators in force: the standard ones, and those of the user's file."""

    def __init__(self, file: Path | None = None) -> None:
        """Loads descriptions.

        Args:
            file: descriptions of the user's own (docs/operators.md).

        Raises:
            TofuError: the file cannot be used.
        """
        mine = opdefs.load_file(file) if file is not None else None
        self.descriptions = opdefs.standard(*(mine.descriptions if mine else ()))
        self._mine = mine
        self._cases = (*all_cases(), *(mine.cases if mine else ()))

    def coverage(self) -> Coverage:
        """Every operator: described, lowered or excluded."""
        passing = {row.op_type for row in gradient_table() if row.passes}
        return coverage(self.descriptions, EXCLUDED, self._cases, lowered=LOWERED, gradients=passing)

    def page(self, op_type: str) -> OperatorPage:
        """One operator's description and strategies; nothing is run.

        Raises:
            UsageError: no such operator.
        """
        lowered = next((name for name in LOWERED if name.lower() == op_type.lower()), op_type)
        if lowered in LOWERED and ("", lowered) not in self.descriptions:
            domain, _, name = lowered.rpartition(".")
            lowering = decompositions(Purpose.READING if domain else Purpose.RANDOM)[lowered]
            source = f"{lowering.function.__module__.replace('.', '/')}.py"
            text = f"{inspect.getdoc(lowering.function)}\n{LOWERED[lowered]}"
            return OperatorPage(domain, name, source, text, ())
        return operator_page(op_type, self.descriptions, self._cases)

    def verify(
        self, op_type: str | None, progress: Progress = silent, notice: Callable[[str], None] = lambda line: None
    ) -> Verification:
        """Runs every strategy split and whole: of one operator, of the user's, or of all.

        Raises:
            UsageError: no such operator, no case for it or for one of the user's, or no ONNX Runtime.
        """
        require_runtime()
        for line in runtime_notes():
            notice(line)
        cases = self._cases
        if self._mine is not None and op_type is None:
            cases = self._mine.cases
            names = {qualified(*key) for description in self._mine.descriptions for key in description.keys}
            if untested := sorted(names - by_type(cases).keys()):
                hint = f"add CASES to {self._mine.path}: docs/operators.md shows some"
                raise UsageError(f"no test case for {', '.join(untested)}", hint=hint)
        wanted = (op_type,) if op_type else ()
        return verify_operators(self.descriptions, wanted, ways=THOROUGH, cases=cases, progress=_counted(progress))


def gradients(op_type: str | None = None) -> GradientTable:
    """Which operators of ONNX's default domain a gradient passes, how, and why not the others; or one of them.

    Raises:
        UsageError: no such operator.
    """
    rows = gradient_table()
    if op_type is None:
        return GradientTable(rows)
    matches = tuple(row for row in rows if row.op_type.lower() == op_type.lower())
    if not matches:
        hint = did_you_mean(op_type, [row.op_type for row in rows])
        raise UsageError(f"ONNX's default domain has no operator {op_type} in force", hint=hint)
    return GradientTable(matches)


def _counted(progress: Progress) -> Callable[[str, int, int], None]:
    """Tells of every operator as a line."""
    return lambda name, number, count: progress(f"{name}, {number} of {count}")
