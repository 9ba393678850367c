"""A result as the command line tells it: as a table for people, or as the plain values of ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TextIO

from planner.errors import UsageError
from planner.feature import at, features
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
        Texts, numbers, lists and mappings, as the schemas in ``planner/schemas`` say.

    Example:
        ::

            json.dumps(planner.as_json(planner.explain("plan")))
    """
    _printed(result)
    return plain_record(result)


def _printed(result: Any) -> Callable[[Any, TextIO], None]:
    kind = type(result)
    tables = {output.record: output.table for feature in features() for output in feature.outputs}
    table = _PRINTED.get(kind)
    if table is None and (place := tables.get(f"{kind.__module__}:{kind.__name__}")):
        table = at(place)
    if table is None:
        names = sorted({*(record.__name__ for record in _PRINTED), *(record.rpartition(":")[2] for record in tables)})
        raise UsageError(f"{kind.__name__} is not what a command returns", hint=f"there are {', '.join(names)}")
    return table
