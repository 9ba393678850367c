"""The largest batch of a model for which there is a plan that fits.

What every plan takes at least grows by the same amount with each sample, at each moment: known at two batches, it is
known at all of them. So no batch is looked at for which no plan can fit that computes nothing again, nor one that
computes as much again as saves the most. The leanest plan is looked for at the largest batch that is left, then at the
one to which leads what that plan lacks, and then by halving.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.cost.residence import Ints
from planner.features.fit.judge import lacking_of
from planner.features.fit.ladder import Ladder
from planner.features.fit.sized import Batches
from planner.graph.rewriting.recomputation import recomputed
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.machines import Target
from planner.planning.samples import Growth
from planner.progress import Progress

_MOST_TRIED: Final = 6
"""Batches of which plans are looked for, on each number of workers, at most."""
_DIGITS: Final = 4
"""Binary digits of a batch: larger ones with more could hardly be divided. Doubled, batches nearer to the largest."""


def looked_at(low: int, high: int) -> tuple[int, ...]:
    """The batches of a range that are looked at: its ends, and those with few binary digits.

    >>> looked_at(15, 24)
    (15, 16, 18, 20, 22, 24)
    """
    sizes = (size for size in range(low, high + 1) if size % (1 << max(0, size.bit_length() - _DIGITS)) == 0)
    return tuple(sorted({low, high, *sizes}))


class LargestBatch:
    """Looks for the largest batch of a model, on one number of workers after the other."""

    def __init__(self, batches: Batches, ends: tuple[int, int], progress: Progress) -> None:
        """Reads the model at a second batch: the largest that is looked at.

        Args:
            batches: the model; its batch can be changed.
            ends: the smallest and the largest batch that are looked at.
            progress: told what is being done.

        Raises:
            TofuError: the batch cannot be changed.
        """
        assert batches.samples is not None, "the batch can be changed"
        self._batches, self._progress = batches, progress
        self._sizes = looked_at(*ends)
        batch = batches.samples.given
        self._two = (batch, ends[1] if ends[1] != batch else ends[0])
        progress(f"reading the model at a batch of {self._two[1]}")
        self._again = batches.stated.leanest_again
        small, large = sorted(self._two)
        vectors = zip(self._least(small), self._least(large), strict=True)
        self._growths = [Growth(small, small_least, large, large_least) for small_least, large_least in vectors]
        """By what is computed again: nothing, or the most."""

    def on(self, target: Target, limits: Sequence[int], fitting_batch: int) -> int | None:
        """The largest batch for which a plan was found that fits; None if there is none.

        Args:
            target: what is planned for.
            limits: the memory there is, one entry for each worker, in any order.
            fitting_batch: a batch for which there is a plan that fits; 0: none is known.

        Raises:
            TofuError: the batch cannot be changed.
        """
        room, sizes = sum(limits), self._sizes
        largest = self._largest(room)
        fitting = sizes.index(fitting_batch) if fitting_batch in sizes else -1
        beyond = -1 if largest is None else sizes.index(largest) + 1
        at, tried = beyond - 1, 0
        while fitting < at < beyond and tried < _MOST_TRIED:
            self._progress(f"{target.workers} workers: a batch of {sizes[at]}")
            ladder = Ladder(self._batches.at(sizes[at]), target, None, self._progress)
            lean = ladder.lean(1)
            leaner = [
                ladder.with_copies(rung, self._again, makes_program=rung.is_exact) for rung in lean if self._again
            ]
            leanest = min((*leaner, *lean), key=lambda rung: rung.held_bytes, default=None)
            lacking = max(limits) if leanest is None else lacking_of(leanest, limits)
            # By large graphs no more is tried than to where the first one leads: each takes long.
            tried += 1 if lean and lean[-1].is_exact else _MOST_TRIED // 2
            if lacking <= 0:
                fitting = at
            else:
                beyond = at
            below = None if tried > 1 or lacking <= 0 else self._largest(room - lacking * len(limits))
            at = (fitting + beyond) // 2 if below is None else min(sizes.index(below), at - 1)
        return sizes[fitting] if fitting >= 0 else None

    def _least(self, batch: int) -> list[Ints]:
        """What every plan takes at least at a batch, by moment: nothing being computed again, and the most.

        Raises:
            TofuError: the batch cannot be changed.
        """
        sized = self._batches.at(batch)
        copied = recomputed(sized.graph, self._again)
        again = [EveryPlan(copied, sized.source.descriptions)] if self._again else []
        return [plans.by_moment for plans in (sized.every_plan, *again)]

    def _largest(self, room: int) -> int | None:
        """The largest batch at which no more lies there at least than there is room for, as two batches tell."""
        sizes = (growth.largest(self._sizes, room) for growth in self._growths)
        return max((size for size in sizes if size is not None), default=None)
