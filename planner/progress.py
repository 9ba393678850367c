"""Telling what is being done, line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]


def silent(line: str) -> None:
    """Progress that nobody wants."""
