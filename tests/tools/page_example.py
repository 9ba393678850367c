"""What the pages in docs/ tell of: a perceptron of two layers on four workers, its plans, its program and a run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner import api, opdefs
from planner.artifacts.plan import Plan
from planner.artifacts.program import Program
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.partition.build import complete_plan, partition, told_by_program
from planner.runtime.run_report import RunResult
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

WORKERS = 4
LAYERS, WIDTH, BATCH = 2, 1024, 256
SHOWN = ("data", "model", "tofu-recursion", "tofu")
"""Strategies whose plans are shown beside one another."""


@dataclass(frozen=True)
class Example:
    """The perceptron, the plans of several strategies for it, and the program of the found one."""

    graph: Graph
    ops: tuple[BoundOp, ...]
    plans: Mapping[str, Decision]
    """By strategy, one of ``SHOWN``."""
    plan: Plan
    """Of ``tofu``, whole."""
    program: Program
    """Of the plan of ``tofu``."""

    def op(self, name: str) -> BoundOp:
        """The op of this name."""
        return next(bound for bound in self.ops if bound.op.name == name)


@cache
def example() -> Example:
    """Plans the perceptron."""
    graph = canonical(mlp(LAYERS, WIDTH, BATCH)).graph
    ops = opdefs.standard().bind_all(graph)
    plans = {name: decide(graph, ops, SearchRequest(WORKERS, strategy=name)) for name in SHOWN}
    partitioned = partition(graph, ops, plans["tofu"])
    whole = complete_plan(plans["tofu"], graph.name, "", **told_by_program(partitioned.program))
    return Example(graph, ops, plans, whole, partitioned.program)


@cache
def executed() -> RunResult:
    """Plans the perceptron as a user does, runs the plan for one step and verifies it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        api.zoo(f"mlp-{LAYERS}x{WIDTH}", batch=BATCH, output=folder / "mlp.onnx")
        api.plan(folder / "mlp.onnx", gpus=WORKERS, out=folder / "plan")
        return api.run(folder / "plan", verify=True)
