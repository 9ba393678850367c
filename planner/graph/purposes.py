"""What memory is taken for in an iteration: finer than a tensor's role, and the same words wherever it is told."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from planner.graph.deliveries import is_delivery
from planner.graph.dependence import leading_to
from planner.graph.model import Graph, Role


class Purpose(enum.Enum):
    """What memory is taken for; in the order of a drawing, what stays longest at the bottom."""

    PARAMETERS = "parameters"
    """State that results are computed from."""
    OPTIMIZER_STATE = "optimizer state"
    """State that only updates need: momentum, running statistics."""
    CARRIED_STATE = "carried state"
    """State whose next value the forward pass makes: a cache of keys."""
    NEXT_STATE = "next state"
    """What replaces a state, where it is not written over it."""
    DATA = "data"
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    """What ops make that results are computed from."""
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
    """By tensor, what its memory is taken for. Of a graph without results all that ops make is activations."""
    results = [name for name in graph.outputs if graph.roles[name] is Role.RESULT]
    forward = leading_to(graph, results) if results else frozenset(graph.tensors)
    made_forward = {name for op in graph.ops if not forward.isdisjoint(op.outputs) for name in op.outputs}
    carried = {pair.current for pair in graph.state if results and pair.following in made_forward}
    delivered = {name for op in graph.ops if is_delivery(op) for name in op.outputs}

    def purpose(name: str, role: Role) -> Purpose:
        if name in delivered:
            return Purpose.FETCHED
        if role is Role.STATE:
            if name in carried:
                return Purpose.CARRIED_STATE
            return Purpose.PARAMETERS if name in forward else Purpose.OPTIMIZER_STATE
        if role is Role.ACTIVATION:
            return Purpose.ACTIVATIONS if name in forward else Purpose.GRADIENTS
        return _BY_ROLE[role]

    return {name: purpose(name, role) for name, role in graph.roles.items()}
