"""A plan as the search decides it: how the tensors and ops of a graph are divided, the cost, and a bound of the cost.

A decision is a value. Another one is made from it: with other tilings (``with_tilings``, or ``with_values`` from the
values of a problem's variables), with the costs of other tables (``with_costs``), or with a bound (``with_bound``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import GapOf, OpStrategy, Partitioning
from planner.cost.by_op import op_charge, recomputing, requests_of
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph
from planner.search.model.problem import Problem
from planner.search.model.unsplit import unsplit
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, kw_only=True)
class Decision(Partitioning):
    """A plan of a graph, and the search that led to it; two are equal that divide all alike at the same cost."""

    graph: Graph = field(compare=False)
    """The planned graph: the model, with the bodies of those composite ops that are planned through them, and with the
    deliveries that readers share.
    """
    ops: tuple[BoundOp, ...] = field(compare=False)
    """The ops of that graph, in its order, with their descriptions."""
    lower: int | None = None
    """A lower bound of all plans of the search, in the unit of ``cost``, or of ``picoseconds`` if the search was for
    time; None if no bound was computed, or none that says anything.
    """
    picoseconds: int | None = None
    """The time of an iteration that the search's tables add up, of a search for the least time; None of others."""
    search_seconds: float = field(default=0.0, compare=False)
    """The time from the graph in memory to the decision."""
    table_entries: int = field(default=0, compare=False)
    """Entries of all tables."""
    largest_table: int = field(default=0, compare=False)
    """Entries of the largest bucket of an elimination."""
    eliminated_entries: int = field(default=0, compare=False)
    """Entries of all buckets that eliminations computed; equal buckets are computed once."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        ops: tuple[BoundOp, ...],
        tilings: Mapping[str, Tiling],
        strategies: Mapping[str, Tiling],
        tables: CostTables,
        *,
        cuts: tuple[int, ...],
        strategy: str = "tofu",
        unsplit: Collection[str] = (),
    ) -> Decision:
        """A plan of a graph, without a bound.

        Args:
            graph: the graph.
            ops: its ops with their descriptions.
            tilings: by tensor.
            strategies: by op, the tiling of its iteration space.
            tables: to count with.
            cuts: the ways of each cut.
            strategy: the strategy that found it.
            unsplit: ops that could not be split.
        """
        undivided = cls(
            graph=graph, ops=ops, cuts=cuts, tilings={}, strategies={}, rates=tables.rates, strategy=strategy,
            tensor_bytes={}, moved_bytes=0, computing_bytes=0, excess_bytes=0, repeated_bytes=0, unsplit=(),
        )  # fmt: skip
        op_strategies: dict[tuple[int, int], OpStrategy] = {}
        by_name = {}
        for bound in ops:
            tiling = strategies[bound.op.name]
            key = (id(bound.analysis), id(tiling))  # equal ops of a large graph share their strategies
            if key not in op_strategies:
                op_strategies[key] = OpStrategy(tiling, tuple(variable.name for variable in bound.variables))
            by_name[bound.op.name] = op_strategies[key]
        return undivided.with_tilings(tilings, by_name, tables, unsplit=unsplit)

    @property
    def certified_gap(self) -> float | None:
        """The optimality gap: how far the plan is above ``lower``, as a share of that (0.01 = 1%)."""
        cost = self.cost if self.picoseconds is None else self.picoseconds
        return None if self.lower is None else cost / self.lower - 1 if cost else 0.0

    @property
    def gap_of(self) -> GapOf:
        """The quantity that the gap is a share of."""
        return "bytes" if self.picoseconds is None else "time"

    def with_bound(self, lower: int | None) -> Decision:
        """This plan with a lower bound of all plans of a search, in the unit of its cost; None: as it is.

        Without a bound where it costs less, and so was none of those plans: one kernel can have less excess than the
        ops of its body. Nor has it one of 0, above which it would be by no share.
        """
        if lower is None:
            return self
        says_nothing = lower > self.cost or lower <= 0 < self.cost
        return replace(self, lower=None if says_nothing else lower, picoseconds=None)

    def with_costs(self, tables: CostTables) -> Decision:
        """This plan with its costs by other tables, without a bound."""
        moved = dict.fromkeys(self.tilings, 0)
        of_op = (requests_of(self.graph, op, self.strategies, self.tilings, tables) for op in self.ops)
        requests = list(chain.from_iterable(of_op))
        for request, table in zip(requests, tables.bytes_of(requests), strict=True):
            moved[request.tensor.name] += int(table[0, 0])
        excess = repeated = computing = 0
        for op in self.ops:
            computing += tables.computing(op)
            strategy = self.strategies[op.op.name].tiling
            if charge := op_charge(op, strategy, tables):
                excess += charge
                repeated += tables.repeated(op, strategy)
        again = recomputing(self.graph, self.ops, tables)
        return replace(
            self,
            tensor_bytes=moved,
            moved_bytes=sum(moved.values()),
            computing_bytes=computing - again,
            excess_bytes=excess + again,
            repeated_bytes=repeated + again,
            lower=None,
            picoseconds=None,
        )

    def with_tilings(
        self,
        tilings: Mapping[str, Tiling],
        strategies: Mapping[str, OpStrategy],
        tables: CostTables | None,
        *,
        unsplit: Collection[str] | None = None,
        **form: Any,
    ) -> Decision:
        """The plan with other tilings, without a bound.

        Args:
            tilings: by tensor; of more tensors than the graph has, too.
            strategies: by op; of more ops than the graph has, too.
            tables: to count with; None: the costs stay what they are.
            unsplit: ops that could not be split; None: those of this plan.
            form: ``graph``, ``ops`` and ``deliveries`` of the plan, where it is one of another graph.
        """
        stuck = self.unsplit if unsplit is None else unsplit
        plan = replace(self, lower=None, picoseconds=None, **form)
        graph = plan.graph
        plan = replace(
            plan,
            tilings={name: tilings[name] for name in graph.tensors if name not in graph.constants},
            strategies={op.name: strategies[op.name] for op in graph.ops},
            unsplit=tuple(op.name for op in graph.ops if op.name in stuck),
        )
        return plan if tables is None else plan.with_costs(tables)

    def with_values(self, problem: Problem, values: Sequence[Tiling]) -> Decision:
        """The plan in which the variables of a problem have these values, counted by its tables; without a bound.

        Ops that keep their strategies keep their steps. ``Problem.values_of`` is the way back.

        Args:
            problem: of the plan's graph, its ops in any order.
            values: by variable.
        """
        strategies = {}
        for name, strategy in self.strategies.items():
            tiling = values[problem.variable_of_op[name]]
            strategies[name] = strategy if tiling == strategy.tiling else replace(strategy, tiling=tiling, steps=None)
        stuck = unsplit(problem, values)
        return self.with_tilings(
            {name: values[number] for name, number in problem.variable_of_tensor.items()},
            strategies,
            problem.tables,
            unsplit={name for name in strategies if problem.variable_of_op[name] in stuck},
        )
