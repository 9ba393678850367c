"""The steps from a model to the graph that was divided, which has the names of a plan and of its worker models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.artifacts.recomputed import Recomputed
from planner.graph.rewriting.packing import InParts
from planner.graph.step.deliveries import SharedDelivery
from planner.records import Readers, Several, reader
from planner.strict_json import Value


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Form:
    """The form of a model that is divided, beside its strategies; the model as it is by default."""

    in_place: Mapping[str, str] | None = None
    """The tensor that is read or made in the place of each tensor of the model that the planned graph, its canonical
    form, lacks; None of a plan of the model as it is.
    """
    in_parts: InParts = field(default_factory=dict)
    """The parts of each tensor of the model that the canonical form has by its parts: these, and which box of it each
    is.
    """
    kept: tuple[str, ...] = ()
    """Tensors that would be among these, and have a tiling because a rule names them."""
    recomputed: Recomputed | None = None
    """The tensors that are recomputed for the backward pass; None where the plan was not to do so."""
    owned: Mapping[str, Several] = field(default_factory=dict)
    """The number of lanes, by name, of lanes of which workers may have some whole (``planner.graph.rewriting.lanes``).
    """
    deliveries: tuple[SharedDelivery, ...] = ()
    """The deliveries that several readers share; every other reader has its own. ``tilings`` and ``tensor_bytes`` have
    them by their names, as if they were tensors, and ``strategies`` as if they were ops.
    """


def _delivery(data: Value) -> SharedDelivery:
    delivery = reader(SharedDelivery)(data)
    if not delivery.name:
        raise data["name"].fault("is empty")
    return delivery


FORM_READERS: Final[Readers] = {SharedDelivery: _delivery}
