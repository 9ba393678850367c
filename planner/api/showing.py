"""A result as the command line tells it: as a table for people, or as the plain values of ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TextIO

from planner.errors import UsageError
from planner.feature import Feature, Output, features
from planner.gate.verdict import CheckResult
from planner.printing import built, explained, gate, occupancy, planned, simulated, tables
from planner.printing.answer import answer
from planner.printing.console import ReportConsole
from planner.printing.sheet import TextSheet
from planner.reasons import Why
from planner.records import plain, plain_record
from planner.results import BuildResult, Explanation, GradResult, MemoryResult, PlanResult, SimulationResult
from planner.runtime.run_report import RunResult

_PRINTED: Mapping[type, Callable[[Any, TextIO], None]] = MappingProxyType(
    {
        GradResult: tables.print_grad,
        PlanResult: planned.print_plan,
        BuildResult: built.print_build,
        Explanation: explained.print_explanation,
        Why: lambda why, file: answer(ReportConsole(file), why),
        MemoryResult: occupancy.print_memory,
        SimulationResult: simulated.print_simulation,
        RunResult: tables.print_run,
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
    kind = type(result)
    printed = _PRINTED.get(kind)
    if printed is None:
        feature, output = _output(kind)
        printed = feature.at(output.table)
    printed(result, sys.stdout if file is None else file)


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
    if isinstance(result, Why):  # a member of what a command prints: it has no version of its own
        return dict(plain(result))
    if type(result) not in _PRINTED:
        _output(type(result))
    return plain_record(result)


def _output(kind: type) -> tuple[Feature, Output]:
    """What a feature says of the class of its results."""
    outputs = [(feature, output) for feature in features() for output in feature.outputs]
    for feature, output in outputs:
        if f"{feature.package}.{output.record}" == f"{kind.__module__}:{kind.__name__}":
            return feature, output
    names = {record.__name__ for record in _PRINTED} | {output.record.partition(":")[2] for _, output in outputs}
    raise UsageError(f"{kind.__name__} is not what a command returns", hint=f"there are {', '.join(sorted(names))}")
