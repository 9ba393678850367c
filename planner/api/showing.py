"""A result as the command line tells it: as a table for people, or as the plain values of ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TextIO, TypeAlias

from planner.gate.verdict import CheckResult
from planner.report import as_json as plain
from planner.report import device_profile, gate, tables
from planner.results import Comparison, Explanation, GradResult, PlanResult, ProfileResult, ZooResult
from planner.runtime.run_report import RunResult

AnyResult: TypeAlias = (
    GradResult | PlanResult | Explanation | RunResult | Comparison | CheckResult | ProfileResult | ZooResult
)

_FORMS: Mapping[type, tuple[Callable[[Any], dict[str, Any]], Callable[[Any, TextIO], None]]] = MappingProxyType(
    {
        GradResult: (plain.grad, tables.grad),
        PlanResult: (plain.plan, tables.plan),
        Explanation: (plain.explain, tables.explain),
        RunResult: (plain.run, tables.run),
        Comparison: (plain.compare, tables.compare),
        CheckResult: (gate.check_json, gate.print_check),
        ProfileResult: (device_profile.profile_json, device_profile.print_profile),
        ZooResult: (plain.zoo, tables.zoo),
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
    _FORMS[type(result)][1](result, sys.stdout if file is None else file)


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
    return _FORMS[type(result)][0](result)
