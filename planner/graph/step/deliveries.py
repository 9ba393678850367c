"""Shared deliveries: a tensor brought into another tiling once, for several of its readers together.

Without one, every op that reads a tensor has what it needs of it brought for itself. A shared delivery is planned as an
op of its own kind, which makes a tensor that is the delivered one again, in a tiling of its own; its readers read that.
The op computes nothing, and where the tensor lies as it is delivered, nothing moves and nothing is held twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import ModelError
from planner.graph.core.model import Graph, Op

DOMAIN: Final = "tofu"
OP_TYPE: Final = "Delivery"


@dataclass(frozen=True, slots=True)
class SharedDelivery:
    """One delivery and who shares it."""

    name: str
    """Of the op that delivers, and of the tensor as it is delivered; no op or tensor of the model has it."""
    tensor: str
    """What is delivered: a tensor of the graph, or another delivery's."""
    readers: tuple[str, ...]
    """Names of the ops that read it as it is delivered, other deliveries among them."""


def is_delivery(op: Op) -> bool:
    """True of the op that stands for a shared delivery."""
    return op.op_type == OP_TYPE and op.domain == DOMAIN


def with_deliveries(graph: Graph, deliveries: Sequence[SharedDelivery]) -> Graph:
    """The graph with these deliveries, each before the first op that reads it.

    Args:
        graph: is left as it is; deliveries that it has stay.
        deliveries: one that delivers another's tensor stands behind that.

    Raises:
        ModelError: nobody reads one of them.
    """
    tensors = dict(graph.tensors)
    delivered: dict[str, str] = {}
    """By delivery, the tensor of the graph."""
    reading: dict[str, dict[str, str]] = {}
    """By op, which tensors it reads by which delivery."""
    waiting: dict[str, Op] = {}
    for delivery in deliveries:
        waiting[delivery.name] = Op(delivery.name, OP_TYPE, (delivery.tensor,), (delivery.name,), domain=DOMAIN)
        tensors[delivery.name] = replace(tensors[delivery.tensor], name=delivery.name)
        source = delivered[delivery.name] = delivered.get(delivery.tensor, delivery.tensor)
        for reader in delivery.readers:
            reading.setdefault(reader, {})[source] = delivery.name
    ops: list[Op] = []

    def place(op: Op) -> None:
        sources = reading.get(op.name, {})
        rewired_op = replace(op, inputs=tuple(sources.get(name, name) for name in op.inputs)) if sources else op
        # A delivery stands just before its first reader, behind the delivery that it reads itself.
        for name in rewired_op.inputs:
            if name in waiting:
                place(waiting.pop(name))
        ops.append(rewired_op)

    for op in graph.ops:
        place(op)
    if waiting:
        raise ModelError(f"nobody reads the deliveries {', '.join(waiting)}", hint="plan the model again")
    return replace(graph, tensors=tensors, ops=tuple(ops))
