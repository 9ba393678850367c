"""Families of zoo models with one form of name, and their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.errors import UsageError
from planner.graph.core.model import Graph

if TYPE_CHECKING:
    from planner.training.update.precision import Precision

_OPTIONS: Final = ("precision", "seq", "layers")


@dataclass(frozen=True, slots=True)
class Asked:
    """The request for a model."""

    batch: int
    """Samples of an iteration."""
    optimizer: str
    precision: Precision
    seq: int | None = None
    """Tokens of a sample; None: the model's own."""
    layers: int | None = None
    """Blocks; None: the model's own."""


Maker: TypeAlias = Callable[[Asked], Graph]
"""From what is asked to the training graph."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models whose names have one form."""

    form: str
    """How a name is written; letters stand for numbers."""
    about: str
    """What it is, and where it is from."""
    members: Mapping[str, int]
    """The models that are listed, and the batch that each has there."""
    batch: int
    """Of all others."""
    optimizer: str
    """What the paper trains with."""
    pattern: re.Pattern[str]
    """Of the names."""
    make: Callable[[re.Match[str]], Maker]
    """From a name's numbers."""
    precision: Precision = "float32"
    """What the model computes in, where not said."""
    options: frozenset[str] = frozenset()
    """What can be asked beside batch and optimizer: of "precision", "seq" and "layers"."""

    def batch_of(self, name: str) -> int:
        """The batch that a model has unless another is asked for."""
        return self.members.get(name, self.batch)

    def check(self, name: str, **values: object) -> None:
        """Check that what is asked of a model can be.

        Raises:
            UsageError: an option that the model does not have.
        """
        vain = [option for option in _OPTIONS if values.get(option) is not None and option not in self.options]
        if vain:
            has = ("batch", "optimizer", *(option for option in _OPTIONS if option in self.options))
            raise UsageError(
                f"zoo: {name} has no --{vain[0]}", facts=("it has " + ", ".join(f"--{option}" for option in has),)
            )
