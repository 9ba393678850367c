"""What ``tofu ops`` does: coverage, one operator's page, and verification by running split against whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import opdefs
from opdefs.exclusions import EXCLUDED
from planner.errors import UsageError
from planner.training import rules
from planner.verify.cases import all_cases
from planner.verify.coverage import Coverage, coverage
from planner.verify.page import OperatorPage, operator_page
from planner.verify.verification import QUICK, THOROUGH, OperatorVerification, Verification, verify_operators

Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Progress that nobody wants."""


class Operators:
    """The operators in force: the standard ones, and those of the user's file."""

    def __init__(self, file: Path | None = None) -> None:
        """Loads descriptions.

        Args:
            file: descriptions of the user's own (docs/describe-an-operator.md).

        Raises:
            TofuError: the file cannot be used.
        """
        mine = opdefs.load_file(file) if file is not None else None
        self.descriptions = opdefs.standard(*(mine.descriptions if mine else ()))
        self._mine = mine.cases if mine else None
        self._cases = (*all_cases(), *(mine.cases if mine else ()))

    def coverage(self) -> Coverage:
        """Every operator, described or excluded."""
        return coverage(self.descriptions, EXCLUDED, self._cases, gradients=rules.standard())

    def page(self, op_type: str) -> tuple[OperatorPage, OperatorVerification | None]:
        """One operator's description and strategies, and a quick verification; None where no case is given for it.

        Raises:
            UsageError: no such operator.
        """
        page = operator_page(op_type, self.descriptions, self._cases)
        try:
            checked = verify_operators(self.descriptions, (op_type,), ways=QUICK, cases=self._cases)
        except UsageError:
            return page, None
        return page, checked.operators[0]

    def verify(self, op_type: str | None, progress: Progress = _silent) -> Verification:
        """Runs every strategy split and whole: of one operator, of the user's, or of all.

        Raises:
            UsageError: no such operator, or no case for it.
        """
        cases = self._mine if self._mine is not None and op_type is None else self._cases
        wanted = (op_type,) if op_type else ()
        return verify_operators(self.descriptions, wanted, ways=THOROUGH, cases=cases, progress=_counted(progress))


def _counted(progress: Progress) -> Callable[[str, int, int], None]:
    """Tells of every operator as a line."""
    return lambda name, number, count: progress(f"{name}, {number} of {count}")
