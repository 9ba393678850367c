"""Which inputs are state: pairs of an input and the output that replaces it after the step.

A flat training step, as frameworks export it, lists parameters among its inputs and the updated parameters among its
outputs, and nothing in the file says which belongs to which. ``infer_state`` reads it off the update itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UsageError
from planner.graph.check import check_graph
from planner.graph.model import Graph, Op, StatePair

_LEAST: Final = 0.5
_MOST: Final = 1.0
_PASS: Final = frozenset({"Identity", "Cast", "Clip", "Min", "Max", "Sum", "Add"})


@dataclass(frozen=True, slots=True)
class _Term:
    """How an output reads an input."""

    coefficient: float | None
    """Its factor, of the strongest path; None if it is not a constant."""
    private: bool
    """Whether nothing but this output's update reads the input."""

    @property
    def is_strong(self) -> bool:
        return self.coefficient is not None and _LEAST <= self.coefficient <= _MOST


def infer_state(graph: Graph) -> tuple[StatePair, ...]:
    """The states of a flat training step, from the form of their updates.

    An output is walked back through element-wise ops (Add, Sub, Neg, Sum, Mul, Div by a factor, Where, Min, Max,
    Clip, Identity) over tensors of its own shape and dtype. A graph input so reached is its candidate

    - if it enters with a constant factor between 0.5 and 1 (``W - lr * g``, ``0.9 * m + g``, ``W * (1 - lr * wd) -
      u``, where ``1 - x`` counts as 1): a next value is its old value, changed a little;
    - or, if there is none such, with any factor, if nothing else in the graph reads the input (a moment with a
      small decay).

    So the gradient of a weight that is decayed, ``g + 1e-4 * W``, has no candidate: the factor is small, and W is read
    forward as well. Pairs are settled one after the other: an output with one candidate left takes it from all
    others. Outputs with the same candidates, as many as those, pair in the order of the file; any other that
    is left stays unpaired.

    Nothing is paired unless the graph has a scalar result, the loss: ``x + f(x)`` in a forward model has the form of
    an update.

    Returns:
        Pairs in the order of the outputs; () for a graph without state.
    """
    positions = {op.name: index for index, op in enumerate(graph.ops)}
    candidates = {name: _candidates(graph, name, positions) for name in graph.outputs if name not in graph.inputs}
    tensors = graph.tensors
    if not any(
        tensors[name].elements == 1 and tensors[name].dtype.is_float and not found for name, found in candidates.items()
    ):
        return ()
    settled: dict[str, str] = {}
    while True:
        single = next((name for name, found in candidates.items() if name not in settled and len(found) == 1), None)
        if single is not None:
            group = [single]
        else:
            group = _equal_group(candidates, settled)
            if not group:
                break
        taken = candidates[group[0]]
        settled.update(zip(group, taken, strict=True))
        for name, found in candidates.items():
            if name not in settled:
                candidates[name] = tuple(candidate for candidate in found if candidate not in taken)
    return tuple(StatePair(settled[name], name) for name in graph.outputs if name in settled)


def _equal_group(candidates: Mapping[str, tuple[str, ...]], settled: Mapping[str, str]) -> list[str]:
    """Outputs, as many as candidates, whose candidates are the same."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, found in candidates.items():
        if name not in settled and found:
            groups.setdefault(found, []).append(name)
    return next((group for found, group in groups.items() if len(group) == len(found)), [])


def _candidates(graph: Graph, output: str, positions: Mapping[str, int]) -> tuple[str, ...]:
    """The inputs that an output may replace, in the order of the file."""
    terms = _terms(graph, output, positions)
    strong = {name for name, term in terms.items() if term.is_strong}
    chosen = strong or {name for name, term in terms.items() if term.private}
    return tuple(name for name in graph.inputs if name in chosen)


def _terms(graph: Graph, output: str, positions: Mapping[str, int]) -> dict[str, _Term]:
    """The inputs that an output reads through element-wise ops of its own shape and dtype, and how."""
    goal = graph.tensors[output]
    coefficients: dict[str, float | None] = {output: 1.0}
    walked: set[str] = set()
    leaves: dict[str, None] = {}
    pending: list[tuple[int, str]] = []

    def reach(name: str, coefficient: float | None) -> None:
        tensor = graph.tensors[name]
        if (tensor.shape, tensor.dtype) != (goal.shape, goal.dtype):
            return
        if name in coefficients:
            coefficients[name] = _stronger(coefficients[name], coefficient)
            return
        coefficients[name] = coefficient
        if name in graph.producer:
            heapq.heappush(pending, (-positions[graph.producer[name].name], name))
        else:
            leaves[name] = None

    if output in graph.producer:
        heapq.heappush(pending, (-positions[graph.producer[output].name], output))
    while pending:
        name = heapq.heappop(pending)[1]
        op = graph.producer[name]
        if op.domain or op.outputs != (name,):
            continue
        steps = _steps(graph, op)
        if steps:
            walked.add(op.name)
        for operand, factor in steps:
            before = coefficients[name]
            reach(operand, None if before is None or factor is None else before * factor)
    inputs = set(graph.inputs)
    return {
        name: _Term(coefficients[name], all(op.name in walked for op in graph.consumers[name]))
        for name in leaves
        if name in inputs
    }


def _stronger(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)


def _steps(graph: Graph, op: Op) -> list[tuple[str, float | None]]:
    """The operands through which a value passes an op, each with the factor that the op puts to it."""
    operands = [name for name in op.inputs if name]
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
        case (op_type, [first, *_]) if op_type in _PASS:
            return [(name, 1.0) for name in (operands if op_type in ("Add", "Sum", "Min", "Max") else [first])]
    return []


def _factor(graph: Graph, name: str) -> float | None:
    """The value of a constant of one element, 1 for what is computed as ``1 - x``, else None."""
    value = _scalar(graph, name)
    if value is not None or name not in graph.producer:
        return value
    op = graph.producer[name]
    is_complement = op.op_type == "Sub" and not op.domain and _scalar(graph, op.inputs[0]) == 1.0
    return 1.0 if is_complement and graph.tensors[name].elements == 1 else None


def _scalar(graph: Graph, name: str) -> float | None:
    array = graph.constants.get(name)
    return float(array.flat[0]) if array is not None and array.size == 1 else None


def with_state(graph: Graph, pairs: Sequence[tuple[str, str]]) -> Graph:
    """The graph with these (state, next state) pairs, and no others.

    Raises:
        UsageError: a name that is no input or output, a tensor in two pairs, or a pair of unequal shape or dtype.
    """
    facts: list[str] = []
    for kind, names, known in (
        ("an input", [current for current, _ in pairs], graph.inputs),
        ("an output", [following for _, following in pairs], graph.outputs),
    ):
        facts.extend(f"{name!r} is not {kind} of the model" for name in dict.fromkeys(names) if name not in known)
        facts.extend(f"{name!r} is in two pairs" for name in dict.fromkeys(names) if names.count(name) > 1)
    for current, following in pairs:
        if current not in graph.inputs or following not in graph.outputs:
            continue
        if following in graph.inputs:
            facts.append(f"{following!r} is an input itself, and no op makes it: let an Identity do so")
        left, right = graph.tensors[current], graph.tensors[following]
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            facts.append(
                f"{current!r} is {list(left.shape)} of {left.dtype.value}, "
                f"but {following!r} is {list(right.shape)} of {right.dtype.value}"
            )
    if facts:
        raise UsageError("these tensors cannot be paired as state and next state", facts=tuple(facts))
    paired = replace(graph, state=tuple(StatePair(current, following) for current, following in pairs))
    check_graph(paired)
    return paired
