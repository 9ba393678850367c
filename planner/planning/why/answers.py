"""Answers to why: of one tensor or op of a plan after the other."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from planner.algebra.region import Region, index_space
from planner.artifacts.asked import Asked
from planner.cost.tables import CostTables
from planner.graph.core.model import qualified
from planner.planning.why.causes import tensor_reason
from planner.planning.why.deliveries import Deliveries
from planner.planning.why.near import NearPlan
from planner.reasons import RunnerUp, Subject, Why
from planner.search.decision import Decision
from planner.units import format_bytes, format_ratio


class Answers:
    """Answers on the tensors and ops of one plan; what all answers need is made once."""

    def __init__(self, decided: Decision, request: Asked, names: Collection[str], tables: CostTables) -> None:
        """Takes note of a plan.

        Args:
            decided: the plan.
            request: what it was asked for.
            names: tensors of the planned form, without bodies and deliveries.
            tables: of bytes, with the plan's rates.
        """
        self._decided, self._request, self._names, self._tables = decided, request, names, tables
        self.deliveries = Deliveries(decided, tables)

    @cached_property
    def neighbours(self) -> NearPlan:
        """Plans near the plan."""
        return NearPlan(self._decided, self._request, self._names, self._tables)

    def why(self, kind: Subject, name: str, runners_up: int = 3) -> Why:
        """The reason for a tensor's tiling or an op's strategy.

        Args:
            kind: which of the two it is.
            name: of a tensor that has a tiling, or of an op of the planned graph.
            runners_up: how many other choices are solved for; 0: none, which takes no search.
        """
        return self._of_tensor(name, runners_up) if kind == "tensor" else self._of_op(name, runners_up)

    def _of_tensor(self, name: str, count: int) -> Why:
        decided = self._decided
        tensor, tiling = decided.graph.tensors[name], decided.tilings[name]
        shape = index_space(tensor.shape)
        deliveries = tuple(map(self.deliveries.delivery, self.deliveries.by_tensor.get(name, ())))
        runners_up = self._runners_up("tensor", name, count)
        return Why(
            kind="tensor",
            name=name,
            about=tensor.dtype.value,
            role=decided.graph.roles[name],
            axes=tuple(str(dim) for dim in range(len(shape))),
            shape=shape,
            choice=str(tiling),
            tiles=tuple(tiling.boxes(shape)),
            deliveries=deliveries,
            moved_bytes=sum(delivery.moved_bytes for delivery in deliveries),
            excess_bytes=0,
            plan_cost_bytes=decided.cost,
            reason=tensor_reason(self.deliveries, name) + self._nearest(runners_up),
            runners_up=runners_up,
            remark=self._remark("tensor", name, count, runners_up),
            limit_bytes=min(self._request.limit_bytes, default=None),
        )

    def _of_op(self, name: str, count: int) -> Why:
        decided, deliveries = self._decided, self.deliveries
        op = next(bound for bound in decided.ops if bound.op.name == name)
        strategy = decided.strategies[name]
        ports = deliveries.by_op.get(name, ())
        port_deliveries = tuple(map(deliveries.delivery, ports))
        moved, excess = sum(delivery.moved_bytes for delivery in port_deliveries), deliveries.charge(op)
        # One reason, that of the delivery that moves most: a sentence for each would hide it.
        if moved:
            reason = max(port_deliveries, key=lambda delivery: delivery.moved_bytes).reason
        else:
            reason = "its inputs and outputs are where they are needed: no communication"
        if excess:
            repeated = "duplicated work" if deliveries.repeated(op) else "load imbalance"
            reason += f"; {repeated} costs {format_bytes(excess)}"
        runners_up = self._runners_up("op", name, count)
        return Why(
            kind="op",
            name=name,
            about=qualified(op.op.domain, op.op.op_type),
            role=None,
            axes=tuple(variable.name for variable in op.variables),
            shape=op.extents,
            choice=str(strategy),
            tiles=tuple(_of_variables(part, len(op.extents)) for part in op.ranges(strategy.tiling)),
            deliveries=port_deliveries,
            moved_bytes=moved,
            excess_bytes=excess,
            plan_cost_bytes=decided.cost,
            reason=reason + self._nearest(runners_up),
            runners_up=runners_up,
            remark=self._remark("op", name, count, runners_up),
            limit_bytes=min(self._request.limit_bytes, default=None),
        )

    def _runners_up(self, kind: Subject, name: str, count: int) -> tuple[RunnerUp, ...]:
        if count < 1 or self._decided.workers == 1:
            return ()
        return tuple(self.neighbours.runners_up(kind, name, count))

    def _nearest(self, runners_up: tuple[RunnerUp, ...]) -> str:
        """The nearest other choice, as the end of a sentence; "" of a plan for time, which bytes do not judge."""
        nearest = next((runner_up for runner_up in runners_up if runner_up.cost_bytes is not None), None)
        if self._request.for_time or nearest is None or nearest.more_bytes is None or nearest.more_share is None:
            return ""
        if nearest.lacking_bytes:
            return f"; as {nearest.choice} it does not fit"
        if nearest.more_bytes < 0:
            return f"; as {nearest.choice} a plan near this one costs {format_ratio(-nearest.more_share)} less"
        if not nearest.more_bytes:
            return f"; as {nearest.choice} the plan would cost no more"
        return f"; as {nearest.choice} the plan costs at most {format_ratio(nearest.more_share)} more"

    def _remark(self, kind: Subject, name: str, count: int, runners_up: tuple[RunnerUp, ...]) -> str:
        if count < 1:
            return ""
        if self._decided.workers == 1:
            return "one worker: nothing is split"
        remarks = []
        if not runners_up:
            remarks.append("no other choice: rules and sizes exclude the rest")
        alike = self.neighbours.shares(kind, name)
        if alike:
            shown = alike[0] + (f" and {len(alike) - 1} more" if len(alike) > 1 else "")
            remarks.append(f"{shown} {'has' if len(alike) == 1 else 'have'} the same choice")
        if runners_up and self._request.for_time:
            remarks.append("the plan minimizes time; these costs in bytes do not say which is faster")
        if runners_up and self._decided.strategy != "tofu":
            remarks.append("the plan is a strategy of the literature; tofu's search may improve on it")
        return "; ".join(remarks)


def _of_variables(part: Region, rank: int) -> Region:
    """A worker's part without the one step that an op takes which has no index variables."""
    return part if part.rank == rank else Region(part.lo[:rank], part.hi[:rank])
