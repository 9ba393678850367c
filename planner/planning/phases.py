"""The phases of planning, as progress counts them."""

from __future__ import annotations

from planner.planning.request import PlanRequest

PHASES = (
    *("reading", "searching", "pricing rules", "comparing strategies", "searching for time", "making programs"),
    *("searching further", "comparing machines", "writing", "summary"),
)
"""In their order; which of them there are, the request says."""
SEARCHES = frozenset((*PHASES[1:5], "searching further"))
"""Those that end with the time of a plan."""


def phases_of(request: PlanRequest) -> tuple[str, ...]:
    """The phases of a plan that is made as is asked for."""
    is_there = {
        "pricing rules": bool(request.rules.pins or request.rules.forbidden),
        "comparing strategies": request.is_timed,
        "searching for time": request.objective == "time",
        "searching further": request.goes_on,
        "comparing machines": request.is_timed,
    }
    return tuple(name for name in PHASES if is_there.get(name, True))
