"""The best plan known with one tensor's tiling, or one op's strategy, fixed: solved for near a plan that there is.

What is fixed is put into the plan, whatever that costs, and improvement (``planner.search.moves.fusion``) goes on from
there until nothing gets better: the way by which ``quick`` makes its plans better, from another start. One cut is
solved exactly, as ``quick`` does it. So what is found is a plan, and what it costs bounds from above what the best plan
with that choice costs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

from planner.algebra.tiling import Placement, Replicate, Shard, Tiling
from planner.artifacts.asked import Asked
from planner.artifacts.plan import OpStrategy
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError
from planner.planning.limit.trial import Trial
from planner.reasons import RunnerUp, Subject
from planner.search.decision import Decision
from planner.search.model.found import Found
from planner.search.model.partial_sums import PARTIAL
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves.fusion import improve
from planner.search.moves.recursion import search_recursively
from planner.search.user_rules.pins import ruled
from planner.search.user_rules.rules import Rules

Choice: TypeAlias = tuple[int, Tiling]
"""A variable's number, and what it is to be."""


class NearPlan:
    """Plans near one that there is."""

    def __init__(self, decided: Decision, request: Asked, names: Collection[str], tables: CostTables) -> None:
        """Prepares the problem that the plan solves.

        Args:
            decided: the plan.
            request: what other plans must keep to.
            names: tensors that a rule's pattern may match: those of the planned form, without bodies and deliveries.
            tables: of bytes.
        """
        self._decided, self._request = decided, request
        self._problem = Problem(
            decided.graph,
            decided.ops,
            decided.workers,
            request.partitioned_inputs,
            with_partial_sums=True,
            with_nests=True,
            tables=tables,
        )
        self._rules = ruled(
            self._problem,
            Rules(request.pins, request.forbidden, request.replicate, frozenset(names)),
            decided.cuts,
            no_restriction,
        )
        self._current = self._problem.values_of(decided)

    def shares(self, kind: Subject, name: str) -> tuple[str, ...]:
        """The other tensors that have one tiling with this one, or the other ops that have one strategy."""
        problem, number = self._problem, self._number(kind, name)
        alike = problem.variable_of_tensor if kind == "tensor" else problem.variable_of_op
        return tuple(peer for peer, index in alike.items() if index == number and peer != name)

    def runners_up(self, kind: Subject, name: str, count: int) -> Iterator[RunnerUp]:
        """The best other choices of a tensor or an op: the least dear first, and those without a plan last.

        Choices are those that a user can write in one placement: the same at every cut, along a dim or an index
        variable, replicated, or partial; and where these are fewer than are wanted, those that differ from the plan's
        at one cut. What each of them costs with its neighbours alone decides which are solved for.

        Args:
            kind: what it is.
            name: of a tensor that is divided, or of an op.
            count: how many.
        """
        number = self._number(kind, name)
        variable = self._problem.variables[number]
        choices = self._choices(variable, count)
        chosen = sorted(choices, key=lambda tiling: (self._alone(number, tiling), str(tiling)))[:count]
        candidates = [self._runner_up(variable, name, tiling) for tiling in chosen]
        yield from sorted(candidates, key=lambda runner_up: (runner_up.cost_bytes is None, runner_up.cost_bytes or 0))

    def with_choice(self, kind: Subject, name: str, tiling: Tiling) -> Decision:
        """The best plan known with this choice.

        Args:
            kind: of what.
            name: of the tensor or op.
            tiling: or strategy that it is to have.

        Raises:
            InfeasibleError: there is none.
        """
        return self._solved(self._number(kind, name), tiling)

    def _number(self, kind: Subject, name: str) -> int:
        problem = self._problem
        return (problem.variable_of_tensor if kind == "tensor" else problem.variable_of_op)[name]

    def _choices(self, variable: SearchVariable, count: int) -> list[Tiling]:
        """The choices beside the plan's that the rules leave, each once."""
        cuts, current = self._decided.cuts, self._current[variable.number]
        space = self._problem.spaces[variable.number]
        directions: list[Placement] = [*(Shard(dim) for dim in range(len(space.shape))), Replicate(), PARTIAL]
        uniform = [Tiling((placement,) * len(cuts), cuts) for placement in directions]
        single = [
            Tiling((*current.placements[:cut], placement, *current.placements[cut + 1 :]), cuts).settled
            for cut in range(len(cuts))
            for placement in directions
        ]
        choices = dict.fromkeys(filter(lambda tiling: self._may_be(variable, tiling), uniform))
        if len(choices) < count:
            choices.update(dict.fromkeys(filter(lambda tiling: self._may_be(variable, tiling), single)))
        return list(choices)

    def _may_be(self, variable: SearchVariable, tiling: Tiling) -> bool:
        if tiling == self._current[variable.number] or not self._problem.spaces[variable.number].can_be(tiling):
            return False
        if variable.op is not None and not self._problem.is_local(variable.op, tiling):
            return False
        return self._problem.lets_through(self._rules, variable, tiling)

    def _alone(self, number: int, tiling: Tiling) -> int:
        """What the plan costs with this choice, where no neighbour follows; too much where that is no plan."""
        return self._problem.cost((*self._current[:number], tiling, *self._current[number + 1 :]))

    def _runner_up(self, variable: SearchVariable, name: str, tiling: Tiling) -> RunnerUp:
        op, plan_cost = variable.op, self._decided.cost
        if op is None:
            choice = str(tiling)
            pin = f"{name}={_brief(tiling)}"
        else:
            choice, pin = str(OpStrategy(tiling, tuple(index_var.name for index_var in op.variables))), ""
        try:
            plan = self._solved(variable.number, tiling)
        except InfeasibleError as error:
            return RunnerUp(choice, pin, None, None, None, None, (), None, error.what)
        alike = set(variable.tensors) if op is None else {name, *self.shares("op", name)}
        return RunnerUp(
            choice,
            pin,
            plan.cost,
            plan.moved_bytes,
            plan.cost - plan_cost,
            (plan.cost - plan_cost) / plan_cost if plan_cost else None,
            tuple(member for member in self._differing(plan) if member not in alike),
            self._lacking(plan),
            "",
        )

    def _differing(self, near_plan: Decision) -> Iterator[str]:
        plan = self._decided
        yield from (name for name, tiling in near_plan.tilings.items() if tiling != plan.tilings[name])
        for name, strategy in near_plan.strategies.items():
            if strategy.tiling != plan.strategies[name].tiling and name not in near_plan.tilings:
                yield name

    def _lacking(self, plan: Decision) -> int | None:
        limits = self._request.limits
        if not limits:
            return None
        trial = Trial(plan, is_lean=True)
        return max(0, trial.lacking(limits))

    def _solved(self, number: int, tiling: Tiling) -> Decision:
        problem, cuts = self._problem, self._decided.cuts
        restrict = self._with(number, tiling)
        if len(cuts) == 1:
            solved = search_recursively(problem, cuts, restrict)
        else:
            start = (*self._current[:number], tiling, *self._current[number + 1 :])
            solved = improve(problem, cuts, restrict, Found(start, problem.cost(start), 1))
        if not problem.is_possible(solved.tilings):
            raise InfeasibleError("no plan near this one has it")
        return self._decided.with_values(problem, solved.tilings)

    def _with(self, number: int, tiling: Tiling) -> Restriction:
        """The rules, and this choice above them."""

        def restrict(variable: SearchVariable, options: Candidates) -> Candidates:
            if variable.number == number:
                return (tiling.outermost(len(options[0].ways)),)
            return self._rules(variable, options)

        return restrict


def _brief(tiling: Tiling) -> str:
    """A tiling as a pin is written: one placement where it is the same at every cut."""
    placements = set(tiling.placements)
    return str(placements.pop()) if len(placements) == 1 else str(tiling)
