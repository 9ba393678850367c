"""Names of a model in a file of Python: they are untrusted, and may be any text."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Sequence
from typing import Final

from planner.features.export.helpers import HELPERS

_TAKEN: Final = frozenset(
    {*dir(builtins), *keyword.kwlist, *HELPERS, "jax", "jnp", "lax", "P", "NamedSharding", "AXES", "MESH", "STATE"}
    | {"DATA", "RESULTS", "PARTS", "CONSTANTS", "state", "data", "step", "local_step", "on_device", "placed", "spread"}
    | {"whole"}
)


def identifier(name: str, prefix: str = "t") -> str:
    """A Python name that is like a tensor's."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60] or prefix
    return f"{prefix}_{word}" if word[0].isdigit() or word in _TAKEN else word


def inner_name(name: str) -> str:
    """A Python name for a value inside of an op, whose inputs are called by letters."""
    label = identifier(name, "v")
    return f"v_{label}" if len(label) == 1 else label


def safe_text(name: str) -> str:
    """A name in a comment or a docstring: no quotes, no escapes, nothing that ends the text."""
    return re.sub(r"[^\w.:/@+ -]", "?", name, flags=re.ASCII)


def some(names: Sequence[str]) -> str:
    """The first names of many, and how many more there are."""
    shown = ", ".join(safe_text(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


class Names:
    """Different Python names for different names of a model."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._used: set[str] = set()

    def take(self, name: str) -> None:
        """Keeps a name for something else."""
        self._used.add(name)

    def of(self, name: str) -> str:
        """The Python name."""
        if name not in self._of:
            candidate = base = identifier(name)
            number = 2
            while candidate in self._used:
                candidate, number = f"{base}_{number}", number + 1
            self._used.add(candidate)
            self._of[name] = candidate
        return self._of[name]
