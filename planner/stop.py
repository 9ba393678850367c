"""The early end of a search or a run, and a list of the work that a search leaves out then.

Nothing is broken off: a search asks between parts of its work, where all that it knows is whole. So an end comes as
late as the part takes that is under way, and what is found is as good as if nothing more had been asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

StoppedBy: TypeAlias = Literal["time", "interrupt"]
"""Why a search ended early: the time that it was given is over, or somebody interrupted it."""


def go_on() -> None:
    """Called between parts of work that nothing ends."""


class StoppedError(Exception):
    """A search ended before it had a plan of its own; who has another plan goes on with that one."""


class Interrupt:
    """Says whether somebody has asked work to end with what there is.

    Attributes:
        can_end: there is something to keep: from here on an interrupt need not lose all.
    """

    def __init__(self) -> None:
        self.can_end = False
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Has the work end; may be called by a signal's handler."""
        self._is_interrupted = True

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody interrupted the work, be there some left or not."""
        return self._is_interrupted


class Stop(Interrupt):
    """Says whether a search is to end; of itself it is not.

    Attributes:
        stopped_by: why work was left out; None where none was.
        ends_at: when the search ends, by ``time.monotonic``; None: nobody says.
        must_fit: only a plan that was seen to fit into a limit on memory can be written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stopped_by: StoppedBy | None = None
        self.must_fit = False
        self.ends_at: float | None = None
        self._left_out: dict[str, None] = {}

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan that can be written."""
        return self.can_end

    def end_after(self, seconds: float) -> None:
        """Has the search end when so many seconds from now are over.

        Args:
            seconds: more than 0.
        """
        self.ends_at = time.monotonic() + seconds

    @property
    def left_out(self) -> tuple[str, ...]:
        """The work that was left out, in words, in the order in which it would have been done."""
        return tuple(self._left_out)

    def plan_is_there(self, *, is_fitting: bool = False) -> None:
        """Takes note that there is a plan.

        Args:
            is_fitting: it was seen to fit.
        """
        self.can_end = self.can_end or is_fitting or not self.must_fit

    def is_due(self) -> bool:
        """Whether the search is to end here, with work left; once it is, it stays so."""
        if self.stopped_by is None:
            self.stopped_by = self.reason()
        return self.stopped_by is not None

    def reason(self) -> StoppedBy | None:
        """The reason why the search is to end now; None: it goes on."""
        if self._is_interrupted:
            return "interrupt"
        return "time" if self.ends_at is not None and time.monotonic() >= self.ends_at else None

    def leaves_out(self, work: str) -> bool:
        """Whether work is left out since the search is to end; what is left out is noted.

        Args:
            work: in words.
        """
        if self.is_due():
            self._left_out[work] = None
        return self.stopped_by is not None

    @contextmanager
    def may_leave_out(self, work: str) -> Iterator[None]:
        """Work that a ``StoppedError`` ends, and that is then left out.

        Args:
            work: in words.
        """
        try:
            yield
        except StoppedError:
            self.leaves_out(work)

    def check(self) -> None:
        """Ends a search that has no plan of its own.

        Raises:
            StoppedError: it is to end.
        """
        if self.is_due():
            raise StoppedError
