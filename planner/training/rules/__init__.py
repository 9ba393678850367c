"""Gradient rules, one file for each operator family."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from planner.training.gradients.autodiff import GradientRule, collect


def standard() -> dict[str, GradientRule]:
    """The rules of the standard operators, by operator: those of every file here."""
    return collect(*(import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)))
