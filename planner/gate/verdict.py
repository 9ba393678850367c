"""Whether a plan costs more than it did, and in which ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, TypeAlias

from planner.gate.baseline import ModelCosts, PlanCost, op_type_at
from planner.records import Positive
from planner.short_repr import ShortRepr

Quantity: TypeAlias = Literal["cost", "moved_bytes", "peak_bytes", "certified_gap"]
"""A compared quantity."""
_NO_GAP = 2e-6
"""Gaps are written with six digits; a smaller difference is none."""


@dataclass(frozen=True, slots=True)
class OpGrowth:
    """An op, or all ops at one place of the graph, that costs more than it did, or has other sizes."""

    told: ClassVar = "names op_type shapes baseline_shapes=shapes_before cost baseline_cost"

    names: tuple[str, ...]
    """The names in the model that is checked."""
    op_type: str
    shapes: str
    """The shapes of inputs and outputs."""
    shapes_before: str
    baseline_cost: int
    cost: int

    @property
    def growth(self) -> int:
        return self.cost - self.baseline_cost

    @property
    def is_resized(self) -> bool:
        return self.shapes != self.shapes_before


@dataclass(frozen=True, slots=True)
class Verdict:
    """A plan beside the baseline's."""

    told: ClassVar = "model workers passed=is_passed grew fell *now baseline ops"

    model: str
    workers: Positive
    baseline: PlanCost | None
    """None: the baseline has no such plan, and gets it now."""
    now: PlanCost
    grew: tuple[Quantity, ...]
    """The quantities of ``cost``, ``moved_bytes``, ``peak_bytes`` and ``certified_gap`` that grew more than is allowed.
    """
    fell: tuple[Quantity, ...]
    """The quantities that are less than the baseline says."""
    ops: tuple[OpGrowth, ...]
    """Ops that cost more than in the baseline, or whose sizes are others; what grew most comes first."""

    @property
    def is_passed(self) -> bool:
        return not self.grew


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(ShortRepr):
    """Every model on every number of workers."""

    schema_version: ClassVar = 2
    told: ClassVar = "baseline max_increase passed=is_passed updated=is_updated plans=verdicts"

    baseline: str
    """The file."""
    max_increase: Fraction
    """The share of the baseline's number by which a number may grow."""
    verdicts: tuple[Verdict, ...]
    is_updated: bool
    """Whether the baseline was written."""

    @property
    def is_passed(self) -> bool:
        """Whether nothing grew more than is allowed; a baseline that was just written is what is wanted."""
        return self.is_updated or all(verdict.is_passed for verdict in self.verdicts)


def judge(
    name: str,
    workers: int,
    model: ModelCosts,
    places: Mapping[str, Sequence[str]],
    after: PlanCost,
    before: ModelCosts | None,
    max_increase: Fraction,
) -> Verdict:
    """Compares a plan with the baseline's plan of a model of the same structure.

    Args:
        name: of the model.
        workers: of the plan.
        model: what is known of the model's ops.
        places: the names of the ops at each place of the graph.
        after: what the plan costs.
        before: what the baseline says; None if it says nothing.
        max_increase: how much more is allowed: of bytes as a share of the baseline's, of the gap in its own unit.
    """
    cost = None if before is None else before.plans.get(workers)
    if before is None or cost is None:
        return Verdict(name, workers, None, after, (), (), ())
    changes: dict[Quantity, int] = {
        "cost": _change(cost.cost, after.cost, max_increase),
        "moved_bytes": _change(cost.moved_bytes, after.moved_bytes, max_increase),
        "peak_bytes": _change(cost.peak_bytes, after.peak_bytes, max_increase),
        "certified_gap": _gap_change(cost.certified_gap, after.certified_gap, max_increase),
    }
    # Both models have the same places, as their structures are equal; an op that costs nothing has no entry in costs.
    ops = [
        OpGrowth(
            names=tuple(places[key]),
            op_type=op_type_at(key),
            shapes=form,
            shapes_before=before.ops.get(key, form),
            baseline_cost=cost.op_costs.get(key, 0),
            cost=after.op_costs.get(key, 0),
        )
        for key, form in model.ops.items()
    ]
    return Verdict(
        name,
        workers,
        cost,
        after,
        tuple(quantity for quantity, change in changes.items() if change > 0),
        tuple(quantity for quantity, change in changes.items() if change < 0),
        tuple(sorted((op for op in ops if op.growth > 0 or op.is_resized), key=lambda op: -op.growth)),
    )


def _change(before: int, after: int, allowed: Fraction) -> int:
    """1 if more was added than is allowed, -1 if it is less than before, else 0."""
    if after > before * (1 + allowed):
        return 1
    return -1 if after < before else 0


def _gap_change(before: float | None, after: float | None, allowed: Fraction) -> int:
    """The same of the gap; having none is worse than any."""
    if before is None or after is None:
        return (after is None) - (before is None)
    if after > before + float(allowed) + _NO_GAP:
        return 1
    return -1 if after < before - _NO_GAP else 0
