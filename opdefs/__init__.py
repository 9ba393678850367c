"""Descriptions of ONNX's operators, one file for each operator family."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from planner.errors import DescriptionError
from planner.opdefs.exclusions import EXCLUDED, LOWERED
from planner.opdefs.load import OpdefsFile, load_file, remembered
from planner.tdl.builder import Description
from planner.tdl.descriptions import Descriptions

__all__ = ["OpdefsFile", "collect", "load_file", "remembered", "standard"]


def collect(*modules: ModuleType) -> tuple[Description, ...]:
    """The descriptions that modules define, in the order of their definition."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Description))


def standard(*further: Description, repeats_unknown: bool = False) -> Descriptions:
    """The descriptions of the standard operators, those of every file here, and further ones (``load_file``).

    Args:
        further: a user's own. Of an operator that is not ONNX's they stand in the place of those here.
        repeats_unknown: operators without a description are executed whole by every worker, and not refused.

    Raises:
        DescriptionError: an operator is described twice, or is read as others.
    """
    for tdl in further:
        for name in (f"{tdl.domain}.{op_type}" for op_type in tdl.op_types):
            if name in LOWERED:
                raise DescriptionError(f"{name} is read as other operators, so that its description would not be used")
    files = (import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__))
    overridden = {key for tdl in further for key in tdl.keys if tdl.domain}
    standard_tdls = (
        replace(tdl, op_types=tuple(name for domain, name in tdl.keys if (domain, name) not in overridden))
        for tdl in collect(*files)
    )
    return Descriptions((*standard_tdls, *further), repeats_unknown=repeats_unknown, reasons=EXCLUDED, own=further)
