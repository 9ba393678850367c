"""Ops that cannot be part of a training step: gathered one by one, told all at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.errors import UnsupportedError


@dataclass(slots=True)
class Refusals:
    """The refusals so far."""

    facts: list[str] = field(default_factory=list)
    hint: str = ""
    """The first that there was."""

    def add(self, fact: str, hint: str = "") -> None:
        """One op, by name, and why."""
        self.facts.append(fact)
        self.hint = self.hint or hint

    def raise_any(self) -> None:
        """Tells all of them.

        Raises:
            UnsupportedError: something was refused.
        """
        if self.facts:
            raise UnsupportedError(
                "some ops cannot be part of a training step", facts=tuple(self.facts), hint=self.hint
            )
