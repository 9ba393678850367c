"""What was made of a model before it was divided: what the names in a plan, and in worker models, are names of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.algebra.region import Region
from planner.artifacts.recomputed import Recomputed
from planner.graph.deliveries import SharedDelivery
from planner.graph.rewriting.packing import InParts
from planner.records import Several
from planner.strict_json import Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The form of a model that is divided, beside its strategies; the model as it is by default."""

    in_place: Mapping[str, str] | None = None
    """By tensor of the model that its canonical form has no more, the tensor that is read or made in its place; None
    where the model as it is is divided."""
    in_parts: InParts = field(default_factory=dict)
    """By tensor of the model that its canonical form has by its parts: these, and which box of it each is."""
    kept: tuple[str, ...] = ()
    """Tensors that would be among these, and have a tiling because a rule names them."""
    recomputed: Recomputed | None = None
    """What is computed again for the backward pass."""
    owned: Mapping[str, Several] = field(default_factory=dict)
    """By name of lanes of which workers may have some whole, how many there are (``planner.graph.rewriting.lanes``)."""
    deliveries: tuple[SharedDelivery, ...] = ()
    """Those that several readers share."""

    @classmethod
    def from_json(cls, data: Value) -> Form:
        """Reads what a plan's file says of it; what it does not say is as it is by default.

        Raises:
            JsonError: it is something else.
        """
        in_place, kept_names, again = data.get("in_place"), data.get("kept"), data.get("recomputed")
        owned, deliveries, in_parts = data.get("owned"), data.get("deliveries"), data.get("in_parts")
        return cls(
            in_place=None if in_place is None else {name: held.text() for name, held in in_place.members().items()},
            in_parts={} if in_parts is None else {name: _boxes(parts) for name, parts in in_parts.members().items()},
            kept=() if kept_names is None else kept_names.texts(),
            recomputed=None if again is None else Recomputed.from_json(again),
            owned={} if owned is None else {name: count.integer() for name, count in owned.members().items()},
            deliveries=() if deliveries is None else tuple(map(_delivery, deliveries.values())),
        )


def _boxes(data: Value) -> dict[str, Region]:
    return {part: Region(*(corner.counts() for corner in box.values())) for part, box in data.members().items()}


def _delivery(data: Value) -> SharedDelivery:
    name = data["name"]
    if not name.text():
        raise name.fault("is empty")
    return SharedDelivery(name.text(), data["tensor"].text(), data["readers"].texts())
