"""A plan that a test has made by itself, written as a folder with its workers' models."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from planner.artifacts.plan import Plan, digest
from planner.artifacts.plan_folder import write_folder
from planner.graph.core.model import Graph
from planner.partition.build import plan_files, worker_files
from planner.partition.segments import Partitioned
from planner.progress import silent


def write_plan(folder: Path, graph: Graph, content: bytes, plan: Plan, partitioned: Partitioned) -> None:
    """Writes a plan's folder.

    Args:
        folder: where.
        graph: that was planned.
        content: of its model's file.
        plan: that is complete.
        partitioned: its program.
    """
    text = plan.to_json().encode()
    workers = worker_files(graph.opset, digest(text), partitioned, silent)
    write_folder(folder, chain(plan_files(content, text), workers), partitioned.program)
