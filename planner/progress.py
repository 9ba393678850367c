"""Progress: the present work, and the best plan so far."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Told what is being done."""

    def __call__(self, doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        """Takes note.

        Args:
            doing: what is being done, in a few words.
            cost: of the best plan of the whole network so far, in bytes; None where none is known.
            lower: no plan of those that are searched costs less; None where no bound is known.
        """


@runtime_checkable
class PhasedProgress(Progress, Protocol):
    """Progress with counted phases, and with the time that is left where that can be known."""

    def begin(self, phase: str, number: int, phases: int, ends_at: float | None) -> None:
        """Takes note of the phase that begins.

        Args:
            phase: its name.
            number: of the phase, from 1.
            phases: how many there are.
            ends_at: when it ends at the latest, by ``time.monotonic``; None: nobody says.
        """

    def count(self, doing: str, done: int, items: int) -> None:
        """Takes note of how many items of the present work are done; each takes about as long as any other.

        Args:
            doing: what is being done, and the noun of an item.
            done: how many items.
            items: how many there are.
        """


def tell_count(progress: Progress, doing: str, done: int, items: int) -> None:
    """Tells how many items of some work are done; to any listener in words (``PhasedProgress.count``)."""
    if isinstance(progress, PhasedProgress):
        progress.count(doing, done, items)
    else:
        progress(f"{doing} {done:,} of {items:,}")


def silent(doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
    """Progress that nobody wants."""


def without_costs(progress: Progress) -> Progress:
    """Tells what is being done, and no cost: where a cost is not of the network that the user asked for.

    Args:
        progress: told.
    """

    def tell(doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        progress(doing)

    return tell


def in_part(progress: Progress, part: str) -> Progress:
    """Tells of which part of the work what is being done is.

    Args:
        progress: told.
        part: such as ``start 2 of 7``.
    """

    def tell(doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        progress(f"{part}: {doing}", cost=cost, lower=lower)

    return tell


def with_best(progress: Progress, best: int | None, lower_of_best: int | None = None) -> Progress:
    """Tells the cost of the best plan that is known beside what a part of the search says.

    Args:
        progress: told.
        best: cost of the best plan that is known, in bytes; None where none is.
        lower_of_best: no plan costs less; None where no bound is known.
    """

    def tell(doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        if best is None or (cost is not None and (cost < best or (cost == best and lower is not None))):
            progress(doing, cost=cost, lower=lower)
        else:
            progress(doing, cost=best, lower=lower_of_best)

    return tell
