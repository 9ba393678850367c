"""Features: commands that the core does without, each with all that it needs in one folder of ``planner/features``.

The folder's ``__init__.py`` declares the feature as ``FEATURE``; nothing else names it. The command line,
``import planner``, what prints results and what describes their JSON are loops over :func:`features`. A folder that is
not there is no error: the core works without.

In a folder NAME, the click command is ``NAME`` in ``command.py``, and functions of Python are in ``run.py``. Other
places are texts, ``result:ProveResult``, so that nothing heavy is imported before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePath
from pkgutil import iter_modules
from typing import Any

OTHER = "Further"
"""The last heading of ``tofu --help``."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result and the table of a command."""

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

    package: str
    """The folder's ``__name__``: what its last word says is the feature's name."""
    functions: tuple[str, ...] = ()
    """The functions that ``planner`` has."""
    outputs: tuple[Output, ...] = ()
    heading: str = OTHER
    """Under which ``tofu --help`` lists the command."""
    models: str = ""
    """The place of the function that gives the training graph of a model by its name; "" if the feature has none."""

    @property
    def name(self) -> str:
        """The word of the command line, and the folder's name."""
        return self.package.rpartition(".")[2]

    def at(self, place: str) -> Any:
        """The object at a place of the folder; its module is imported."""
        module, _, attribute = place.partition(":")
        return getattr(import_module(f"{self.package}.{module}"), attribute)

    @property
    def command(self) -> Any:
        """The click command."""
        return self.at(f"command:{self.name}")


@cache
def features() -> tuple[Feature, ...]:
    """The features that are there, by name, be it in a folder or in an archive.

    Raises:
        ImportError: a folder declares no feature.
    """
    folders = [str(PurePath(path) / "features") for path in import_module("planner").__path__]
    names = sorted(module.name for module in iter_modules(folders) if module.ispkg)
    return tuple(_feature(f"planner.features.{name}") for name in names)


def _feature(package: str) -> Feature:
    feature = getattr(import_module(package), "FEATURE", None)
    if not isinstance(feature, Feature):
        raise ImportError(f"{package} declares no FEATURE (planner.feature says what a feature's folder holds)")
    return feature


def functions() -> dict[str, Feature]:
    """The features' functions, by their names in ``planner``."""
    return {name: feature for feature in features() for name in feature.functions}
