"""Named choices: losses and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from planner.errors import UsageError, did_you_mean

T = TypeVar("T")


def choose(kind: str, name: str, entries: Mapping[str, T]) -> T:
    """The entry of this name.

    Raises:
        UsageError: there is none; says which there are, and which was perhaps meant.
    """
    if name in entries:
        return entries[name]
    raise UsageError(
        f"unknown {kind} {name!r}", facts=(f"known: {', '.join(sorted(entries))}",), hint=did_you_mean(name, entries)
    )
