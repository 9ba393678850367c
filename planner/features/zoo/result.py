"""The result of ``tofu zoo``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from planner.records import Positive
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True)
class ZooRow:
    """Models of the zoo whose names have one form."""

    told: ClassVar = "form about optimizer models"

    form: str
    about: str
    members: Mapping[str, int]
    """Names that ``tofu zoo`` lists, and the batch of each."""
    optimizer: str

    @property
    def models(self) -> tuple[ZooModel, ...]:
        return tuple(ZooModel(name, batch) for name, batch in self.members.items())


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A name that ``tofu zoo`` lists."""

    name: str
    batch: Positive
    """Samples of an iteration."""


@dataclass(frozen=True, slots=True)
class ZooModels:
    """The models of the zoo."""

    schema_version: ClassVar = 1

    families: tuple[ZooRow, ...]

    def __iter__(self) -> Iterator[ZooRow]:
        return iter(self.families)


@dataclass(frozen=True, slots=True, repr=False)
class ZooResult(ShortRepr):
    """A model of the zoo that was written."""

    schema_version: ClassVar = 1
    told: ClassVar = "name output inputs parameters weight_bytes state_bytes ops ops_by_type"

    name: str
    output: Path
    inputs: tuple[str, ...]
    """Data inputs."""
    parameters: int
    """Trained numbers."""
    weight_bytes: int
    state_bytes: int
    """Weights, histories and running statistics."""
    ops_by_type: Mapping[str, int]

    @property
    def ops(self) -> int:
        return sum(self.ops_by_type.values())
