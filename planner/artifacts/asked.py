"""What a plan was asked for beside its model, as far as it is more than the usual: recorded in ``plan.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from planner.strict_json import Value

_REPLICATE: tuple[Literal["all", "weights", "none"], ...] = ("all", "weights", "none")


class ByWorker(tuple[int, ...]):
    """The memory of each worker's own device, where workers cannot change places: the devices are not equally fast."""

    __slots__ = ()


@dataclass(frozen=True)
class Asked:
    """What other plans of the model must keep to, to be compared with this one."""

    told: ClassVar = "limit_bytes? limits_by_worker? pins? forbidden? replicate? inputs? objective?"

    limit_bytes: tuple[int, ...] = ()
    """The memory there is, one entry for each worker; (): enough."""
    limits_by_worker: bool = False
    """Whether each entry is that worker's own, and not in any order."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """By tensor or pattern the tiling's text."""
    forbidden: tuple[tuple[str, str], ...] = ()
    """Tensor or pattern, and the text of a placement."""
    replicate: Literal["all", "weights", "none"] = "all"
    """Which tensors may be replicated where they can be cut."""
    partitioned_inputs: bool = False
    """Data arrives in disjoint tiles only."""
    for_time: bool = False
    """The plan is for the least time, not for the least cost in bytes."""

    @property
    def limits(self) -> tuple[int, ...]:
        """The memory there is: ``ByWorker``, or in any order."""
        return ByWorker(self.limit_bytes) if self.limits_by_worker else self.limit_bytes

    @property
    def inputs(self) -> Literal["partitioned"] | None:
        """How data arrives, where that is not as the plan wants it."""
        return "partitioned" if self.partitioned_inputs else None

    @property
    def objective(self) -> Literal["time"] | None:
        """What the plan has the least of, where that is not its cost in bytes."""
        return "time" if self.for_time else None

    @classmethod
    def from_json(cls, data: Value) -> Asked:
        """Reads what a plan's file says of it.

        Raises:
            JsonError: it is something else.
        """
        limits, pins, forbidden = data.get("limit_bytes"), data.get("pins"), data.get("forbidden")
        replicate, inputs, objective = data.get("replicate"), data.get("inputs"), data.get("objective")
        return cls(
            limit_bytes=() if limits is None else limits.counts(),
            limits_by_worker=(of_each := data.get("limits_by_worker")) is not None and of_each.flag(),
            pins={} if pins is None else {name: text.text() for name, text in pins.members().items()},
            forbidden=() if forbidden is None else tuple(_pair(pair) for pair in forbidden.values()),
            replicate="all" if replicate is None else _replicate(replicate),
            partitioned_inputs=inputs is not None and inputs.text() == "partitioned",
            for_time=objective is not None and objective.text() == "time",
        )


def _pair(data: Value) -> tuple[str, str]:
    texts = data.texts()
    if len(texts) != 2:
        raise data.fault("is no pair of a tensor and a placement")
    return texts[0], texts[1]


def _replicate(data: Value) -> Literal["all", "weights", "none"]:
    text = data.text()
    for option in _REPLICATE:
        if text == option:
            return option
    raise data.fault(f"is none of {', '.join(_REPLICATE)}: {text}")
