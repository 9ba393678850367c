"""Planning for the least estimated time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeAlias

from planner.api.fitting import Candidate, Goal, candidate_of
from planner.config import Machine
from planner.cost.estimate import estimate
from planner.cost.tables import CostTables
from planner.cost.time import PICOSECONDS, TimeTables
from planner.cost.timed import TimedTables
from planner.cost.topology import level_ways
from planner.device_profile import DeviceProfile
from planner.search.composites import Decided
from planner.search.factors import cuts_of_levels

Objective: TypeAlias = Literal["bytes", "time"]

_HIGHEST_PRICE = Fraction(10**6)
"""Picoseconds for a held byte: as if it came over 1 MB/s."""


def least_time(machine: Machine, tables: CostTables, profile: DeviceProfile | None = None) -> Goal:
    """The goal of ICML'18 (section 5.1): computing, transfers and synchronisation.

    Args:
        machine: that is planned for.
        tables: of bytes.
        profile: what ops were measured to take, or None.

    Raises:
        UsageError: neither the topology nor a profile says how fast its devices are.
    """
    times = TimeTables(machine, cuts_of_levels(level_ways(machine)), profile=profile)

    def of(candidate: Candidate) -> int:
        decided, program = candidate.decided, candidate.partitioned.program
        plan = decided.decision.plan
        found = estimate(decided.graph, decided.ops, plan.strategies, plan.cuts, program, machine, profile)
        return round(found.estimated_seconds * PICOSECONDS)

    return Goal(TimedTables(tables, times), of, _HIGHEST_PRICE)


def faster(first: Candidate, again: Callable[[CostTables], Decided], goal: Goal, tables: CostTables) -> Candidate:
    """The faster of the plan for the fewest bytes and the one that the tables of time lead to, by their programs.

    Args:
        first: the plan for the fewest bytes.
        again: makes a plan with other tables.
        goal: the least time.
        tables: of bytes.
    """
    found = candidate_of(again(goal.tables), tables)
    return min(first, found, key=goal.of)
