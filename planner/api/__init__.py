"""The commands as Python functions.

``grad``, ``plan``, ``build``, ``prove``, ``explain``, ``why``, ``memory``, ``simulate``, ``report``, ``run``,
``export``, ``compare``, ``fit``, ``check``, ``diff``, ``profile``, ``zoo``, ``checkpoints``, ``export_checkpoint``,
``load_into``; ``show`` and ``as_json`` of what they return. ``import planner`` has them, too.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

from typing import Any

import planner
from planner.api.building import build as build
from planner.api.checking import check as check
from planner.api.explanation import explain as explain
from planner.api.explanation import why as why
from planner.api.occupancy import memory as memory
from planner.api.planning import plan as plan
from planner.api.running import run as run
from planner.api.showing import as_json as as_json
from planner.api.showing import show as show
from planner.api.timing import simulate as simulate
from planner.api.training import grad as grad
from planner.feature import functions

__all__ = [name for name in planner.__all__ if name != "TofuError"]


def __getattr__(name: str) -> Any:
    """The function of a feature."""
    feature = functions().get(name)
    if feature is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return feature.at(f"run:{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
