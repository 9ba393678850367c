"""What each mechanism of the search earns: the same plans without it, in cost, processor time and gap.

    python bench/ablation.py                      every mechanism: quick plans on 8 workers, normal ones of small models
    python bench/ablation.py --without bound ...  some of them
    python bench/ablation.py --doubled            every number of planner/search/effort.py, doubled in turn
    python bench/ablation.py --models NAME:WORKERS ... --effort normal

A row is a mechanism. Costs are compared model by model: the geometric mean of all, and the models that change most.
Processor time is the median of the ratios, with and without one after the other in one process; the machine's other
work disturbs both. A gap counts where both plans have one. A mechanism is to earn 0.5% of cost, a fifth of the time, or
half a point of gap, on two models.

    fusion    plans are improved until they are stable
    parts     what is too entangled to be improved at once is improved in parts
    second    a plan grows out of a likely second start
    bound     the bound, and plans that it leads to
    others    plans grow out of other starts where a gap is left
    short     deep networks are planned by short ones
    partial   sums of partial results are joined once
    bodies    composite ops are cut through their bodies
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, TypeAlias
from unittest import mock

from planner.descriptions import in_force
from planner.errors import TofuError
from planner.graph.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.randomness import lower_randomness
from planner.planning.bodies import decide_with_bodies
from planner.search import decide, effort
from planner.search.effort import EFFORTS, EffortName
from planner.search.model.problem import Problem
from planner.search.moves import fusion, grow
from planner.search.moves.bounding import LowerBound
from planner.search.moves.grow import Grow
from planner.search.moves.starts import freely, others
from planner.search.request import SearchRequest
from planner.search.schedule import Schedule, schedule_of
from planner.zoo import build

QUICK = (
    *("mlp-5x300", "mlp-4x8192", "cnn-5x2048-6", "cnn-5x512-24", "lenet-5", "alexnet", "vgg-16", "inception-v3"),
    *("resnet-50", "resnet-152", "wresnet-50-4", "wresnet-152-10", "rnn-4-8k", "rnn-10-8k"),
    *("gpt-2x1024", "gpt-6x1024-16h", "gpt2", "gpt2-xl", "gpt3-175b"),
)
NORMAL = (
    *("mlp-5x300", "mlp-4x8192", "cnn-5x2048-6", "cnn-5x512-24", "lenet-5", "alexnet", "vgg-16"),
    *("gpt-2x1024", "gpt-2x128-4h", "gpt-2x128-4h-lm"),
)
WIDE = (("resnet-50", 16), ("resnet-101", 16), ("wresnet-50-4", 16), ("lenet-5", 16))
"""Whose bounds are left open, or too much work."""

Change: TypeAlias = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan, by what counts."""

    cost: int
    gap: float | None
    processor_seconds: float


def _scheduled(change: Callable[[Schedule], Schedule]) -> Change:
    """Other lists of moves."""
    return lambda: mock.patch.object(decide, "schedule_of", lambda name: change(schedule_of(name)))


def _without(is_out: Callable[[object], bool]) -> Change:
    """Lists without some moves."""
    return _scheduled(lambda one: replace(one, rest=tuple(move for move in one.rest if not is_out(move))))


def _whole_sums() -> contextlib.AbstractContextManager[object]:
    def joined_at_once(*given: Any, **named: Any) -> Problem:
        return Problem(*given, **{**named, "with_partial_sums": False})

    return mock.patch.object(decide, "Problem", joined_at_once)


MECHANISMS: dict[str, Change] = {
    "fusion": lambda: mock.patch.object(grow, "improve", lambda *given: given[3]),
    "parts": lambda: mock.patch.object(fusion, "in_parts", lambda problem, choices, found, stop: found),
    "second": lambda: mock.patch.object(decide, "FIRST", (Grow(freely),)),
    "bound": _without(lambda move: isinstance(move, LowerBound)),
    "others": _without(lambda move: isinstance(move, Grow) and move.starts is others),
    "short": lambda: mock.patch.object(decide, "shortened", return_value=None),
    "partial": _whole_sums,
    "bodies": contextlib.nullcontext,
}


