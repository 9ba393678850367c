"""Lines of the JAX file: names stand in code and never in text, whole numbers stay whole, and every file ends."""

from __future__ import annotations

import ast
from pathlib import Path

import onnx
import pytest

from export_models import SMALL
from planner import api


def exported(name: str, folder: Path) -> tuple[str, int]:
    """The JAX file of a small model, and what it moves."""
    text, workers, pins = SMALL[name]
    (folder / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    api.plan(folder / "m.onnx", gpus=workers, pin=pins, effort="quick", out=folder / "plan")
    result = api.export(folder / "plan", jax=folder / "step.py")
    return (folder / "step.py").read_text(), result.moved_bytes


def strings(source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@pytest.mark.parametrize(
    ("name", "equation"), [("outer", "a,b->ab"), ("sum of pairs", "a,b->"), ("three", "abc,cd,d->a")]
)
def test_letters_of_an_equation_are_no_names(name: str, equation: str, tmp_path: Path) -> None:
    assert equation in strings(exported(name, tmp_path)[0])


@pytest.mark.parametrize(("name", "equation"), [("trace", "ii->"), ("diagonal", "ii->i")])
def test_a_diagonal_that_two_dims_are_cut_for(name: str, equation: str, tmp_path: Path) -> None:
    """Two dims of the operand are cut by one cut: no collective makes that, and the search for one has an end."""
    assert equation in strings(exported(name, tmp_path)[0])


def test_places_of_a_part_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    source, _ = exported("places", tmp_path)
    divisions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Div)]
    assert divisions == []
    assert "lax.div(" in source
