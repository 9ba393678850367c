"""Two plans of one graph: the parts in which they differ, and the one with parts of the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.by_op import op_cost
from planner.cost.tables import CostTables
from planner.search.decided import Decided
from planner.search.memory.limit import Part, components
from planner.tdl.bind import BoundOp

Strategies: TypeAlias = Mapping[str, OpStrategy]
Tilings: TypeAlias = Mapping[str, Tiling]


def exchanged(over: Decided, under: Decided, names: set[str]) -> Decided:
    """The first plan, with the tilings and strategies of these tensors and ops from the second."""
    one, other = over, under
    return replace(
        one,
        tilings={
            name: other.tilings[name] if _tensor(name) in names else tiling for name, tiling in one.tilings.items()
        },
        strategies={
            name: other.strategies[name] if _op(name) in names else strategy
            for name, strategy in one.strategies.items()
        },
        unsplit=tuple(
            name for name in one.strategies if name in (other.unsplit if _op(name) in names else one.unsplit)
        ),
    )


def _tensor(name: str) -> str:
    """Tensors and ops may have one name: their variables have not."""
    return f"tensor {name}"


def _op(name: str) -> str:
    return f"op {name}"


def parts_of(over: Decided, under: Decided, tables: CostTables, priced: CostTables) -> tuple[Part[str], ...]:
    """Where two plans of one graph differ, what each part costs, and what it saves."""
    graph = over.graph
    one, other = over, under
    differing = [_tensor(name) for name, tiling in one.tilings.items() if tiling != other.tilings[name]]
    differing += [_op(name) for name, strategy in one.strategies.items() if strategy != other.strategies[name]]
    links = [
        (_op(op.name), _tensor(name))
        for op in graph.ops
        for name in (*op.inputs, *op.outputs)
        if name and name not in graph.constants
    ]
    # A state comes back in the tiling in which it went in.
    links += [(_tensor(pair.current), _tensor(pair.following)) for pair in graph.state]
    touching: dict[str, list[BoundOp]] = {}
    for op in over.ops:
        for name in dict.fromkeys((_op(op.op.name), *map(_tensor, (*op.op.inputs, *op.op.outputs)))):
            touching.setdefault(name, []).append(op)

    tensors = {_tensor(name): name for name in one.tilings}
    ops = {_op(name): name for name in one.strategies}

    def parts() -> Iterator[Part[str]]:
        for part in components(differing, links):
            changed = (
                {ops[name]: other.strategies[ops[name]] for name in part if name in ops},
                {tensors[name]: other.tilings[tensors[name]] for name in part if name in tensors},
            )
            touched = {op.op.name: op for name in part for op in touching.get(name, ())}.values()
            more = sum(_more(one, changed, op, tables) for op in touched)
            charged = sum(_more(one, changed, op, priced) for op in touched)
            yield Part(part, more, more - charged)

    return tuple(parts())


def _more(plan: Decided, changed: tuple[Strategies, Tilings], op: BoundOp, tables: CostTables) -> int:
    """By how much more an op costs with some strategies and tilings changed."""
    name, (strategies, tilings) = op.op.name, changed
    near = [one for one in dict.fromkeys((*op.op.inputs, *op.op.outputs)) if one in plan.tilings]
    kept = op_cost(plan.graph, op, plan.strategies, plan.tilings, tables)
    own = {name: strategies.get(name, plan.strategies[name])}
    return op_cost(plan.graph, op, own, {one: tilings.get(one, plan.tilings[one]) for one in near}, tables) - kept
