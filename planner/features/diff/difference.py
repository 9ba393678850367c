"""Differences of two plans: of one model, or of two versions of a model.

Every tensor and op of the one plan is held against its counterpart in the other
(``planner.graph.compare.counterparts``). What is in bodies of composite ops, and shared deliveries, follows the op or
tensor of the model that it belongs to. Equal differences of tensors and ops whose names differ in numbers alone are
folded into one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

from planner.artifacts.plan import Plan
from planner.cost.by_op import op_charge
from planner.cost.tables import CostTables
from planner.graph.compare.counterparts import Counterparts
from planner.graph.core.model import Graph, Shape, qualified
from planner.graph.core.patterns import without_numbers
from planner.graph.decompositions import expand, planned_graph
from planner.graph.step.deliveries import with_deliveries
from planner.records import Positive, Signed
from planner.short_repr import ShortRepr
from planner.tdl.descriptions import Descriptions


@dataclass(frozen=True, slots=True)
class TensorSide:
    """A tensor in one of the plans."""

    role: str
    shape: Shape
    tiling: str | None
    """None where the plan gives it none: it is a constant, or another tensor is read in its place."""
    moved_bytes: int
    """The bytes that move because of it, per iteration, over all workers."""

    @property
    def amount(self) -> int:
        return self.moved_bytes


@dataclass(frozen=True, slots=True)
class OpSide:
    """An op in one of the plans."""

    op_type: str
    strategy: str
    excess_bytes: int | None
    """The penalty of its repeated and uneven work; None where that is not known."""

    @property
    def amount(self) -> int:
        return self.excess_bytes or 0


Side = TypeVar("Side", TensorSide, OpSide)
AnyChange = TypeVar("AnyChange", bound="TensorChange | OpChange")


@dataclass(frozen=True, slots=True)
class Total:
    """The sum over several tensors or ops: moved bytes, or penalty."""

    a: int
    """The amount in the first plan."""
    b: int
    """The amount in the second plan."""
    added: Signed
    """The amount in the second plan beyond that in the first."""


@dataclass(frozen=True, slots=True)
class Change(Generic[Side]):
    """One difference, which several tensors or ops may have in common."""

    names: tuple[tuple[str | None, str | None], ...]
    """The names of the tensors or ops that have it, in both plans; None where the plan has nothing like it."""
    a: Side | None
    """Each of them in the first plan; None: they are in the second only."""
    b: Side | None
    """Each of them in the second plan."""

    @property
    def count(self) -> Positive:
        return len(self.names)

    @property
    def a_bytes(self) -> int:
        """The bytes of all of them in the first plan: moved, or of excess."""
        return self.count * (0 if self.a is None else self.a.amount)

    @property
    def b_bytes(self) -> int:
        """The bytes of all of them in the second plan."""
        return self.count * (0 if self.b is None else self.b.amount)

    @property
    def added_bytes(self) -> int:
        """The bytes in the second plan beyond those in the first."""
        return self.b_bytes - self.a_bytes

    @property
    def only_in(self) -> Literal["a", "b"] | None:
        """The only plan that has them; None if both have."""
        if self.b is None:
            return "a"
        return "b" if self.a is None else None

    @property
    def total(self) -> Total:
        """The sum of all of them."""
        return Total(self.a_bytes, self.b_bytes, self.added_bytes)


@dataclass(frozen=True, slots=True)
class TensorChange(Change[TensorSide]):
    """A difference that tensors have."""

    told: ClassVar = "names count a b total_moved_bytes=total"


@dataclass(frozen=True, slots=True)
class OpChange(Change[OpSide]):
    """A difference that ops have."""

    told: ClassVar = "names count a b total_excess_bytes=total_if_known?"

    @property
    def total_if_known(self) -> Total | None:
        """``total``; None where the penalty of ops is not known."""
        is_known = all(side is None or side.excess_bytes is not None for side in (self.a, self.b))
        return self.total if is_known else None


@dataclass(frozen=True, slots=True)
class ComparedPlan:
    """A plan of the two, in brief."""

    told: ClassVar = (
        "plan=path plan.model plan.model_digest plan.workers plan.cuts plan.strategy plan.estimate.topology plan.cost "
        "plan.moved_bytes plan.excess_bytes peak_bytes plan.estimate.estimated_seconds plan.certified_gap plan.gap_of"
    )

    path: Path
    """The plan's folder."""
    plan: Plan

    @property
    def peak_bytes(self) -> int:
        """The memory of the worker that needs the most."""
        return max(self.plan.peak_bytes)


