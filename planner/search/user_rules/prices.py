"""What each rule costs: what the plan would cost less without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import InfeasibleError
from planner.search.user_rules.rules import Rules


@dataclass(frozen=True, slots=True)
class Price:
    """A pin or a prohibition, and what it costs."""

    kind: str
    """``pin`` or ``forbid``."""
    rule: str
    """As the user wrote it: ``W=S(0)``."""
    price_bytes: int | None
    """What the plan costs more than a plan without this rule, all others kept; None where that has no plan."""


def prices(
    rules: Rules,
    cost: int,
    cost_under: Callable[[Rules], int],
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[Price, ...]:
    """Prices every pin and every prohibition by planning again without it.

    A plan that keeps to a rule is also a plan without it. So where a search that is not exact finds a dearer one
    without the rule, the price is 0.

    Args:
        rules: what the plan keeps to.
        cost: what it costs.
        cost_under: plans again under other rules, and says what that plan costs.
        progress: told which plan is being made.
    """
    kept = [("pin", f"{name}={text}", rules.without_pin(name)) for name, text in rules.pins.items()]
    kept += [
        ("forbid", f"{name}={text}", rules.without_prohibition(number))
        for number, (name, text) in enumerate(rules.forbidden)
    ]
    found = []
    for number, (kind, rule, others) in enumerate(kept, start=1):
        progress(f"price {number} of {len(kept)}: planning without --{kind} {rule}")
        try:
            price = max(0, cost - cost_under(others))
        except InfeasibleError:
            price = None
        found.append(Price(kind, rule, price))
    return tuple(found)
