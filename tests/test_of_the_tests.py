"""A test whose every assertion stands in a loop says nothing where the loop does not run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TRANSPARENT = {"enumerate", "zip", "sorted", "reversed", "list", "tuple", "range", "product", "itertools.product"}
"""What they give is empty only where something that they are given is."""


def is_written_down(value: ast.expr, named: set[str]) -> bool:
    """Whether the value is seen not to be empty: a literal, a name of one, or a turn through some."""
    match value:
        case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
            return any(not isinstance(each, ast.Starred) or is_written_down(each.value, named) for each in elts)
        case ast.Dict(keys):
            return bool(keys)
        case ast.Constant(constant):
            return bool(constant)
        case ast.Name(name):
            return name in named
        case ast.BinOp(left, _, right):
            return all(is_written_down(each, named) for each in (left, right))
        case ast.Call(ast.Attribute(owner, "items" | "keys" | "values" | "split"), _):
            return is_written_down(owner, named)
        case ast.Call(function, [_, *_] as values):
            return ast.unparse(function) in TRANSPARENT and all(is_written_down(each, named) for each in values)
    return False


def names_of_literals(body: list[ast.stmt], named: set[str]) -> set[str]:
    """The names to which a literal is given, anywhere in the body of a module or of a test."""
    found = set(named)
    for statement in (inner for outer in body for inner in ast.walk(outer)):
        match statement:
            case ast.Assign(targets, value) if is_written_down(value, found):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(ast.Name(name), _, value) if value is not None and is_written_down(value, found):
                found.add(name)
    return found


def asserts(statement: ast.stmt) -> bool:
    """An ``assert``, a ``with pytest.raises``, or a call of something that asserts by its name."""
    match statement:
        case ast.With(items):
            return any("raises" in ast.unparse(item) or "warns" in ast.unparse(item) for item in items)
        case ast.Expr(ast.Call(function)):
            return "assert" in ast.unparse(function) or ast.unparse(function) == "pytest.fail"
    return isinstance(statement, ast.Assert)


def loops_of_assertions(body: list[ast.stmt], loop: ast.For | None = None) -> Iterator[ast.For | None]:
    """For each assertion, the outermost loop in which it stands, or None."""
    for statement in body:
        if asserts(statement):
            yield loop
        for part in ("body", "orelse", "finalbody", "handlers"):
            inner = [each for each in getattr(statement, part, []) if isinstance(each, ast.stmt | ast.ExceptHandler)]
            within = statement if isinstance(statement, ast.For) and part == "body" else None
            yield from loops_of_assertions(inner, loop or within)


def empty_perhaps(text: str) -> list[str]:
    """The tests in a module whose assertions all stand in loops, and one of those over what may be empty."""
    module = ast.parse(text)
    shared = names_of_literals([each for each in module.body if not isinstance(each, ast.FunctionDef)], set())
    found = []
    for test in ast.walk(module):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            loops = set(loops_of_assertions(test.body))
            if loops and None not in loops:
                named = names_of_literals(test.body, shared)
                found += [test.name] * (not all(is_written_down(loop.iter, named) for loop in loops if loop))
    return found


def test_no_test_passes_because_its_loops_did_not_run() -> None:
    modules = sorted(TESTS.rglob("test_*.py"))
    assert len(modules) > 100
    found = [f"{path.relative_to(TESTS)}: {name}" for path in modules for name in empty_perhaps(path.read_text())]
    assert not found, "assert that what they go over is not empty"


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ("for one in made():\n        assert one", False),
        ("for one in made():\n        pass\n    assert one", True),
        ("some = made()\n    assert some\n    for one in some:\n        assert one", True),
        ("for one in (1, 2):\n        assert one", True),
        ("for one in range(3):\n        for other in made(one):\n            assert other", True),
        ("for place, one in enumerate(made()):\n        assert one", False),
        ("for one in ALL:\n        assert one", True),
        ("for one in ALL[3:]:\n        assert one", False),
        ("for one in made():\n        with pytest.raises(ValueError):\n            one()", False),
        ("try:\n        for one in made():\n            assert_allclose(one, 1)\n    finally:\n        end()", False),
    ],
)
def test_such_loops_are_found(body: str, passes: bool) -> None:
    assert empty_perhaps(f"ALL = (1, 2)\n\n\ndef test_it():\n    {body}\n") == ([] if passes else ["test_it"])


@pytest.mark.slow
@pytest.mark.parametrize(("most", "status"), [("0.0001", 1), ("1000", 0)])
def test_a_run_that_takes_too_much_of_the_processor_fails(most: str, status: int) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--most-seconds", most]
    done = subprocess.run(
        [*command, TESTS / "test_units.py"], cwd=TESTS.parent, check=False, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout
    assert f"seconds of the processor, of {most} that they may take" in done.stdout
