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
    """What was measured on a device."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "output profile.model workers profile.device ops model_seconds model_unmeasured measured=profile.ops "
        "profile.unmeasured total_seconds"
    )

    profile: DeviceProfile
    output: Path
    """The file that was written."""
    workers: Positive
    """For how many workers the measured parts are."""
    ops: int
    """Of the model."""
    model_seconds: float
    """Of the model's ops, each whole, one after the other; those that could be measured."""
    model_unmeasured: int
    """Of the model's ops, those that could not be measured whole."""
    total_seconds: float
    """That measuring took."""
