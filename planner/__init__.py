"""Plans how to split a neural network's training step over several GPUs, and runs the plan.

The command line's commands, for Python, with its defaults; an option is a keyword of the same name::

    import planner

    planner.grad("mlp.onnx", loss="softmax_cross_entropy", optimizer="adam", dim={"batch": 32})
    result = planner.plan("mlp.train.onnx", gpus=4, out="plan")
    planner.show(result)                                    # what `tofu plan` prints
    ran = planner.run("plan", steps=3, verify=True)
    assert ran.verified

What goes wrong for a user's reasons is a ``planner.TofuError``; ``planner.errors`` has the tree of them. docs/python.md
is the page. Functions of features (``planner.feature``) are found where the features are installed.

``import planner`` is cheap: what is heavy is imported when one of these is first used. Their types are in
``__init__.pyi``, which `make schemas` writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
"""The one place that says it: pyproject.toml reads it here."""

_API = ("grad", "plan", "build", "explain", "why", "memory", "simulate", "run", "check", "show", "as_json")
"""The core's functions, in ``planner.api``."""
_MODULES = ("api", "errors")
"""Those that are found without an import of their own."""


def _names() -> list[str]:
    """The core's names and the features', which are looked for when somebody asks."""
    from planner.feature import functions

    return [*_API, "TofuError", *sorted(functions())]


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _names()
    if name in _MODULES:
        return import_module(f"planner.{name}")
    if name not in (*_API, "TofuError") and name not in _names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("planner.errors" if name == "TofuError" else "planner.api"), name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_MODULES, *(name for name in globals() if name.startswith("__"))})
