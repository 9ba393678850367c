"""Mixing a plan that fits with a cheaper one that does not.

Prices of memory lead to the corners of a hull. Where the two plans differ in parts that have nothing to do with each
other, each part can be taken from either: so what lies between two corners is reached, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.by_op import op_cost
from planner.cost.tables import CostTables
from planner.search.decision import Decision
from planner.tdl.bind import BoundOp

Strategies: TypeAlias = Mapping[str, OpStrategy]
Tilings: TypeAlias = Mapping[str, Tiling]
Part: TypeAlias = tuple[tuple[str, ...], int, int]
"""Variables in which two plans differ; by how much more it costs to take them from the one that fits (parts add up,
since no table joins two of them); and how much less memory that takes, at the moments at which it has a price."""


def exchanged(over: Decision, under: Decision, names: set[str], tables: CostTables) -> Decision:
    """The first plan, with the tilings and strategies of these tensors and ops from the second.

    Args:
        over: the first plan.
        under: the second, of the same graph.
        names: of variables, as ``parts_of`` has them.
        tables: to count with.
    """
    tilings = {name: (under if _tensor(name) in names else over).tilings[name] for name in over.tilings}
    of_op = {name: under if _op(name) in names else over for name in over.strategies}
    strategies = {name: plan.strategies[name] for name, plan in of_op.items()}
    unsplit = {name for name, plan in of_op.items() if name in plan.unsplit}
    return over.with_tilings(tilings, strategies, tables, unsplit=unsplit)


def _tensor(name: str) -> str:
    """Tensors and ops may have one name: their variables have not."""
    return f"tensor {name}"


def _op(name: str) -> str:
    return f"op {name}"


def parts_of(over: Decision, under: Decision, tables: CostTables, priced: CostTables) -> tuple[Part, ...]:
    """The parts in which two plans of one graph differ, with the cost and the saving of each."""
    graph = over.graph
    differing = [_tensor(name) for name, tiling in over.tilings.items() if tiling != under.tilings[name]]
    differing += [_op(name) for name, strategy in over.strategies.items() if strategy != under.strategies[name]]
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

    tensors = {_tensor(name): name for name in over.tilings}
    ops = {_op(name): name for name in over.strategies}

    def parts() -> Iterator[Part]:
        for part in components(differing, links):
            changed = (
                {ops[name]: under.strategies[ops[name]] for name in part if name in ops},
                {tensors[name]: under.tilings[tensors[name]] for name in part if name in tensors},
            )
            touched = {op.op.name: op for name in part for op in touching.get(name, ())}.values()
            extra = sum(_extra_cost(over, changed, op, tables) for op in touched)
            charged = sum(_extra_cost(over, changed, op, priced) for op in touched)
            yield part, extra, extra - charged

    return tuple(parts())


def _extra_cost(plan: Decision, changed: tuple[Strategies, Tilings], op: BoundOp, tables: CostTables) -> int:
    """The extra cost of an op with some strategies and tilings changed."""
    op_name, (strategies, tilings) = op.op.name, changed
    near = [name for name in dict.fromkeys((*op.op.inputs, *op.op.outputs)) if name in plan.tilings]
    base = op_cost(plan.graph, op, plan.strategies, plan.tilings, tables)
    entry = {op_name: strategies.get(op_name, plan.strategies[op_name])}
    return op_cost(plan.graph, op, entry, {name: tilings.get(name, plan.tilings[name]) for name in near}, tables) - base


def components(differing: Iterable[str], links: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """The connected parts in which two plans differ.

    Args:
        differing: variables that have another value in each plan.
        links: pairs of variables that share a table.
    """
    group: dict[str, list[str]] = {variable: [variable] for variable in differing}
    for first, second in links:
        if first in group and second in group and group[first] is not group[second]:
            larger, smaller = sorted((group[first], group[second]), key=len, reverse=True)
            larger.extend(smaller)
            for member in smaller:
                group[member] = larger
    return tuple(tuple(part) for part in {id(part): part for part in group.values()}.values())


def mixed(parts: Sequence[Part], is_fitting: Callable[[set[str]], bool]) -> set[str]:
    """Variables to be taken from the plan that fits: those of the fewest of the cheapest parts with which it fits.

    Args:
        parts: all in which the two plans differ; with all of them taken, the plan fits.
        is_fitting: whether the plan that does not fit, with these variables taken from the one that does, fits. It need
            not agree with the order of the parts, so every plan that fits is a candidate.
    """

    def names_of(chosen: Sequence[Part]) -> set[str]:
        return {name for names, _, _ in chosen for name in names}

    ranked = sorted(parts, key=_rank)
    low, high = 0, len(ranked)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_fitting(names_of(ranked[:middle])) else (middle, high)
    return names_of(ranked[:high])


def _rank(part: Part) -> tuple[int, Fraction, int]:
    """The order in which parts are taken: those that save memory for nothing first, then by price."""
    _, extra, saved = part
    if saved <= 0:
        # It saves nothing as residence counts: taken last, and only because the program may see it otherwise.
        return 1, Fraction(extra), -saved
    return 0, Fraction(extra, saved), -saved
