"""A plan's run with the options that most tests vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from planner.options.running import RunOptions
from planner.runtime.engine.core.transport import Transport
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.run import run_with
from planner.runtime.run_report import RunResult, StepReport


def run_plan(
    plan: str | Path | LoadedPlan,
    *,
    steps: int = 1,
    inputs: str | Path | Mapping[str, np.ndarray] | None = None,
    verify: bool = False,
    seed: int = 0,
    progress: Callable[[StepReport], None] | None = None,
    transport: Transport | None = None,
) -> RunResult:
    """Runs a plan (``run_with``); all other options are the usual ones."""
    options = RunOptions(steps=steps, inputs=inputs, verify=verify, seed=seed, on_step=progress)
    return run_with(plan, options, transport=transport)
