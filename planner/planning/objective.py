"""Planning for the least estimated time.

What a plan is judged by is the estimate of its program. The search has tables of time, which add up what ops compute
and what each delivery takes by itself; a program joins deliveries, and sends over several levels at once, so that its
estimate is mostly less than the tables' sum, by up to a tenth on machines of one level. So the search's plan for the
least time by its tables is one of several: the plan for the least cost in bytes and those of the strategies of the
literature are others, and the one whose program is estimated to be the fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from planner.cost.roofline import says_speed
from planner.cost.seconds.measured import compute_times
from planner.cost.seconds.tables import PICOSECONDS, TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import CostTables
from planner.errors import TofuError, UsageError
from planner.machine.device_profile import DeviceProfile
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Machine
from planner.planning.goal import Goal
from planner.planning.limit.trial import Trial
from planner.planning.machines import cuts_on, time_of
from planner.planning.thresholds import Work
from planner.progress import Progress, silent
from planner.search.decision import Decision
from planner.search.literature.methods import CLOSED_FORMS, METHODS
from planner.spent import part
from planner.stop import Stop, StoppedError

Objective: TypeAlias = Literal["bytes", "time"]

LITERATURE = tuple(METHODS)
"""Names of the strategies of the literature."""
SEARCHES = tuple(name for name in LITERATURE if name not in CLOSED_FORMS)
"""Names of those that search, which takes long on large graphs."""

_HIGHEST_PRICE = Fraction(10**6)
"""Picoseconds for a held byte: as if it came over 1 MB/s."""
MOST_DEVICES_BY_DEFAULT: Final = 64
"""On a larger machine tables of time take minutes even of a small graph: who wants them has to ask for them."""


def objective_of(
    wanted: Objective | None, machine: Machine | None, profile: DeviceProfile | None, strategy: str
) -> Objective:
    """The objective of a plan: where nobody says it, the time on a machine, else bytes.

    A plan of the literature is by itself for what its authors say. Nor is there a time where neither the topology nor a
    profile says how fast devices compute; and on hundreds of devices it takes long, and has to be asked for.

    Args:
        wanted: as the user wrote it, or None.
        machine: that is planned for, or None.
        profile: what ops were measured to take, or None.
        strategy: how the plan is found.

    Raises:
        UsageError: the least time is asked for, and there is no machine.
    """
    if wanted == "time" and machine is None:
        raise UsageError("--objective time: on what machine?", hint="write --topology with a file or a name")
    if wanted is not None:
        return wanted
    is_timed = machine is not None and strategy == "tofu" and can_be_timed(machine, profile) and not is_large(machine)
    return "time" if is_timed else "bytes"


def is_large(machine: Machine) -> bool:
    """Whether tables of time take long on a machine."""
    return machine.device_count > MOST_DEVICES_BY_DEFAULT


def can_be_timed(machine: Machine, profile: DeviceProfile | None) -> bool:
    """Whether the topology or a profile says how fast devices compute."""
    return profile is not None or all(map(says_speed, machine.devices))


def timed(decided: Decision, tables: CostTables) -> Trial:
    """A plan that tables of time led to, with its costs in bytes; its gap is of the time that those tables add up.

    Args:
        decided: the plan, counted by tables of time.
        tables: of bytes.
    """
    return Trial(replace(decided.with_costs(tables), lower=decided.lower, picoseconds=decided.cost))


def of_the_literature(
    names: Sequence[str], search: Callable[[str], Decision], progress: Progress = silent, stop: Stop | None = None
) -> Iterator[tuple[str, Trial | TofuError]]:
    """The plans of strategies of the literature, by name.

    Args:
        names: of the strategies.
        search: makes a plan by the strategy of this name.
        progress: told what is being done.
        stop: asked before each whether the search is to end; None: it is not.

    Yields:
        A strategy's name and its plan, or why it has none of this graph, or none that keeps to the rules.
    """
    for number, name in enumerate(names, start=1):
        task = f"the plan of the strategy {name}"
        if stop is not None and stop.leaves_out(task):
            continue
        progress(f"strategy {number} of {len(names)} of the literature: {name}")
        try:
            yield name, Trial(search(name))
        except TofuError as error:
            yield name, error
        except StoppedError:
            if stop is None or not stop.leaves_out(task):
                raise


@dataclass(frozen=True, slots=True)
class Fastest:
    """The fastest of some plans."""

    best: Trial
    """The fastest."""
    fitting: Trial | None
    """The fastest of those that fit into the memory there is; None if none of them does."""


class Times:
    """Estimates of plans on one machine: the goal of ICML'18 (section 5.1), computing, transfers and synchronisation.

    Attributes:
        goal: the least time, for plans whose cuts are those of the machine's levels.
        goal_by_tables: the same, as the tables add it up, whatever programs say.
    """

    def __init__(self, machine: Machine, tables: CostTables, profile: DeviceProfile | None = None) -> None:
        """Prepares the tables.

        Args:
            machine: that is planned for.
            tables: of bytes.
            profile: what ops were measured to take, or None.

        Raises:
            UsageError: neither the topology nor a profile says how fast its devices are.
        """
        self._machine = machine
        self._tables = tables
        self._profile = profile
        self._by_cuts: dict[tuple[int, ...], CostTables] = {}
        self.goal = Goal(self._tables_for(cuts_on(machine)), self._picoseconds, _HIGHEST_PRICE)
        self.goal_by_tables = replace(self.goal, of=lambda trial: self._by_tables(trial.decided))
        self._computes = compute_times(machine.devices, profile)
        self._received_bytes_per_s = sum(Interconnect(machine).received_bytes_per_s) or float("inf")
        self._added_up: list[tuple[Decision, int]] = []

    def seconds(self, trial: Trial) -> float:
        """The time of an iteration: the estimate of the program; where programs take long to make, the tables' sum."""
        return self._picoseconds(trial) / PICOSECONDS

    def _picoseconds(self, trial: Trial) -> int:
        if self.is_exact(len(trial.decided.ops)):
            return round(time_of(trial, self._machine, self._profile).estimated_seconds * PICOSECONDS)
        return self._by_tables(trial.decided)

    def is_exact(self, ops: int) -> bool:
        """Whether programs tell the times of a graph with so many ops; else tables do."""
        return Work.ESTIMATES.is_done(ops, self._machine.device_count)

    def at_least(self, decided: Decision) -> float:
        """Seconds that the estimate of the program cannot be below: it computes, and no device receives faster."""
        plan = decided
        computing = 0.0
        if len(set(self._machine.devices)) == 1:  # else it depends on which worker has which device
            strategies = plan.strategies
            times = (self._computes.seconds(bound, strategies[bound.op.name].tiling).max() for bound in decided.ops)
            computing = float(sum(times))
        # In whole picoseconds, as the estimate is: a plan on one device takes just that, but for the last bit.
        return math.floor((computing + plan.moved_bytes / self._received_bytes_per_s) * PICOSECONDS) / PICOSECONDS

    def by_tables(self, decided: Decision) -> float:
        """Seconds that the tables of time add up."""
        return self._by_tables(decided) / PICOSECONDS

    @part("estimates")
    def _by_tables(self, decided: Decision) -> int:
        for plan, amount in self._added_up:
            if plan is decided:
                return amount
        amount = decided.with_costs(self._tables_for(decided.cuts)).cost
        self._added_up.append((decided, amount))
        return amount

    def _tables_for(self, cuts: tuple[int, ...]) -> CostTables:
        if cuts not in self._by_cuts:
            self._by_cuts[cuts] = TimedTables(self._tables, TimeTables(self._machine, cuts, profile=self._profile))
        return self._by_cuts[cuts]

    def fastest(self, trials: Sequence[Trial], limits: Sequence[int] | None, stop: Stop | None = None) -> Fastest:
        """The fastest plan.

        A program takes longer to make than its plan's tables: those that are promising come first, and one that cannot
        be as fast as what is known is not made.

        Args:
            trials: plans; of equally fast ones the first is taken.
            limits: the memory there is, in any order; None: enough.
            stop: asked, once there is a plan, whether the search is to end; None: it is not.
        """
        different: dict[object, Trial] = {}
        for trial in trials:
            plan = trial.decided
            key = (plan.cuts, tuple(plan.tilings.items()), tuple(plan.strategies.items()))
            different.setdefault(key, trial)
        best: Trial | None = None
        fitting: Trial | None = None
        for trial in sorted(different.values(), key=lambda trial: self.by_tables(trial.decided)):
            wanted = best if limits is None else fitting
            if wanted is not None and self.seconds(wanted) <= self.at_least(trial.decided):
                continue
            if stop is not None and wanted is not None and stop.leaves_out("estimates of further plans"):
                break
            if best is None or self.seconds(trial) < self.seconds(best):
                best = trial
            is_faster = fitting is None or self.seconds(trial) < self.seconds(fitting)
            if is_faster and trial.fits(limits):
                fitting = trial
        assert best is not None, "there is a plan"
        return Fastest(best, fitting)
