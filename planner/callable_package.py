"""Packages that have the name of a command's function, and are called as it: ``planner.report("plan", output=...)``."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package that is called as the function of ``planner.api`` that has its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module("planner.api"), self.__name__.rpartition(".")[2])(*arguments, **options)


def make_callable(name: str) -> None:
    """Makes a package callable; it calls this one itself.

    Args:
        name: the package's ``__name__``.
    """
    sys.modules[name].__class__ = CallablePackage
