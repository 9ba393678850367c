"""A result as the command line tells it: as a table for people, or as the plain values of ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TextIO, TypeAlias

from planner.errors import UsageError
from planner.gate.verdict import CheckResult
from planner.planning.difference import Difference
from planner.records import plain_record
from planner.report import (
    built,
    checkpoints,
    device_profile,
    difference,
    explained,
    exports,
    fitting,
    gate,
    occupancy,
    planned,
    proved,
    simulated,
    tables,
)
from planner.report.sheet import TextSheet
from planner.results import (
    BuildResult,
    Comparison,
    Explanation,
    ExportResult,
    FitResult,
    GradResult,
    MemoryResult,
    PlanResult,
    ProfileResult,
    ProveResult,
    ReportResult,
    SimulationResult,
    ZooResult,
)
from planner.runtime.run_report import RunResult
from planner.runtime.values.checkpoints import CheckpointList, ExportedCheckpoint

AnyResult: TypeAlias = (
    GradResult
    | PlanResult
    | BuildResult
    | ProveResult
    | Explanation
    | MemoryResult
    | SimulationResult
    | ReportResult
    | ExportResult
    | RunResult
    | Comparison
    | FitResult
    | CheckResult
    | Difference
    | ProfileResult
    | ZooResult
    | CheckpointList
    | ExportedCheckpoint
)

_PRINTED: Mapping[type, Callable[[Any, TextIO], None]] = MappingProxyType(
    {
        GradResult: tables.grad,
        PlanResult: planned.plan,
        BuildResult: built.built,
        ProveResult: proved.proved,
        Explanation: explained.explain,
        MemoryResult: occupancy.print_memory,
        SimulationResult: simulated.print_simulation,
        RunResult: tables.run,
        Comparison: tables.compare,
        FitResult: fitting.print_fit,
        CheckResult: lambda found, file: gate.print_check(found, TextSheet(file)),
        Difference: lambda found, file: difference.print_difference(found, TextSheet(file)),
        ReportResult: tables.report,
        ExportResult: exports.export,
        ProfileResult: device_profile.print_profile,
        ZooResult: tables.zoo,
        CheckpointList: checkpoints.checkpoints,
        ExportedCheckpoint: checkpoints.exported,
    }
)


def show(result: AnyResult, file: TextIO | None = None) -> None:
    """Prints a result as the command prints it.

    Args:
        result: of ``plan``, ``explain``, ``run``, ...
        file: where to; None: stdout.

    Example:
        ::

            planner.show(planner.plan("train.onnx", gpus=4))
    """
    _printed(result)(result, sys.stdout if file is None else file)


def as_json(result: AnyResult) -> dict[str, Any]:
    """A result as the plain values that the command prints with ``--json``.

    Args:
        result: of ``plan``, ``explain``, ``run``, ...

    Returns:
        Texts, numbers, lists and mappings, as the schemas in ``planner/schemas`` say.

    Example:
        ::

            json.dumps(planner.as_json(planner.explain("plan")))
    """
    _printed(result)
    return plain_record(result)


def _printed(result: AnyResult) -> Callable[[Any, TextIO], None]:
    found = _PRINTED.get(type(result))
    if found is None:
        what = f"{type(result).__name__} is not what a command returns"
        raise UsageError(what, hint=f"there are {', '.join(sorted(kind.__name__ for kind in _PRINTED))}")
    return found
