"""Plans near those that are known, for one set of tables after the other.

What a variable may be is what it is in a known plan, and what improvement would offer there
(``planner.search.moves.fusion``). Over so few candidates a whole graph is solved exactly, in a fraction of the time in
which a plan is found from nothing; and the candidates are the same for all tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.algebra.tiling import Tiling
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.search.decided import Decided
from planner.search.effort import MOVE_ENTRIES
from planner.search.exact.choices import Choices
from planner.search.model.found import Found
from planner.search.model.problem import Problem, no_restriction
from planner.search.model.unsplit import unsplit
from planner.search.moves.fusion import Neighbourhood
from planner.search.request import SearchRequest
from planner.search.user_rules.pins import ruled


class Nearby:
    """What each variable of a graph may be near known plans."""

    def __init__(self, plans: Sequence[Decided], ask: SearchRequest) -> None:
        """Finds the candidates.

        Args:
            plans: of one graph, with the same cuts, found by the search itself; at least one. What improvement would
                offer to the first one is offered, too; near the others, of which there may be many, lie hardly any
                better plans.
            ask: what they were asked for, with tables of what is to be small, without prices.
        """
        self._like, self._ask = plans[0], ask
        problem = self._problem = self.problem(ask.tables)
        known = [self.tilings(plan) for plan in plans]
        lists = [dict.fromkeys(tilings) for tilings in zip(*known, strict=True)]
        self._choices = [self._chosen(lists)]
        """The more candidates, the later."""
        near = Neighbourhood(problem, plans[0].cuts, ruled(problem, ask.rules, plans[0].cuts, no_restriction))
        offered = near.of(Found(known[0], 0, 0), near.kinds)
        for number, tilings in enumerate(lists):
            tilings.update(dict.fromkeys(offered[number]))
        self._choices.append(self._chosen(lists))

    def problem(self, tables: CostTables) -> Problem:
        """The graph's variables, with tables."""
        return Problem(
            self._like.graph,
            self._like.ops,
            self._like.workers,
            self._ask.partitioned_inputs,
            with_partial_sums=True,
            with_nests=True,
            tables=tables,
        )

    def _chosen(self, lists: Sequence[Mapping[Tiling, None]]) -> Choices:
        return Choices.of([self._problem.intern(tuple(tilings)) for tilings in lists])

    def tilings(self, plan: Decided) -> tuple[Tiling, ...]:
        """What each variable is in a plan."""
        return tuple(
            plan.tilings[variable.tensors[0]] if variable.op is None else plan.strategies[variable.op.op.name].tiling
            for variable in self._problem.variables
        )

    def solved(self, tables: CostTables) -> Decided:
        """The best of these plans, with the bytes of another one; the first known one where they are too entangled.

        Args:
            tables: with prices.
        """
        problem = self.problem(tables)
        while True:
            try:
                tilings, _ = problem.solve(self._choices[-1], MOVE_ENTRIES)
            except InfeasibleError:  # too entangled: fewer candidates
                if len(self._choices) == 1:
                    return self._like
                self._choices.pop()
            else:
                return self.plan(tilings) if problem.is_possible(tilings) else self._like

    def plan(self, tilings: Sequence[Tiling]) -> Decided:
        """The plan in which each variable is this."""
        problem, like = self._problem, self._like
        stuck = unsplit(problem, tilings)
        return replace(
            like,
            tilings={name: tilings[problem.variable_of_tensor[name]] for name in like.tilings},
            strategies={
                name: replace(strategy, tiling=tilings[problem.variable_of_op[name]])
                for name, strategy in like.strategies.items()
            },
            unsplit=tuple(name for name in like.strategies if problem.variable_of_op[name] in stuck),
        )
