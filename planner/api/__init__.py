"""What the commands do, for Python users.

``grad``, ``plan``, ``explain``, ``run``, ``compare``, ``check``, ``profile``, ``export``, ``zoo``.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

from planner.api.checking import check
from planner.api.comparison import compare
from planner.api.explanation import explain
from planner.api.exporting import export
from planner.api.models import zoo, zoo_models
from planner.api.planning import plan
from planner.api.profiling import profile
from planner.api.running import run
from planner.api.training import grad

__all__ = ["check", "compare", "explain", "export", "grad", "plan", "profile", "run", "zoo", "zoo_models"]
