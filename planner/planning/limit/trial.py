"""A plan, its program, and whether that fits into the memory there is.

Up to 2,000 ops the program says so. Of a larger graph that takes seconds: there what lies on the workers op by op says
it, and the program only of the plan that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.making import Making
from planner.cost.residence import Residence
from planner.cost.seconds.estimate import Timed
from planner.machine.device_profile import DeviceProfile
from planner.machine.topology_file import Machine
from planner.partition.build import Unplaced, unplaced
from planner.partition.occupancy import tightest
from planner.partition.segments import Partitioned
from planner.planning.thresholds import Work
from planner.search.decision import Decision

MOST_TIGHTENED = 3
"""How often plans of a large graph are held to less, where the program takes more than what lies there op by op."""
_AMPLE = Fraction(1, 2)
"""Share of the memory there is: a large plan of which less lies there op by op fits. Programs of Mamba-2, DiT-XL and
Llama-3 8B on eight workers were seen to take 1.01 to 1.22 times as much as that."""


@dataclass(frozen=True)
class Trial:
    """A plan, and its program, which is made when somebody asks for it."""

    decided: Decision
    is_lean: bool = False
    """Its program is a lean one (``partition``)."""
    apart: Sequence[Sequence[float]] = ()
    """How far its workers are from each other (``partition``)."""
    limit_bytes: int = 0
    """The bytes that no worker should take more of: where a worker can do with fewer, buffers are placed again until it
    does."""

    @property
    def making(self) -> Making:
        """The settings of its program."""
        return Making(self.is_lean, self.limit_bytes, tuple(map(tuple, self.apart)))

    @cached_property
    def partitioned(self) -> Partitioned:
        """The program."""
        return self._unplaced.placed(limit_bytes=self.limit_bytes)

    @cached_property
    def estimates(self) -> list[tuple[Machine, DeviceProfile | None, Timed, TimeEstimate]]:
        """The terms of estimates of the program, and the estimates, by machine and profile (``planning.machines``)."""
        return []

    @cached_property
    def _unplaced(self) -> Unplaced:
        decided = self.decided
        return unplaced(decided.graph, decided.ops, decided, self.apart, lean=self.is_lean)

    def fits(self, limits: Sequence[int] | None) -> bool:
        """Whether the workers' tensors fit.

        Args:
            limits: the memory there is, one entry for each worker, in any order: who needs more has the larger; None:
                enough.
        """
        return limits is None or self.lacking(limits) <= 0

    def holds(self, limits: Sequence[int]) -> bool:
        """Whether they fit as the program tells, which is made even where what lies there op by op is little.

        Args:
            limits: as of ``fits``.
        """
        return self.lacking(limits) <= 0 and self.lacking_by_program(limits) <= 0

    def lacking(self, limits: Sequence[int]) -> int:
        """Bytes that the worker lacks that lacks the most; 0 or less: the plan fits.

        To place buffers well is most of the work of making a program; so it is done only as far as limits ask for it.
        Of a large graph no program is made where what lies there op by op is too much already, or so little that hardly
        any program could take what there is; the plan that is kept is held to it (``holds``).

        Args:
            limits: as of ``fits``.
        """
        if not self.is_exact:
            if (lacking := self.lacking_on_average(sum(limits))) > 0:
                return lacking
            if (lacking := self.lacking_on_average(int(_AMPLE * len(limits) * min(limits)))) <= 0:
                return lacking
        return self.lacking_by_program(limits)

    def lacking_by_program(self, limits: Sequence[int]) -> int:
        """The same, whatever lies there op by op."""
        peaks = self._unplaced.least_peaks
        if (lacking := _lacking(peaks, limits)) <= 0:
            lacking = _lacking(self._unplaced.placed(min(limits), self.limit_bytes).program.peak_bytes, limits)
        return lacking

    def lacking_on_average(self, room: int) -> int:
        """Bytes that a worker lacks on average at the fullest op, of so many for all together; 0 or less: enough."""
        return -(-(self._held - room) // prod(self.decided.cuts))

    @property
    def is_exact(self) -> bool:
        """Whether its program tells what it takes; else the arrays that are held op by op do, as far as they can."""
        return Work.TRIALS.is_done_for(self.decided)

    @cached_property
    def _held(self) -> int:
        return fullest(self.decided)


def fullest(decided: Decision) -> int:
    """Bytes that lie on all workers together at the fullest op."""
    return int(Residence(decided.graph, decided.ops).of(decided).max(initial=0))


def inputs_held(decided: Decision) -> int:
    """Bytes of all workers' tiles of the graph's inputs, which lie there whatever runs in steps."""
    tensors = [decided.graph.tensors[name] for name in decided.graph.inputs]
    return sum(
        int(decided.tilings[tensor.name].boxes(tensor.shape).elements.sum()) * tensor.dtype.item_bytes
        for tensor in tensors
    )


def _lacking(peaks: Sequence[int], limits: Sequence[int]) -> int:
    worker, limit = tightest(peaks, limits)
    return peaks[worker] - limit
