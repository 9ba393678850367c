"""Planning with a time: the default's plan first, and a thorough search in the time that is left."""

from __future__ import annotations

from planner.counted import phase
from planner.errors import InfeasibleError
from planner.planning.session import Planned, Session
from planner.stop import StoppedError

_FURTHER = "a thorough search"


def planned_in_time(session: Session) -> tuple[Session, Planned]:
    """The plan of a request, and the session that has it.

    A thorough search bounds before it grows the plans that ``normal`` grows: ended by a time, it may have the dearer
    plan. So ``normal`` comes first, and the better plan is taken.

    Args:
        session: in which nothing is planned yet.

    Raises:
        TofuError: see ``Session.planned``.
    """
    if not session.request.goes_on:
        return session, session.planned()
    stop, plans = session.request.stop, list[tuple[Session, Planned]]()
    refusal: Exception = StoppedError()
    for searching in (session.at_effort("normal"), session):
        if searching is session:
            phase("searching further")
            if stop.leaves_out(_FURTHER):
                break
        try:
            plans.insert(0, (searching, searching.planned(plans[0][1] if plans else None)))
        except InfeasibleError as error:
            refusal = error
        except StoppedError:
            stop.leaves_out(_FURTHER)
    if not plans:
        raise refusal
    return min(plans, key=_worth)  # of equal ones the thorough search's, which has the bound


def _worth(plan: tuple[Session, Planned]) -> float:
    session, planned = plan
    if session.request.objective == "time" and planned.times is not None:
        return planned.times.seconds(planned.trial)
    return planned.trial.decided.cost
