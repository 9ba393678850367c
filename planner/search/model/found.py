"""A plan of the search: a value for every variable of its problem."""

from __future__ import annotations

from dataclasses import dataclass

from planner.algebra.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Found:
    """A plan of the search."""

    tilings: tuple[Tiling, ...]
    """The tiling of each variable of the problem."""
    cost: int
    """The sum of the tables: what one iteration moves between workers and the excess of its ops; with tables of time or
    of memory, what these add up."""
    largest_table: int
    """Entries of the largest table of the elimination."""
    lower: int | None = None
    """No plan of the search's problem costs less; None where no bound is known."""
