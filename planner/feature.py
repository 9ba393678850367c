"""Features: commands that the core does without, each with all that it needs in one folder of ``planner/features``.

The folder's ``__init__.py`` declares the feature as ``FEATURE``; nothing else names it. The command line,
``import planner``, what prints results and what describes their JSON are loops over :func:`features`. A folder that is
not there is no error: the core works without.

Places are texts, ``planner.features.prove.run:prove``, so that nothing heavy is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "features"


@dataclass(frozen=True, slots=True)
class Output:
    """What a command returns and prints."""

    schema: str
    """The name of its JSON schema, ``prove``."""
    line: str
    """The command that prints it, ``tofu prove --json``."""
    record: str
    """The place of its class."""
    table: str
    """The place of the function that prints it for people: of the record and a text file."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A command of the command line, and functions of Python that do the same."""

    name: str
    command: str
    """The place of the click command."""
    outputs: tuple[Output, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    """The places of the functions that ``planner`` has, by their names there."""
    models: str = ""
    """The place of the function that gives the training graph of a model by its name; "" if the feature has none."""


@cache
def features() -> tuple[Feature, ...]:
    """The features that are there, by name."""
    names = sorted(file.parent.name for file in FOLDER.glob("*/__init__.py"))
    return tuple(import_module(f"planner.features.{name}").FEATURE for name in names)


def functions() -> dict[str, str]:
    """The places of all features' functions, by their names in ``planner``."""
    return {name: place for feature in features() for name, place in feature.functions.items()}


def at(place: str) -> Any:
    """What a place names, ``module:attribute``; the module is imported."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