@dataclass(frozen=True, slots=True, repr=False)
class Difference(ShortRepr):
    """Two plans, side by side."""

    schema_version: ClassVar = 1
    told: ClassVar = "a b matched_by compared_tensors compared_ops tensors ops"

    paths: tuple[Path, Path]
    plans: tuple[Plan, Plan]
    matched_by: Literal["names", "places", "surroundings"]
    """See ``Counterparts.by``."""
    tensors: tuple[TensorChange, ...]
    """What differs most comes first."""
    ops: tuple[OpChange, ...]
    compared_tensors: int
    """Tensors that both plans have."""
    compared_ops: int
    knows_excess: bool
    """Whether the penalty of ops is known; it is not where they are described by a file that was not given."""

    @property
    def a(self) -> ComparedPlan:
        return ComparedPlan(self.paths[0], self.plans[0])

    @property
    def b(self) -> ComparedPlan:
        return ComparedPlan(self.paths[1], self.plans[1])

    @property
    def is_none(self) -> bool:
        """Whether nothing differs: no tiling, no strategy, no size."""
        return not self.tensors and not self.ops


class PlannedModel:
    """A plan with the graphs that it is of."""

    def __init__(self, path: Path, plan: Plan, model: Graph, form: Graph) -> None:
        """Makes the planned graph.

        Args:
            path: where it was read.
            plan: of the model.
            model: as it was ingested.
            form: its canonical form.

        Raises:
            ModelError: a delivery is read by nobody.
        """
        self.path, self.plan, self.model = path, plan, model
        self.graph = with_deliveries(planned_graph(form, plan.strategies, plan.workers), plan.deliveries)
        unplanned = frozenset(op.name for op in form.ops if op.name not in plan.strategies)
        bodies = expand(form, unplanned, workers=plan.workers).bodies
        self.in_parts = tuple(body.op.name for body in bodies)
        """Names of the ops that are planned through their bodies."""
        self._types = {op.name: qualified(op.domain, op.op_type) for op in (*model.ops, *self.graph.ops)}
        self.belongs_to: dict[str, tuple[str, str | int]] = {}
        """What is no part of the model: to which op it belongs as which part of its body, or to which tensor as which
        of its deliveries."""
        for body in bodies:
            for name in (*(op.name for op in body.ops), *body.tensors):
                self.belongs_to[name] = body.op.name, name.removeprefix(body.op.name)
        self._deliveries = frozenset(delivery.name for delivery in plan.deliveries)
        count_of: dict[str, int] = {}
        for delivery in plan.deliveries:
            self.belongs_to[delivery.name] = delivery.tensor, count_of.setdefault(delivery.tensor, 0)
            count_of[delivery.tensor] += 1

    @cached_property
    def parts(self) -> Mapping[tuple[str, str | int], str]:
        """The inverse of ``belongs_to``."""
        return {place: name for name, place in self.belongs_to.items()}

    @property
    def tensor_names(self) -> list[str]:
        """The names of all tensors that the plan gives a tiling, in the order of the graph."""
        return [name for name in self.graph.tensors if name in self.plan.tilings]

    @property
    def op_names(self) -> list[str]:
        """The names of all ops that the plan gives a strategy, and of those that it has bodies for."""
        return [*(op.name for op in self.graph.ops if op.name in self.plan.strategies), *self.in_parts]

    def tensor(self, name: str | None) -> TensorSide | None:
        """The plan's treatment of a tensor; None if it has none of that name."""
        if name is None:
            return None
        if name in self.plan.tilings and name in self.graph.tensors:
            role = "delivery" if name in self._deliveries else self.graph.roles[name].value
            moved = self.plan.tensor_bytes[name]
            return TensorSide(role, self.graph.tensors[name].shape, str(self.plan.tilings[name]), moved)
        if name in self.model.tensors:
            role = self.model.roles[name].value
            return TensorSide(role, self.model.tensors[name].shape, None, 0)
        return None

    def op(self, name: str | None, excess: Mapping[str, int] | None) -> OpSide | None:
        """The plan's treatment of an op; None if it has none of that name.

        Args:
            name: of the op.
            excess: of every op; None where it is not known.
        """
        if name is None or name not in self._types:
            return None
        if name in self.plan.strategies:
            return OpSide(self._types[name], str(self.plan.strategies[name]), None if excess is None else excess[name])
        strategy = "through its body" if name in self.in_parts else "read in place"
        return OpSide(self._types[name], strategy, None if excess is None else 0)

    def excess(self, descriptions: Descriptions) -> Mapping[str, int] | None:
        """The price of the repeated and uneven work of each op, in bytes; None where it does not add up to the plan's.

        Args:
            descriptions: that the plan was made with; with others, it does not add up.
        """
        tables = CostTables(self.plan.rates)
        charges = {
            bound.op.name: op_charge(bound, self.plan.strategies[bound.op.name].tiling, tables)
            for bound in descriptions.bind_all(self.graph)
        }
        return charges if sum(charges.values()) == self.plan.excess_bytes else None


