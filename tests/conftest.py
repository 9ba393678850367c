"""Settings for the whole suite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings

import dearest
from planner.graph.core.model import Graph, StatePair

# No deadline: on a shared machine a slow example says nothing about the code. A failure prints its blob, so that
# `@reproduce_failure` brings it back. Few examples, and others in every run: somebody waits for them.
settings.register_profile("dev", deadline=None, print_blob=True, max_examples=25)
# The same examples in every run: what fails in CI fails again at the developer's.
settings.register_profile("ci", deadline=None, print_blob=True, max_examples=25, derandomize=True)
# Four times as many, and others in every run: `make test-nightly`.
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

# What tests give with --opdefs is not noted in the user's home.
STATE_HOME = tempfile.TemporaryDirectory(prefix="tofu-tests-")
os.environ["XDG_STATE_HOME"] = STATE_HOME.name

# Before anything imports onnxruntime: its telemetry is on by default.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flag by which golden texts are accepted as they are now, and the one that tells what tests take."""
    parser.addoption("--update-golden", action="store_true", help="write the golden texts in place of comparing them")
    parser.addoption(
        "--dearest", type=int, default=0, metavar="N", help="print which N tests take the processor longest"
    )
    parser.addoption(
        "--most-seconds", type=float, default=0, metavar="N", help="fail where the tests take more of the processor"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measures what tests take of the processor."""
    config.pluginmanager.register(dearest)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of this name in ``golden`` beside the test, or writes that."""

    def check(name: str, text: str) -> None:
        file = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), f"{file}: --update-golden writes it anew"

    return check


@pytest.fixture(scope="session")
def renamed() -> Callable[[Graph, int], tuple[Graph, dict[str, str]]]:
    """Gives the graph in other names, and the new name of each."""
    return _renamed


@pytest.fixture(scope="session")
def reordered() -> Callable[[Graph, int], Graph]:
    """Gives the graph with its ops in another order."""
    return _reordered


def _renamed(graph: Graph, seed: int) -> tuple[Graph, dict[str, str]]:
    """The graph with every tensor and op renamed, so that names sort otherwise; and the new name of each."""
    names = sorted({*graph.tensors, *(op.name for op in graph.ops)})
    numbers = np.random.default_rng(seed).permutation(len(names)).tolist()
    new = {name: f"n{number}" for name, number in zip(names, numbers, strict=True)} | {"": ""}

    def of(some: Sequence[str]) -> tuple[str, ...]:
        return tuple(new[name] for name in some)

    return replace(
        graph,
        tensors={new[name]: replace(tensor, name=new[name]) for name, tensor in graph.tensors.items()},
        ops=tuple(replace(op, name=new[op.name], inputs=of(op.inputs), outputs=of(op.outputs)) for op in graph.ops),
        inputs=of(graph.inputs),
        outputs=of(graph.outputs),
        constants={new[name]: value for name, value in graph.constants.items()},
        folded=frozenset(new[name] for name in graph.folded),
        initial={new[name]: value for name, value in graph.initial.items()},
        state=tuple(StatePair(new[pair.current], new[pair.following]) for pair in graph.state),
        notes={},
    ), new


def _reordered(graph: Graph, seed: int) -> Graph:
    """The graph with its ops in another topological order, and its tensors listed accordingly."""
    rng = np.random.default_rng(seed)
    made = {name for op in graph.ops for name in op.outputs if name}
    done = {"", *(name for name in graph.tensors if name not in made)}
    left, ops = list(graph.ops), []
    while left:
        ready = [number for number, op in enumerate(left) if done.issuperset(op.inputs)]
        op = left.pop(ready[int(rng.integers(len(ready)))])
        ops.append(op)
        done.update(op.outputs)
    first = [name for name in graph.tensors if name not in made]
    order = [*first, *(name for op in ops for name in op.outputs if name)]
    return replace(graph, ops=tuple(ops), tensors={name: graph.tensors[name] for name in order})
