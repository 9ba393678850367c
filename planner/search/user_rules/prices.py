"""The price of each rule: what the plan would cost less without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from planner.errors import InfeasibleError
from planner.progress import Progress, silent
from planner.search.user_rules.rules import Rules
from planner.stop import Stop, StoppedError


@dataclass(frozen=True, slots=True)
class Price:
    """A rule, and what it costs."""

    kind: ClassVar[str]

    rule: str
    """The rule as the user wrote it: ``W=S(0)``."""
    price_bytes: int | None
    """The cost of the plan beyond a plan without this rule, all others kept; None where that has no plan, and where the
    price was not found.
    """
    is_found: bool = True
    """Whether the plan without the rule was looked for to the end; not so where the search was stopped."""


@dataclass(frozen=True, slots=True)
class PinPrice(Price):
    """A pin, and what it costs."""

    kind: ClassVar = "pin"
    told: ClassVar = "pin=rule price_bytes is_found?"


@dataclass(frozen=True, slots=True)
class ForbidPrice(Price):
    """A prohibition, and what it costs."""

    kind: ClassVar = "forbid"
    told: ClassVar = "forbid=rule price_bytes is_found?"


def prices(
    rules: Rules,
    cost: int,
    cost_under: Callable[[Rules], int],
    progress: Progress = silent,
    stop: Stop | None = None,
) -> tuple[PinPrice | ForbidPrice, ...]:
    """Prices every pin and every prohibition by planning again without it.

    A plan that keeps to a rule is also a plan without it. So where a search that is not exact finds a dearer one
    without the rule, the price is 0.

    Args:
        rules: what the plan keeps to.
        cost: what it costs.
        cost_under: plans again under other rules, and says what that plan costs.
        progress: told which plan is being made.
        stop: asked before and after each plan whether the search is to end; None: it is not.
    """
    relaxations: list[tuple[type[PinPrice | ForbidPrice], str, Rules]] = [
        (PinPrice, f"{name}={text}", rules.without_pin(name)) for name, text in rules.pins.items()
    ]
    relaxations += [
        (ForbidPrice, f"{name}={text}", rules.without_prohibition(number))
        for number, (name, text) in enumerate(rules.forbidden)
    ]
    rule_prices = []
    for number, (price_of, rule, relaxed) in enumerate(relaxations, start=1):
        label = f"the price of --{price_of.kind} {rule}"
        if stop is not None and stop.leaves_out(label):
            rule_prices.append(price_of(rule, None, is_found=False))
            continue
        progress(f"price {number} of {len(relaxations)}: planning without --{price_of.kind} {rule}", cost=cost)
        try:
            price = max(0, cost - cost_under(relaxed))
        except InfeasibleError:
            price = None
        except StoppedError:
            price = None
        # A plan that was not looked for to the end tells no price.
        is_found = stop is None or stop.stopped_by is None
        if stop is not None and not is_found:
            stop.leaves_out(label)
        rule_prices.append(price_of(rule, price if is_found else None, is_found))
    return tuple(rule_prices)
