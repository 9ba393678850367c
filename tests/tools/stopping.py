"""Stops that end a search at a moment that can be repeated: at one of its questions, and not at a time."""

from __future__ import annotations

from planner.stop import Stop, StoppedBy


class StopAt(Stop):
    """Ends a search when it asks for so many times, counted from when it has a plan.

    Attributes:
        asked: how often it has asked.
    """

    def __init__(self, number: int | None = None, why: StoppedBy = "interrupt", *, from_the_beginning: bool = False):
        """Begins to count.

        Args:
            number: of the question that ends it, from 1; None: none does.
            why: it ends.
            from_the_beginning: questions before there is a plan count, too.
        """
        super().__init__()
        self.asked = 0
        self._number = number
        self._why: StoppedBy = why
        self._counts_all = from_the_beginning

    def reason(self) -> StoppedBy | None:
        """See ``Stop.reason``."""
        if self.has_plan or self._counts_all:
            self.asked += 1
            if self._number is not None and self.asked >= self._number:
                return self._why
        return None
