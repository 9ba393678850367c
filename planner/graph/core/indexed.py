"""Indices among the values of tensors: the sizes of the dims that an op looks up by them."""

from __future__ import annotations

from typing import NamedTuple

from planner.graph.core.attributes import integer
from planner.graph.core.model import Graph, Op


class Lookup(NamedTuple):
    """The use of an operand's values as indices."""

    sizes: tuple[int, ...]
    """The sizes of the dims that the values index."""
    is_by_class: bool = False
    """The values are labels; an ignored label, or another one that is no class, counts for nothing."""


def lookup_of(graph: Graph, op: Op, slot: int) -> Lookup | None:
    """The lookup that an op makes by the values of an operand; None where they are no indices."""
    if op.domain or not op.has_input(0):
        return None
    shape = graph.tensors[op.inputs[0]].shape
    match op.op_type, slot:
        case "Gather" | "GatherElements" | "ScatterElements", 1:
            return Lookup((shape[integer(op, "axis", 0)],))
        case "GatherND" | "ScatterND", 1:
            batch, places = integer(op, "batch_dims", 0), graph.tensors[op.inputs[1]].shape[-1]
            return Lookup(shape[batch : batch + places]) if places else None
        case "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss", 1:
            return Lookup((shape[1],), is_by_class=True)
        case "OneHot", 0 if (depth := graph.constants.get(op.inputs[1])) is not None:
            return Lookup((int(depth.item()),), is_by_class=True)
    return None
