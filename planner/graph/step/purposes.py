"""Purposes of memory in an iteration: finer than a tensor's role, and the same words wherever it is told."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace

from planner.errors import UsageError
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph, Role
from planner.graph.step.copies import copies_in
from planner.graph.step.deliveries import is_delivery
from planner.graph.step.passes import Passes, passes_of


class Purpose(enum.Enum):
    """The purpose of memory; in the order of a drawing, what stays longest at the bottom."""

    PARAMETERS = "parameters"
    """State that the forward pass reads."""
    OPTIMIZER_STATE = "optimizer state"
    """State that only updates need: momentum, running statistics."""
    CARRIED_STATE = "carried state"
    """State whose next value the forward pass makes: a cache of keys."""
    NEXT_STATE = "next state"
    """What replaces a state, where it is not written over it."""
    DATA = "data"
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    """What ops of the forward pass make."""
    AGAIN = "computed again"
    """Activations that are computed once more for the backward pass."""
    GRADIENTS = "gradients and updates"
    """What all other ops make."""
    RESULTS = "results"
    FETCHED = "fetched or partial"
    """Parts of tensors that were fetched for an op, and partial results that are not joined yet."""
    INSIDE = "inside of segments"
    """Tensors that only one segment sees: reserved throughout, as large as the largest segment needs."""
    GAPS = "gaps"
    """What the arena is larger than its buffers at their most, alignment included."""


_BY_ROLE: Mapping[Role, Purpose] = {
    Role.DATA: Purpose.DATA,
    Role.NEXT_STATE: Purpose.NEXT_STATE,
    Role.RESULT: Purpose.RESULTS,
    Role.CONSTANT: Purpose.CONSTANTS,
}


def purposes(graph: Graph) -> dict[str, Purpose]:
    """The purpose of each tensor's memory. Of a graph without results all that ops make is activations."""
    delivered, forward = _delivered(graph), passes_in(graph).forward
    read = {name for op in graph.ops if op.name in forward for name in op.inputs}
    read |= {delivered[name] for name in read & delivered.keys()}
    forward_outputs = {name for op in graph.ops if op.name in forward for name in op.outputs}
    has_results = Role.RESULT in graph.roles.values()
    carried = {pair.current for pair in graph.state if has_results and pair.following in forward_outputs}
    copies = copies_in(graph)

    def purpose(name: str, role: Role) -> Purpose:
        if name in delivered:
            return Purpose.FETCHED
        if role is Role.STATE:
            if name in carried:
                return Purpose.CARRIED_STATE
            return Purpose.PARAMETERS if name in read else Purpose.OPTIMIZER_STATE
        if role is Role.ACTIVATION:
            if name in copies:
                return Purpose.AGAIN
            return Purpose.ACTIVATIONS if name in forward_outputs else Purpose.GRADIENTS
        return _BY_ROLE[role]

    return {name: purpose(name, role) for name, role in graph.roles.items()}


def passes_in(graph: Graph) -> Passes:
    """The passes of a planned graph; where they cannot be told, what leads to results is the forward pass.

    Args:
        graph: with its shared deliveries, which are in neither pass.
    """
    delivered = _delivered(graph)

    def source(name: str) -> str:
        while name in delivered:
            name = delivered[name]
        return name

    ops = [op for op in graph.ops if not is_delivery(op)]
    plain = replace(graph, ops=tuple(replace(op, inputs=tuple(map(source, op.inputs))) for op in ops))
    try:
        return passes_of(plain)
    except UsageError:
        results = [name for name in graph.outputs if graph.roles[name] is Role.RESULT]
        forward = frozenset(op.name for op in (live_ops(plain.ops, results) if results else ops))
        return Passes(forward, frozenset(op.name for op in ops) - forward)


def _delivered(graph: Graph) -> dict[str, str]:
    """By tensor that a shared delivery makes, what it delivers."""
    return {name: op.inputs[0] for op in graph.ops if is_delivery(op) for name in op.outputs}
