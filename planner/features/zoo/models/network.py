"""A forward model of the zoo beside its loss."""

from __future__ import annotations

from dataclasses import dataclass

from planner.features.zoo.models.forward import Forward


@dataclass(frozen=True, slots=True)
class Network:
    """A forward model and its loss."""

    model: Forward
    output: str
    """What the loss looks at."""
    loss: str
    """Its name, see ``planner.training.update.losses``."""
