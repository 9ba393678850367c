"""The request that a plan was made for, beside its model, where it differs from the defaults: recorded in
``plan.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from planner.records import Kind


class ByWorker(tuple[int, ...]):
    """The memory of each worker's own device, where workers cannot change places: the devices are not equally fast."""

    __slots__ = ()


@dataclass(frozen=True)
class Asked:
    """The request that other plans of the model must keep to, to be compared with this one."""

    told: ClassVar = "limit_bytes? limits_by_worker? pins? forbidden? replicate? inputs? objective?"

    limit_bytes: tuple[int, ...] = ()
    """The memory there is, one entry for each worker; (): enough."""
    limits_by_worker: bool = False
    """Whether each entry is that worker's own, and not in any order."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """The tiling's text of each tensor or pattern."""
    forbidden: tuple[Annotated[tuple[str, str], Kind(noun="pair of a tensor and a placement")], ...] = ()
    """Tensor or pattern, and the text of a placement."""
    replicate: Literal["all", "weights", "none"] = "all"
    """The tensors that may be replicated where they can be cut."""
    inputs: Literal["partitioned"] | None = None
    """The arrival of data, where that is not as the plan wants it."""
    objective: Literal["time"] | None = None
    """The objective of the plan, where that is not its cost in bytes."""

    @property
    def limits(self) -> tuple[int, ...]:
        """The memory there is: ``ByWorker``, or in any order."""
        return ByWorker(self.limit_bytes) if self.limits_by_worker else self.limit_bytes

    @property
    def partitioned_inputs(self) -> bool:
        """Data arrives in disjoint tiles only."""
        return self.inputs == "partitioned"

    @property
    def for_time(self) -> bool:
        """The plan is for the least time, not for the least cost in bytes."""
        return self.objective == "time"
