"""The commands as Python functions.

``grad``, ``plan``, ``build``, ``prove``, ``explain``, ``why``, ``memory``, ``simulate``, ``report``, ``run``,
``export``, ``compare``, ``fit``, ``check``, ``diff``, ``profile``, ``zoo``, ``checkpoints``, ``export_checkpoint``;
``show`` and ``as_json`` of what they return. ``import planner`` has them, too.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

from typing import Any

from planner.api.building import build
from planner.api.checking import check
from planner.api.explanation import explain, why
from planner.api.occupancy import memory
from planner.api.planning import plan
from planner.api.running import run
from planner.api.showing import as_json, show
from planner.api.timing import simulate
from planner.api.training import grad
from planner.feature import functions

__all__ = [
    "as_json",
    "build",
    "check",
    "explain",
    "grad",
    "memory",
    "plan",
    "run",
    "show",
    "simulate",
    "why",
]
__all__ += sorted(functions())


def __getattr__(name: str) -> Any:
    """The function of a feature."""
    feature = functions().get(name)
    if feature is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return feature.at(f"run:{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
