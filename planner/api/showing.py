"""A result as the command line tells it: as a table for people, or as the plain values of ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TextIO

from planner.errors import UsageError
from planner.feature import features
from planner.gate.verdict import CheckResult
from planner.printing import built, explained, gate, occupancy, planned, simulated, tables
from planner.printing.sheet import TextSheet
from planner.records import plain_record
from planner.results import BuildResult, Explanation, GradResult, MemoryResult, PlanResult, SimulationResult
from planner.runtime.run_report import RunResult

_PRINTED: Mapping[type, Callable[[Any, TextIO], None]] = MappingProxyType(
    {
        GradResult: tables.grad,
        PlanResult: planned.plan,
        BuildResult: built.built,
        Explanation: explained.explain,
        MemoryResult: occupancy.print_memory,
        SimulationResult: simulated.print_simulation,
        RunResult: tables.run,
        CheckResult: lambda check, file: gate.print_check(check, TextSheet(file)),
    }
)


def show(result: Any, file: TextIO | None = None) -> None:
    """Prints a result as the command prints it.

    Args:
        result: of ``plan``, ``explain``, ``run``, ...
        file: where to; None: stdout.

    Example:
        ::

            planner.show(planner.plan("train.onnx", gpus=4))
    """
    _printed(result)(result, sys.stdout if file is None else file)


def as_json(result: Any) -> dict[str, Any]:
    """A result as the plain values that the command prints with ``--json``.

    Args:
        result: of ``plan``, ``explain``, ``run``, ...

    Returns:
        Texts, numbers, lists and mappings, as the schemas say that `tofu schema` prints.

    Example:
        ::

            json.dumps(planner.as_json(planner.explain("plan")))
    """
    _printed(result)
    return plain_record(result)


def _printed(result: Any) -> Callable[[Any, TextIO], None]:
    kind = type(result)
    if kind in _PRINTED:
        return _PRINTED[kind]
    pairs = [(feature, output) for feature in features() for output in feature.outputs]
    for feature, output in pairs:
        if f"planner.features.{feature.name}.{output.record}" == f"{kind.__module__}:{kind.__name__}":
            table: Callable[[Any, TextIO], None] = feature.at(output.table)
            return table
    names = {record.__name__ for record in _PRINTED} | {output.record.partition(":")[2] for _, output in pairs}
    raise UsageError(f"{kind.__name__} is not what a command returns", hint=f"there are {', '.join(sorted(names))}")
