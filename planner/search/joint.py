"""The joint problem at a price on repeated work, and the price with which its bound is high.

A bound rises and falls with the price like a roof with one ridge, and so does the bound that leaves the order of cuts
open (``planner.search.coarse``), which takes little time. The price that plans known call for is where the search for
the ridge begins: the passes mix values that repeat with values that do not, so theirs is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.search.choices import Choices
from planner.search.coarse import begin_coarsely
from planner.search.core import Core
from planner.search.dual import Dual
from planner.search.effort import Effort
from planner.search.order import Order
from planner.search.problem import Problem
from planner.search.recurse import Found
from planner.search.work_prices import FREE, Price

_STEP = 0.8
"""A price is tried so many times as high as the best one known."""
_COARSE = 1 / 5
"""Of the least gain of passes (``Effort.least_gain``): those that leave the order of cuts open cost little."""


@dataclass(frozen=True, slots=True)
class Joint:
    """All cuts together, every composite of every variable."""

    price: Price
    charged: Problem
    """With the price in its tables."""
    spare: int
    """What a plan may cost beside its bytes: the price of the budget."""
    core: Core
    dual: Dual

    @property
    def lower(self) -> float:
        """No plan within the budget moves fewer bytes, but for rounding errors."""
        return self.core.constant + self.dual.lower - self.spare


class Joints:
    """The joint problem at any price."""

    def __init__(
        self,
        problem: Problem,
        choices: Choices,
        order: Order,
        effort: Effort,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Makes no table yet.

        Args:
            problem: the graph's variables and tables.
            choices: every composite of each variable.
            order: of the variables that are eliminated first.
            effort: how much work may be done.
            progress: told what is being done.
        """
        self._problem = problem
        self._choices = choices
        self._order = order
        self._effort = effort
        self._progress = progress

    def at(self, price: Price) -> Joint:
        """At a price; the bound is not yet passed over."""
        self._progress("tables of all cuts together")
        charged = price.priced(self._problem)
        core = Core(charged, self._choices, self._order)
        self._problem.eliminated_entries += core.eliminated_entries
        return Joint(price, charged, price.of_budget(self._problem), core, core.dual())

    def bounded(self, joint: Joint, found: Found) -> Joint:
        """The same with its bound begun; at a better price, if there is one.

        Args:
            joint: at a price near the best.
            found: the best plan known.
        """
        best = self.begin(joint, found)
        if best.price == FREE:
            return best
        for step in (_STEP, 1 / _STEP):
            before = best
            while True:
                other = self.begin(self.at(Price(best.price.bytes_per_work * step)), found)
                gained = other.lower - best.lower
                if gained > 0:
                    best = other
                if gained <= self._effort.least_gain * (found.moved_bytes - best.lower):
                    break
            if best is not before:
                break
        return best

    def begin(self, joint: Joint, found: Found) -> Joint:
        """The same with its bound begun, by passes that leave the order of cuts open.

        Args:
            joint: its bound is not passed over yet.
            found: the best plan known.
        """
        self._progress("a bound that leaves the order of cuts open")
        cap = found.moved_bytes + joint.spare - joint.core.constant
        begin_coarsely(joint.dual, joint.core.without_order(), cap, _COARSE * self._effort.least_gain)
        return joint
