"""Topologies that ship with tofu, found by name."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def names() -> tuple[str, ...]:
    """The names of the shipped topologies, sorted."""
    return tuple(sorted(path.stem for path in _directory().glob("*.yaml")))


def find(name: str) -> Path:
    """The path of a shipped topology.

    Args:
        name: the file's name without ``.yaml``, e.g. ``p2.8xlarge``.

    Raises:
        KeyError: no topology of that name ships.
    """
    if name not in names():
        raise KeyError(name)
    return _directory() / f"{name}.yaml"


def _directory() -> Path:
    # tofu installs as files: a zipped package would give a resource here that is no path.
    with resources.as_file(resources.files(__name__)) as directory:
        return directory
