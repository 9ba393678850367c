"""Plans near those that are known, for one set of tables after the other.

What a variable may be is what it is in a known plan, and what improvement would offer there
(``planner.search.moves.fusion``). Over so few candidates a whole graph is solved exactly, in a fraction of the time in
which a plan is found from nothing; and the candidates are the same for all tables, so that what is solved for one
bounds what is solved for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd, prod

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.region import index_space
from planner.algebra.tiling import UNCUT, Tiling
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError
from planner.graph.model import is_used
from planner.search.decided import Decided
from planner.search.effort import MOVE_ENTRIES
from planner.search.exact.choices import Choices
from planner.search.memory.branches import Charges, Ints, Spans, Variables
from planner.search.model.found import Found
from planner.search.model.problem import Problem, SearchVariable, no_restriction
from planner.search.model.unsplit import unsplit
from planner.search.moves.fusion import Neighbourhood
from planner.search.request import SearchRequest
from planner.search.user_rules.pins import ruled
from planner.tdl.bind import BoundOp


class Nearby:
    """What each variable of a graph may be near known plans."""

    def __init__(
        self,
        plans: Sequence[Decided],
        ask: SearchRequest,
    ) -> None:
        """Finds the candidates.

        Args:
            plans: of one graph, with the same cuts; at least one.
            ask: what they were asked for, with tables of what is to be small, without prices. Of the search's own
                plans, what improvement would offer to the first one is offered, too; near the others, of which there
                may be many, lie hardly any better plans. Of the literature's, nothing but what is in the plans.
        """
        self._graph, self._ops, self._like = plans[0].graph, plans[0].ops, plans[0]
        self._partitioned_inputs = ask.partitioned_inputs
        self._problem = self.problem(ask.tables)
        self._taken: dict[tuple[int, Tiling], int] = {}
        known = [self.tilings(plan) for plan in plans]
        lists = [dict.fromkeys(own) for own in zip(*known, strict=True)]
        self._known = [tuple(own) for own in lists]
        self._choices = [self._chosen(lists)]
        """The more candidates, the later."""
        if ask.strategy == "tofu":
            cuts = plans[0].cuts
            near = Neighbourhood(self._problem, cuts, ruled(self._problem, ask.rules, cuts, no_restriction))
            offered = near.of(Found(known[0], 0, 0), near.kinds)
            for number, own in enumerate(lists):
                own.update(dict.fromkeys(offered[number]))
            self._choices.append(self._chosen(lists))

    def problem(self, tables: CostTables) -> Problem:
        """The graph's variables, with tables."""
        workers = prod(self._like.cuts)
        return Problem(
            self._graph,
            self._ops,
            workers,
            self._partitioned_inputs,
            with_partial_sums=True,
            with_nests=True,
            tables=tables,
        )

    def tilings(self, plan: Decided) -> tuple[Tiling, ...]:
        """What each variable is in a plan."""
        return tuple(
            plan.tilings[variable.tensors[0]] if variable.op is None else plan.strategies[variable.op.op.name].tiling
            for variable in self._problem.variables
        )

    def plan(self, tilings: Sequence[Tiling]) -> Decided:
        """The plan in which each variable is this; it still has the bytes of another one.

        Args:
            tilings: by variable.
        """
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

    def total(self, tilings: Sequence[Tiling]) -> int:
        """What the plan costs, by the tables without prices."""
        return self._problem.cost(tilings)

    def taken(self, tilings: Sequence[Tiling]) -> Ints:
        """What each variable takes (``bytes_of``), by variable."""
        pairs = enumerate(tilings)
        return np.array([self.bytes_of(variable, tiling) for variable, tiling in pairs], dtype=np.int64)

    def variables(self) -> Variables:
        """What a search that divides plans asks about the variables; moments are ops, by number.

        Tensors have a price where each is a variable of its own.
        """
        problem, first, last = self._problem, *self._lives()
        kind, step = np.full_like(first, -1), np.ones_like(first)
        steps: dict[int, int] = {}
        for variable in problem.variables:
            if len(variable.tensors) == 1:
                content = problem.content[variable.number]
                if content not in steps:
                    steps[content] = self._step(variable)
                kind[variable.number], step[variable.number] = content, steps[content]
        return Variables(first, last, kind, step)

    def charges(self, by_variable: Charges) -> dict[str, Fraction]:
        """Prices of what variables take, by tensor."""
        return {self._problem.variables[number].tensors[0]: price for number, price in by_variable.items()}

    def _step(self, variable: SearchVariable) -> int:
        """What a tensor's tiles may take, whatever its tiling, differs by multiples of so many bytes."""
        every: Candidates = (UNCUT,)
        for ways in self._like.cuts:
            every = tuple(one for prefix in every for one in self._problem.proposals(variable, prefix, ways))
        content = self._problem.content[variable.number]
        known = {
            self.bytes_of(number, one)
            for number, own in enumerate(self._known)
            if self._problem.content[number] == content
            for one in own
        }
        sizes = sorted(known.union(self.bytes_of(variable.number, one) for one in every))
        return gcd(*(size - sizes[0] for size in sizes)) or 1

    def _lives(self) -> tuple[Ints, Ints]:
        """The first and the last op, by number, while which what a variable takes lies there, by variable."""
        problem = self._problem
        first = np.full(len(problem.variables), len(self._ops), dtype=np.int64)
        last = np.full(len(problem.variables), -1, dtype=np.int64)
        for number, bound in enumerate(self._ops):
            for name in (*bound.op.inputs, *bound.op.outputs):
                if name in problem.variable_of_tensor:
                    tensor = problem.variable_of_tensor[name]
                    first[tensor] = 0 if name in self._graph.inputs else min(first[tensor], number)
                    last[tensor] = len(self._ops) if name in self._graph.inputs else max(last[tensor], number)
        for number, bound in enumerate(self._ops):
            op = problem.variable_of_op[bound.op.name]
            made = [problem.variable_of_tensor[name] for name in bound.op.outputs if name in problem.variable_of_tensor]
            first[op] = min(first[op], number)
            last[op] = max(last[op], number, *(last[tensor] for tensor in made))
        return first, last

    def solve(self, tables: CostTables, spans: Spans) -> tuple[tuple[Tiling, ...], int] | None:
        """The best of these plans, and what the tables say of it; None if there is none.

        Args:
            tables: with prices.
            spans: bytes that variables may take.
        """
        problem = self.problem(tables)
        while True:
            within = self._within(self._choices[-1], spans)
            if within is None:
                return None
            try:
                tilings, solution = problem.solve(within, MOVE_ENTRIES)
            except InfeasibleError:  # too entangled: fewer candidates
                if len(self._choices) == 1:
                    return None
                self._choices.pop()
            else:
                return (tilings, solution.total) if problem.is_possible(tilings) else None

    def _chosen(self, lists: Sequence[Mapping[Tiling, None]]) -> Choices:
        return Choices.of([self._problem.intern(tuple(own)) for own in lists])

    def _within(self, choices: Choices, spans: Spans) -> Choices | None:
        if not spans:
            return choices
        lists: list[Candidates] = [choices[number] for number in range(len(choices))]
        for number, (least, most) in spans.items():
            kept = tuple(one for one in lists[number] if least <= self.bytes_of(number, one) <= most)
            if not kept:
                return None
            lists[number] = self._problem.intern(kept)
        return Choices.of(lists)

    def bytes_of(self, number: int, tiling: Tiling) -> int:
        """Bytes on all workers together: of a tensor's tiles, or of what an op reads and makes.

        Args:
            number: of the variable.
            tiling: what it is; of the outermost cuts alone, too.
        """
        key = (self._problem.content[number], tiling)
        found = self._taken.get(key)
        if found is None:
            bound = self._problem.variables[number].op
            found = self._tile_bytes(number, tiling) if bound is None else self._touched_bytes(bound, tiling)
            self._taken[key] = found
        return found

    def _tile_bytes(self, number: int, tiling: Tiling) -> int:
        tensor = self._graph.tensors[self._problem.variables[number].tensors[0]]
        return int(tiling.boxes(index_space(tensor.shape)).elements.sum()) * tensor.dtype.item_bytes

    def _touched_bytes(self, bound: BoundOp, tiling: Tiling) -> int:
        found = 0
        reads = bound.reads(bound.ranges(tiling))
        for slot, first in bound.delivered_slots.items():
            name = bound.op.inputs[slot]
            if slot == first and name not in self._graph.constants:
                found += int(reads[slot].boxes.elements.sum()) * self._graph.tensors[name].dtype.item_bytes
        for position, name in enumerate(bound.op.outputs):
            dims = bound.analysis.outputs[position]
            if name and is_used(self._graph, name) and dims is not None:
                tensor = self._graph.tensors[name]
                made = made_tiling(tiling, dims, bound.reducers(tiling), bound.analysis.steps_of(position))
                found += int(made.boxes(index_space(tensor.shape)).elements.sum()) * tensor.dtype.item_bytes
        return found
