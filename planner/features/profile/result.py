"""The result of ``tofu profile``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from planner.machine.device_profile import DeviceProfile
from planner.records import Positive
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, repr=False)
class ProfileResult(ShortRepr):
    """The measurements on a device."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "output profile.model workers profile.device ops model_seconds model_unmeasured measured=profile.ops "
        "profile.unmeasured total_seconds"
    )

    profile: DeviceProfile
    output: Path
    """The file that was written."""
    workers: Positive
    """The numbers of workers that the measured parts are for."""
    ops: int
    """The number of the model's ops."""
    model_seconds: float
    """The time of the model's ops, each whole, one after the other; those that could be measured."""
    model_unmeasured: int
    """The ops of the model that could not be measured whole."""
    total_seconds: float
    """The time that measuring took."""