def difference(
    first: PlannedModel,
    second: PlannedModel,
    counterparts: Counterparts,
    excess: tuple[Mapping[str, int] | None, Mapping[str, int] | None],
) -> Difference:
    """Holds two plans against each other.

    Args:
        first: a plan.
        second: another one.
        counterparts: which ops and tensors of their models are the same.
        excess: of the ops of both, see ``PlannedModel.excess``.
    """
    is_known = excess[0] is not None and excess[1] is not None
    by_op = excess if is_known else (None, None)
    tensors = list(_pairs(first, second, counterparts, counterparts.tensors, first.tensor_names, second.tensor_names))
    ops = list(_pairs(first, second, counterparts, counterparts.ops, first.op_names, second.op_names))
    return Difference(
        paths=(first.path, second.path),
        plans=(first.plan, second.plan),
        matched_by=counterparts.by,
        tensors=_folded(TensorChange, ((pair, first.tensor(pair[0]), second.tensor(pair[1])) for pair in tensors)),
        ops=_folded(OpChange, ((pair, first.op(pair[0], by_op[0]), second.op(pair[1], by_op[1])) for pair in ops)),
        compared_tensors=sum(None not in pair for pair in tensors),
        compared_ops=sum(None not in pair for pair in ops),
        knows_excess=is_known,
    )


def _pairs(
    first: PlannedModel,
    second: PlannedModel,
    counterparts: Counterparts,
    twins: Mapping[str, str],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> Iterator[tuple[str | None, str | None]]:
    """Every name of the first plan with its counterpart, and every other name of the second."""
    back = {twin: name for name, twin in twins.items()}
    model_twins = {**counterparts.tensors, **counterparts.ops}
    model_back = {twin: name for name, twin in model_twins.items()}
    met = set()
    for name in ours:
        twin = _twin(name, first, second, twins, model_twins)
        met.add(twin)
        yield name, twin
    for name in theirs:
        if name not in met:
            yield _twin(name, second, first, back, model_back), name


def _twin(
    name: str, source: PlannedModel, target: PlannedModel, twins: Mapping[str, str], model_twins: Mapping[str, str]
) -> str | None:
    """The counterpart of a tensor or an op of a plan.

    Args:
        name: of it.
        source: its plan.
        target: the other plan.
        twins: the counterparts of what is of its kind in the model.
        model_twins: those of all tensors and ops of the model.
    """
    place = source.belongs_to.get(name)
    if place is None:
        return twins.get(name)
    owner, part = place
    whose = _twin(owner, source, target, model_twins, model_twins)
    return None if whose is None else target.parts.get((whose, part))


_Compared: TypeAlias = "tuple[tuple[str | None, str | None], Side | None, Side | None]"


def _folded(kind: Callable[..., AnyChange], pairs: Iterable[_Compared[Side]]) -> tuple[AnyChange, ...]:
    """What differs, equal differences together; most bytes of difference first, then as they come."""
    groups: dict[Hashable, list[_Compared[Side]]] = {}
    for names, a, b in pairs:
        if a != b:
            groups.setdefault((_kind(names), a, b), []).append((names, a, b))
    changes = [kind(tuple(entry[0] for entry in group), group[0][1], group[0][2]) for group in groups.values()]
    return tuple(sorted(changes, key=lambda change: (-abs(change.added_bytes), -max(change.a_bytes, change.b_bytes))))


def _kind(names: tuple[str | None, str | None]) -> tuple[str | None, ...]:
    """Equal for names that differ in numbers alone."""
    return tuple(name and without_numbers(name) for name in names)
