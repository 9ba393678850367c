"""Plans how to split a neural network's training step over several GPUs, and runs the plan.

The command line's commands, for Python, with its defaults; an option is a keyword of the same name::

    import planner

    planner.grad("mlp.onnx", loss="softmax_cross_entropy", optimizer="adam", dim={"batch": 32})
    result = planner.plan("mlp.train.onnx", gpus=4, out="plan")
    planner.show(result)                                    # what `tofu plan` prints
    ran = planner.run("plan", steps=3, verify=True)
    assert ran.verified

What goes wrong for a user's reasons is a ``planner.TofuError``; ``planner.errors`` has the tree of them. docs/python.md
is the page. (``planner.report`` and ``planner.zoo`` are packages of this
project, and are called as the functions of these names.)

``import planner`` is cheap: what is heavy is imported when one of these is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.feature import functions

if TYPE_CHECKING:
    from planner.api import (
        as_json,
        build,
        check,
        checkpoints,
        compare,
        diff,
        explain,
        export_checkpoint,
        fit,
        grad,
        memory,
        plan,
        report,
        run,
        show,
        simulate,
        why,
        zoo,
        zoo_models,
    )
    from planner.errors import TofuError

__version__ = "0.1.0"
"""The one place that says it: pyproject.toml reads it here."""

__all__ = [
    "grad",
    "plan",
    "build",
    "explain",
    "why",
    "memory",
    "simulate",
    "run",
    "checkpoints",
    "export_checkpoint",
    "compare",
    "fit",
    "diff",
    "check",
    "report",
    "zoo",
    "zoo_models",
    "show",
    "as_json",
    "TofuError",
]
__all__ += sorted(functions())


_MODULES = ("api", "errors", "report", "zoo")
"""Those that are found without an import of their own; the last two are called as functions, too."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"planner.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("planner.errors" if name == "TofuError" else "planner.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
