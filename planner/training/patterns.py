"""Patterns of parameters' names, with * and ? as in file names."""

from __future__ import annotations

import re


def letters(pattern: str) -> int:
    """The length without * and ?: of two patterns that match a name, the one with more letters wins."""
    return len(re.sub(r"[*?]", "", pattern))
