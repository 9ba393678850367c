"""What nested cuts, sliced convolutions and steps earn over the zoo: bytes, memory, gaps and the search's time.

    python bench/gains.py [MODEL ...] [--workers 8,64] [--effort normal] [--most-parts 30000] [--repeat 1]

MB = 1e6 bytes. ``before`` is a plan without cuts that nest in other orders and without bodies of strided convolutions;
``moved`` is of an iteration over all workers, ``cost`` is that and excess, memory is what the fullest worker takes at
least: of the plan before, of the plan now, and of that plan with every product and convolution in steps, in as many as
take least. Memory is left out ("-") where ops times workers are more than ``--most-parts``, since it takes a program.
Seconds are the processor's, of the search alone, the lower of ``--repeat`` searches.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rich.console import Console
from strategies import line

from planner.descriptions import in_force
from planner.features.zoo.models import PAPERS, build
from planner.features.zoo.models.catalogue import names
from planner.graph.core.model import Graph, Op
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.decompositions.registry import Decomposition, Purpose, decomposition
from planner.graph.rewriting.canonical import canonical
from planner.partition.build import unplaced
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.in_steps import choices, with_steps
from planner.search import decide
from planner.search.decision import Decision
from planner.search.effort import EffortName
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest

HEADS = ("model", "workers", "moved", "now", "cost", "now", "gap", "now", "MB a worker", "now", "steps", "s", "now")
WIDTHS = (16, 7, 12, 12, 12, 12, 7, 7, 11, 9, 9, 7, 7)
_TIMES = (1, 2, 4, 8)
bodies = importlib.import_module("planner.graph.decompositions.expand")


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, and how long its search took."""

    plan: Decision
    processor_seconds: float


@contextlib.contextmanager
def before() -> Iterator[None]:
    """Searches in here know neither nested cuts nor bodies of strided convolutions."""

    def plain(*given: Any, **named: Any) -> Problem:
        return Problem(*given, **{**named, "with_nests": False})

    def without(purpose: Purpose, op: Op) -> Decomposition | None:
        return None if op.op_type == "Conv" else decomposition(purpose, op)

    with mock.patch.object(decide, "Problem", plain), mock.patch.object(bodies, "decomposition", without):
        yield


def planned(graph: Graph, workers: int, effort: EffortName, repeat: int) -> Found:
    """The plan of a graph."""
    descriptions, _ = in_force(None, "refuse")
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        plan = decide_with_bodies(graph, descriptions, SearchRequest(workers, effort=effort))
        seconds.append(time.process_time() - started)
    return Found(plan, min(seconds))


def peak(plan: Decision) -> int:
    """What the fullest worker takes at least, wherever its buffers lie."""
    return max(unplaced(plan.graph, plan.ops, plan, lean=True).least_peaks)


def stepped_peak(plan: Decision) -> int:
    """The same with every op in steps that can run so."""
    known = choices(plan)
    return min((peak(with_steps(plan, known, known.keys(), times)) for times in _TIMES if known), default=peak(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(names(PAPERS)), help="models of the zoo")
    parser.add_argument("--workers", default="8,64")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="normal")
    parser.add_argument("--most-parts", type=int, default=30_000)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    line(console, HEADS, WIDTHS)
    for name in options.models:
        graph = canonical(lower_randomness(build(name))).graph
        for workers in map(int, options.workers.split(",")):
            planned(graph, workers, "quick", 1)  # what a process keeps of graphs and operators is there for both
            with before():
                old = planned(graph, workers, options.effort, options.repeat)
            new = planned(graph, workers, options.effort, options.repeat)
            memory = ["-"] * 3
            if len(graph.ops) * workers <= options.most_parts:
                peaks = (peak(old.plan), peak(new.plan), stepped_peak(new.plan))
                memory = [f"{one / 1e6:,.1f}" for one in peaks]
            gaps = ["-" if one.certified_gap is None else f"{one.certified_gap:.2%}" for one in (old.plan, new.plan)]
            sizes = (old.plan.moved_bytes, new.plan.moved_bytes, old.plan.cost, new.plan.cost)
            seconds = [f"{one.processor_seconds:.1f}" for one in (old, new)]
            cells = (name, str(workers), *(f"{one / 1e6:,.1f}" for one in sizes), *gaps, *memory, *seconds)
            line(console, cells, WIDTHS)


if __name__ == "__main__":
    main()
