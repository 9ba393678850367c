"""The request for a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Partitioning
from planner.cost.tables import CostTables
from planner.progress import Progress, silent
from planner.search.effort import EffortName
from planner.search.prepared import Made, Prepared
from planner.search.user_rules.rules import NO_RULES, Rules
from planner.stop import Stop


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The request for a search; another one is made from it with ``dataclasses.replace``."""

    workers: int
    """The number of workers; at least 1."""
    cuts: tuple[int, ...] = ()
    """Ways of each cut, outermost first, as they are laid on the machine; they multiply to the workers. () if all
    workers are alike: then its prime factors."""
    strategy: str = "tofu"
    """A strategy of ``planner.search.decide.STRATEGIES``."""
    rules: Rules = NO_RULES
    """The rules of the user."""
    held: Mapping[str, Tiling] = field(default_factory=dict)
    """The strategy that each op must have: one that the analysis admits and that every worker has a local op for."""
    partitioned_inputs: bool = False
    """Leave replication out of the data inputs' tilings."""
    effort: EffortName = "normal"
    """The effort of the search (``planner.search.schedule``)."""
    incumbent: Partitioning | None = None
    """A plan of nearly the same graph, to be beaten: in a large graph's search it stands in the place of all starts but
    the first; and the search states no bound where it finds no plan that costs less."""
    begun: Partitioning | None = None
    """A plan of this very graph with which the search goes on; None: it makes its first plan."""
    tables: CostTables = field(default_factory=CostTables)
    """The tables of the quantity that is to be small. Searches with the same descriptions may share them, so that what
    all have is not counted twice.
    """
    progress: Progress = silent
    """The listener to the search's progress."""
    stop: Stop = field(default_factory=Stop)
    """Asked whether the search is to end."""
    room_bytes: int | None = None
    """The bytes of each worker's memory, for a strategy that looks at it (``Method.looks_at_memory``), which then
    leaves replication out of the data inputs' tilings. None: enough.
    """
    prepared: Prepared | None = None
    """The preparation by searches of the same graph by other strategies; None: nothing is kept for others."""
    is_needed: bool = True
    """A plan is made in any case; else the search may end before it has one, since there is another plan."""

    def once(self, name: str, of: tuple[object, ...], make: Callable[[], Made], flags: tuple[bool, ...] = ()) -> Made:
        """The preparation of these objects: that of an earlier search, where there is one (``Prepared.once``)."""
        return make() if self.prepared is None else self.prepared.once(name, of, flags, make)
