"""Examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "planner").rglob("*.py"))
    if not path.is_relative_to(ROOT / "planner" / "opdefs") and ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize(
    "name",
    ["planner.search.bound", "planner.search.exact", "planner.partition.ways", "planner.features.prove.proof"],
)
def test_a_formula_names_its_function(name: str) -> None:
    module = importlib.import_module(name)
    named = re.findall(r"``([\w.]+)``$", module.__doc__ or "", re.MULTILINE)
    assert len(named) >= 4
    for function in named:
        first, *names = function.split(".")
        part = getattr(module, first, None) or importlib.import_module(f"{name}.{first}")
        for attribute in names:
            part = getattr(part, attribute)
