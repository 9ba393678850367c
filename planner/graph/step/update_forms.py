"""Inputs that an output may be the next value of, by the form of its update alone.

An output is walked back through the ops that an update is made of, over tensors of its own shape and dtype; see
``candidates``. ``roles`` settles which candidate it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from planner.graph.core.attributes import number
from planner.graph.core.model import Graph
from planner.graph.core.traits import STATISTICS

_LEAST: Final = 0.5
_MOST: Final = 2.0


@dataclass(frozen=True, slots=True)
class Term:
    """The reading of an input by an output."""

    factor: float | None
    """Its factor, of the strongest path; None if it is not a constant."""
    is_private: bool
    """Whether nothing but this output's update reads the input."""

    @property
    def is_strong(self) -> bool:
        """Whether most of the input is kept: a next value is its old value, changed a little."""
        return self.factor is not None and _LEAST <= self.factor <= _MOST

    @property
    def is_little(self) -> bool:
        """Whether little of the input is kept, as of the weight in a gradient that is decayed."""
        return self.factor is not None and not self.is_strong and not self.is_private

    @property
    def is_weak(self) -> bool:
        """Whether it may be a moment with a small decay: nothing else reads it, and its sign is kept."""
        return self.is_private and (self.factor is None or 0 < self.factor <= _MOST)


def candidates(graph: Graph, output: str, positions: Mapping[str, int], stops: Collection[str] = ()) -> dict[str, Term]:
    """The inputs that an output may replace, in the order of the file, and how it reads each.

    The walk goes through Add, Sub, Neg, Sum, Mul and Div by a factor, Where, Min, Max, Clip, Cast, Identity, scatters
    into a tensor and running statistics. A graph input so reached is a candidate

    - if it enters with a constant factor between 0.5 and 2 (``W - lr * g``, ``0.9 * m + g``, ``W * (1 - lr * wd) -
      u``, where ``1 - x`` counts as 1; a loss scale that doubles);
    - or, if there is none such, with any factor up to 2 that is not known to be negative, if nothing else in the graph
      reads the input (a moment with a small decay).

    Args:
        graph: the flat step.
        output: one of its outputs.
        positions: index of each op in the order of execution, by name.
        stops: tensors through which the walk does not go, nor does it look at them.
    """
    terms = every_term(graph, output, positions, stops)
    chosen = {name: term for name, term in terms.items() if term.is_strong}
    if not chosen:
        chosen = {name: term for name, term in terms.items() if term.is_weak}
    return {name: chosen[name] for name in graph.inputs if name in chosen}


def every_term(graph: Graph, output: str, positions: Mapping[str, int], stops: Collection[str] = ()) -> dict[str, Term]:
    """The inputs that an output reads through the ops of an update, over its own shape and dtype."""
    goal = graph.tensors[output]
    factors: dict[str, float | None] = {output: 1.0}
    walked: set[str] = set()
    leaves: dict[str, None] = {}
    pending: list[tuple[int, str]] = []

    def reach(name: str, factor: float | None) -> None:
        tensor = graph.tensors[name]
        if tensor.kind != goal.kind or name in stops:
            return
        if name in factors:
            factors[name] = _stronger(factors[name], factor)
            return
        factors[name] = factor
        if name in graph.producer:
            heapq.heappush(pending, (-positions[graph.producer[name].name], name))
        else:
            leaves[name] = None

    if output in graph.producer:
        heapq.heappush(pending, (-positions[graph.producer[output].name], output))
    # The last op first: when a tensor comes, all its readers have, and its factor is settled.
    while pending:
        name = heapq.heappop(pending)[1]
        operands = steps(graph, name)
        if operands:
            walked.add(graph.producer[name].name)
        for operand, factor in operands:
            before = factors[name]
            reach(operand, None if before is None or factor is None else before * factor)
    inputs = set(graph.inputs)
    return {
        name: Term(factors[name], all(op.name in walked for op in graph.consumers[name]))
        for name in leaves
        if name in inputs
    }


def _stronger(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second, key=lambda factor: (abs(factor - 1.0), factor))


def steps(graph: Graph, output: str) -> list[tuple[str, float | None]]:
    """The operands through which a value passes the op of an update that makes an output, each with its factor."""
    op = graph.made_by(output)
    if op is None or op.domain:
        return []
    operands = [name for name in op.inputs if name]
    slot = STATISTICS.get(op.op_type, {}).get(op.outputs.index(output))
    if slot is not None:
        return [(op.inputs[slot], number(op, "momentum", 0.9))]
    if op.outputs != (output,):
        return []
    match op.op_type, operands:
        case ("Sub", [left, right]):
            return [(left, 1.0), (right, -1.0)]
        case ("Neg", [operand]):
            return [(operand, -1.0)]
        case ("Where", [_, left, right]):
            return [(left, 1.0), (right, 1.0)]
        case ("Mul", [left, right]):
            return [(left, _factor(graph, right)), (right, _factor(graph, left))]
        case ("Div", [left, right]):
            divisor = _factor(graph, right)
            return [(left, 1.0 / divisor if divisor else None)]
        case ("Min" | "Max" | "Sum" | "Add", _):
            return [(name, 1.0) for name in operands]
        case ("Identity" | "Cast" | "Clip" | "ScatterElements" | "ScatterND", [first, *_]):
            # It hands on its first operand, all of it or all but a few elements.
            return [(first, 1.0)]
    return []


def _factor(graph: Graph, name: str) -> float | None:
    """The value of a constant of one element, 1 for what is computed as ``1 - x``, else None.

    Where x is a factor itself, ``x m + (1 - x) v`` is an average, and neither factor is known.
    """
    value = _scalar(graph, name)
    if value is not None:
        return value
    op = graph.made_by(name, "Sub")
    if op is None or _scalar(graph, op.inputs[0]) != 1.0 or graph.tensors[name].elements != 1:
        return None
    return None if any(reader.op_type == "Mul" for reader in graph.consumers[op.inputs[1]]) else 1.0


def _scalar(graph: Graph, name: str) -> float | None:
    array = graph.constants.get(name)
    return float(array.flat[0]) if array is not None and array.size == 1 else None
