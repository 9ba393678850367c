"""What the commands do, for Python users.

``grad``, ``plan``, ``explain``, ``run``, ``compare``, ``check``, ``profile``, ``zoo``; ``show`` and ``as_json`` of what
they return. ``import planner`` has them, too, but ``zoo``, whose name is a package's there.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

from planner.api.checking import check
from planner.api.comparison import compare
from planner.api.explanation import explain
from planner.api.models import zoo, zoo_models
from planner.api.planning import plan
from planner.api.profiling import profile
from planner.api.running import run
from planner.api.showing import as_json, show
from planner.api.training import grad

__all__ = [
    "as_json",
    "check",
    "compare",
    "explain",
    "grad",
    "plan",
    "profile",
    "run",
    "show",
    "zoo",
    "zoo_models",
]
