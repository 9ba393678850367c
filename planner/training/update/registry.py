"""Named choices: losses and optimizers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from planner.errors import UsageError

T = TypeVar("T")


def choose(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry of this name.

    Raises:
        UsageError: there is none; says which there are, and which was perhaps meant.
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        f"unknown {kind} {name!r}",
        facts=(f"known: {', '.join(sorted(known))}",),
        hint=f"did you mean {near[0]!r}?" if near else "",
    )