def _doubled(name: str) -> Change:
    """A number of the search, twice as large wherever it is used."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        number = getattr(effort, name)
        twice = tuple(2 * one for one in number) if isinstance(number, tuple) else 2 * number
        with contextlib.ExitStack() as stack:
            for module in [*sys.modules.values()]:
                if module.__name__.startswith("planner.") and hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, twice))
            yield

    return change


class Bench:
    """Plans models, each graph made once."""

    def __init__(self) -> None:
        self._graphs: dict[str, Graph] = {}
        self._descriptions, _ = in_force(None, "refuse")

    def planned(self, name: str, workers: int, effort_name: EffortName, *, through_bodies: bool = True) -> Outcome:
        """A plan of a model of the zoo."""
        if name not in self._graphs:
            self._graphs[name] = canonical(lower_randomness(build(name))).graph
        ask = SearchRequest(workers, effort=effort_name)
        before = time.process_time()
        found = decide_with_bodies(self._graphs[name], self._descriptions, ask, through_bodies=through_bodies)
        return Outcome(found.cost, found.certified_gap, time.process_time() - before)

    def row(self, name: str, change: Change, models: Sequence[tuple[str, int]], effort_name: EffortName) -> str:
        """What is different without a mechanism, as a row of a table."""
        pairs: list[tuple[str, Outcome, Outcome]] = []
        for model, workers in models:
            with_it = self.planned(model, workers, effort_name)
            try:
                with change():
                    without = self.planned(model, workers, effort_name, through_bodies=name != "bodies")
            except TofuError as error:
                return f"| {name} | {effort_name} | {model} on {workers}: {error.what} | | | |"
            pairs.append((f"{model} on {workers}", with_it, without))
        dearer = sorted(((other.cost / own.cost - 1, where) for where, own, other in pairs if own.cost), reverse=True)
        mean = exp(sum(log(1 + share) for share, _ in dearer) / max(1, len(dearer))) - 1
        most = [f"{where} {share:+.2%}" for share, where in (*dearer[:3], *dearer[-1:]) if abs(share) >= 5e-5]
        ratios = [own.processor_seconds / other.processor_seconds for _, own, other in pairs]
        wider = [
            (100 * ((other.gap if other.gap is not None else float("inf")) - own.gap), where)
            for where, own, other in pairs
            if own.gap is not None and own.gap != other.gap
        ]
        gaps = [f"{where} {'none' if points == float('inf') else f'{points:+.2f}'}" for points, where in wider[:3]]
        changed = ", ".join(dict.fromkeys(most)) or "-"
        cells = (f"{mean:+.3%}", changed, f"{statistics.median(ratios):.2f}", ", ".join(gaps) or "-")
        return f"| {name} | {effort_name}, {len(pairs)} plans | " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="What each mechanism of the search earns.")
    parser.add_argument("--without", nargs="+", choices=list(MECHANISMS), default=list(MECHANISMS))
    parser.add_argument("--doubled", action="store_true", help="numbers, doubled in turn, instead of mechanisms")
    parser.add_argument("--models", nargs="+", metavar="MODEL:WORKERS")
    parser.add_argument("--effort", choices=list(EFFORTS), default=None)
    chosen = parser.parse_args()
    samples: list[tuple[EffortName, list[tuple[str, int]]]] = [
        ("quick", [(name, 8) for name in QUICK]),
        ("normal", [*((name, 8) for name in NORMAL), *WIDE]),
    ]
    if chosen.models:
        pairs = [text.partition(":") for text in chosen.models]
        samples = [(chosen.effort or "quick", [(name, int(workers or 8)) for name, _, workers in pairs])]
    elif chosen.effort:
        samples = [(name, models) for name, models in samples if name == chosen.effort]
    changes = {name: MECHANISMS[name] for name in chosen.without}
    if chosen.doubled:
        numbers = [name for name in vars(effort) if name.isupper() and not name.endswith(("_BOUND", "EFFORTS"))]
        changes = {f"{name} doubled": _doubled(name) for name in numbers}
    bench = Bench()
    for effort_name, models in samples:
        for name, workers in models[:1]:
            bench.planned(name, workers, effort_name)  # imports and caches
    print("| without | plans | cost, mean | cost, most | time with it / without | gap, points wider |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, change in changes.items():
        for effort_name, models in samples:
            print(bench.row(name, change, models, effort_name), flush=True)


if __name__ == "__main__":
    main()
