"""The columns of a strip: the products of the forward pass, with what each reads and what moves because of it.

Tofu's Figure 11 draws the weights and the activations that convolutions use. Here a column is an op that sums products
(a convolution, a matrix product) of the forward pass; with it go the products of the backward pass that read the same
tensors, which make the gradients of the two, and the ops that update the weights. What moves because of all of these is
told apart: what moves of weights, their gradients and next states, and what moves of everything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.artifacts.plan import Plan
from planner.cost.bounds import Bounds
from planner.cost.by_op import op_bytes
from planner.cost.contraction import RESULT
from planner.cost.seconds.estimate import synchronised
from planner.cost.tables import CostTables
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph, Role
from planner.tdl.bind import BoundOp
from planner.walk import walk

_LONGEST_WAY = 16
"""Ops between a state and the product that reads it: casts, transposes, scales."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A tensor as a picture has it."""

    name: str
    down: int | None
    """The dim that goes from top to bottom; None of a scalar."""
    across: int | None
    """The dim that goes from left to right; None of a vector."""


@dataclass(frozen=True, slots=True)
class Column:
    """A product of the forward pass."""

    op: str
    op_type: str
    strategy: str
    upper: Drawn | None
    """The weights; or the other operand, where the op has none."""
    lower: Drawn | None
    """The activation that it reads."""
    has_weights: bool
    upper_bytes: int
    """What moves of weights, their gradients and next states because of this product, those of its gradients and
    the update."""
    lower_bytes: int
    """What moves of everything else because of them."""

    @property
    def label(self) -> str:
        """By which blocks are named: the weights', or else the op's."""
        return self.upper.name if self.upper is not None and self.has_weights else self.op


def columns(
    graph: Graph, ops: Sequence[BoundOp], plan: Plan, products: Mapping[str, Bounds], tables: CostTables
) -> tuple[Column, ...]:
    """The columns of a plan, in the order of the graph.

    Args:
        graph: that the plan is of.
        ops: of the graph.
        plan: the plan.
        products: the ops that sum products (``products_of``).
        tables: to count with.
    """
    forward = forward_ops(graph)
    update = synchronised(graph, ops)
    bound_of = {bound.op.name: bound for bound in ops}
    of_state = _of_state(graph, ops)
    next_of = {pair.current: pair.following for pair in graph.state}
    row: list[Column] = []
    assigned: set[str] = set()
    for bound in ops:
        name = bound.op.name
        if name not in products or name not in forward:
            continue
        operands = _operands(bound, products[name])
        weights = next(
            (operand for operand in reversed(operands) if operand in of_state or operand in graph.constants), None
        )
        upper = operands[1] if weights is None else weights
        lower = next((operand for operand in operands if operand != upper), upper)
        column_ops = [bound]
        # The products of the backward pass read an operand of the one that they are the gradients of. Two products with
        # one operand find each other's: the first in the graph's order takes them, so that no byte counts twice.
        for tensor in operands:
            for reader in graph.consumers[tensor]:
                if reader.name in products and reader.name not in forward and reader.name not in assigned:
                    assigned.add(reader.name)
                    column_ops.append(bound_of[reader.name])
        if weights is not None and weights in of_state:
            following = next_of[of_state[weights]]
            column_ops += [bound_of[op] for op in _updating(graph, following, update, products) if op not in assigned]
            assigned.update(member.op.name for member in column_ops)
        above = below = 0
        for member in column_ops:
            for tensor, amount in op_bytes(graph, member, plan.strategies, plan.tilings, tables):
                if tensor == upper or tensor in update:
                    above += amount
                else:
                    below += amount
        is_window = "Conv" in bound.op.op_type
        row.append(
            Column(
                name,
                bound.op.op_type,
                str(plan.strategies[name]),
                _drawn(graph, plan, upper, is_window),
                _drawn(graph, plan, lower, is_window),
                weights is not None,
                above,
                below,
            )
        )
    return tuple(row)


def products_of(ops: Sequence[BoundOp]) -> Mapping[str, Bounds]:
    """The ops that sum products of two inputs, by name."""
    bounds_of_ops = ((bound.op.name, Bounds.of(bound)) for bound in ops)
    return {name: bounds for name, bounds in bounds_of_ops if bounds is not None}


def _operands(op: BoundOp, bounds: Bounds) -> list[str]:
    """The two inputs whose products are summed."""
    return [op.op.inputs[operand.position] for operand in bounds.contraction.operands[:RESULT]]


def forward_ops(graph: Graph) -> frozenset[str]:
    """The ops that a result needs; all of a graph that has none."""
    roles = graph.roles
    results = [name for name in graph.outputs if roles[name] is Role.RESULT]
    return frozenset(op.name for op in (live_ops(graph.ops, results) if results else graph.ops))


def _updating(graph: Graph, following: str, update: Collection[str], products: Collection[str]) -> list[str]:
    """The ops that make a next state, back to the product that makes the gradient."""

    def operands(name: str) -> Iterable[str]:
        op = graph.producer.get(name)
        return () if op is None or name not in update or op.name in products else filter(None, op.inputs)

    made = [name for name in walk([following], operands) if name in update and name in graph.producer]
    return list(dict.fromkeys(graph.producer[name].name for name in made))


def _of_state(graph: Graph, ops: Sequence[BoundOp]) -> Mapping[str, str]:
    """The state of each tensor that is one, or that ops which sum nothing make of one alone, by tensor."""
    roles = graph.roles
    state_of = {name: name for name in graph.inputs if roles[name] is Role.STATE}
    steps = dict.fromkeys(state_of, 0)
    for bound in ops:
        read = [name for name in bound.op.inputs if name and name not in graph.constants]
        alone = len(read) == 1 and read[0] in state_of and not bound.analysis.reduction_variables
        if alone and steps[read[0]] < _LONGEST_WAY:
            for name in filter(None, bound.op.outputs):
                state_of[name], steps[name] = state_of[read[0]], steps[read[0]] + 1
    return state_of


def _drawn(graph: Graph, plan: Plan, name: str, is_window: bool) -> Drawn | None:
    """A tensor that has tiles; of an image batch and channels are drawn, of others the first dim and the last."""
    if name not in plan.tilings:
        return None
    return drawn(name, len(graph.tensors[name].shape), is_window=is_window)


def drawn(name: str, rank: int, *, is_window: bool) -> Drawn:
    """Which two dims of a tensor a picture has.

    Args:
        name: of the tensor.
        rank: how many dims it has.
        is_window: it is an operand of a convolution, whose first dims are batch and channels.
    """
    if rank <= 1:
        return Drawn(name, 0 if rank else None, None)
    return Drawn(name, 0, 1 if is_window else rank - 1)
