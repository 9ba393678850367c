"""What each mechanism of the search earns: the same plans without it, in cost, processor time and gap.

    python bench/ablation.py                      every mechanism: quick plans on 8 workers, normal ones of small models
    python bench/ablation.py --without bound ...  some of them
    python bench/ablation.py --doubled            every number of planner/search/effort.py, doubled in turn
    python bench/ablation.py --models NAME:WORKERS ... --effort normal
    python bench/ablation.py --memory [--models NAME|FILE:WORKERS ...] [--topology NAME]   what a limit on memory has

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

``--memory``: of the limits that are met, those that are missed without a way to meet them, and how much dearer plans
become. Limits lie between what every plan takes at least and what the plan without a limit takes.

    steps     the plan without a limit, with ops in steps
    prices    plans at prices of memory
    mixing    a plan that fits with parts of one that is cheaper
    blocks    blocks of a plan that fits, over what variables are in those that were tried
    last      ops in steps of the leanest plan that was found
    each      deliveries shared one by one; without, as many as have room, by halving
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias
from unittest import mock

from planner.cost.residence import Residence
from planner.descriptions import in_force
from planner.errors import InfeasibleError, TofuError
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting.canonical import canonical
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.partition.workspace import ELEMENTWISE
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import Goal, least_cost
from planner.planning.limit import fit, room
from planner.planning.limit.fit import _Within
from planner.planning.limit.in_steps import fitted_by_steps
from planner.planning.limit.trial import Trial
from planner.planning.machines import memory_limits, target_of
from planner.planning.objective import Times
from planner.planning.request import PlanRequest, source_of
from planner.planning.session import Session
from planner.planning.thresholds import Work
from planner.search import decide, effort
from planner.search.decision import Decision
from planner.search.effort import EFFORTS, EffortName
from planner.search.memory.limit import at_prices
from planner.search.model.problem import Problem
from planner.search.moves import fusion, grow
from planner.search.moves.bounding import LowerBound
from planner.search.moves.grow import Grow
from planner.search.moves.starts import freely, others
from planner.search.request import SearchRequest
from planner.search.schedule import Schedule, schedule_of
from planner.search.user_rules.rules import Rules

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

LIMITED = (("cnn-5x2048-6", 4), ("cnn-2x64-12", 4), ("mlp-4x8192", 4), ("gpt-2x128-4h", 2), ("cnn-5x2048-6", 8))
"""Models that are planned within limits."""
SHARES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Where limits lie, between what is found where nothing fits and what the plan without a limit takes."""
LESS = (0.5, 0.9)
"""Where further limits lie, between what every plan takes at least and what is found."""

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


WAYS = ("steps", "prices", "mixing", "blocks", "last", "each")
"""To keep to a limit on memory, in the order in which they are gone, then where deliveries are shared."""


@contextlib.contextmanager
def _ways(off: frozenset[str], used: set[str]) -> Iterator[None]:
    """Without some ways to keep to a limit.

    Args:
        off: these.
        used: where it is noted which others were gone, so that plans without them can be others.
    """
    by_prices, mix, improve, in_steps = at_prices, _Within._mix, _Within._improve, fitted_by_steps

    def prices(first: Any, *given: Any) -> Any:
        used.add("prices")
        return ([first], {}) if "prices" in off else by_prices(first, *given)

    def mixing(*given: Any) -> None:
        used.add("mixing")
        if "mixing" not in off:
            mix(*given)

    def improving(*given: Any) -> None:
        used.add("blocks")
        if "blocks" not in off:
            improve(*given)

    def stepped(trial: Trial, *given: Any) -> Trial | None:
        name = "last" if trial.is_lean else "steps"
        found = None if name in off else in_steps(trial, *given)
        used.update([name] if found is not None else [])
        return found

    def each(decided: Decision) -> bool:
        used.add("each")
        return "each" not in off and Work.TRIALS.is_done_for(decided)

    with (
        mock.patch.object(room, "Work", SimpleNamespace(TRIALS=SimpleNamespace(is_done_for=each))),
        mock.patch.object(fit, "at_prices", prices),
        mock.patch.object(_Within, "_mix", mixing),
        mock.patch.object(_Within, "_improve", improving),
        mock.patch.object(fit, "fitted_by_steps", stepped),
    ):
        yield


class Limited(Session):
    """A model that is planned within several limits: what hangs on none of them is made once."""

    def _searched(self, rules: Rules) -> tuple[Decision, Decision]:
        return self.without_limit

    def _by_tables_of_time(self, goal: Goal) -> Iterator[Trial]:
        yield from self._fast

    @cached_property
    def without_limit(self) -> tuple[Decision, Decision]:
        """The plan without a limit, and the one with shared deliveries."""
        return super()._searched(self.request.rules)

    @cached_property
    def _fast(self) -> list[Trial]:
        assert self.times is not None
        return list(super()._by_tables_of_time(self.times.goal))

    @cached_property
    def times(self) -> Times | None:
        """Estimates on the machine."""
        return self._times() if self.request.objective == "time" else None

    @cached_property
    def _literature(self) -> list[Trial]:
        return self._of_the_literature(self._compared()[0]) if self.times is not None else []

    def within(self, limit: int | None) -> Trial:
        """The plan within a limit.

        Raises:
            InfeasibleError: none was found.
        """
        target = self.request.target
        limits = None if limit is None else memory_limits(limit, target.machine, target.workers)
        self.request = replace(self.request, limits=limits)
        return self._chosen(*self.without_limit, self.times, self._literature)

    def amount(self, trial: Trial) -> float:
        """What the plan is to have little of."""
        return least_cost(self._tables).of(trial) if self.times is None else self.times.seconds(trial)

    @cached_property
    def limits(self) -> list[int]:
        """Between what every plan takes at least, what one that was found takes, and enough."""
        free, plain = self.within(None), self.without_limit[0]
        most = max(free.partitioned.program.peak_bytes)
        every = int(Residence(plain.graph, plain.ops).least(ELEMENTWISE).max()) // prod(plain.cuts)
        try:
            least = max(self.within(every).partitioned.program.peak_bytes)
        except InfeasibleError as refused:
            least = min(most, int(refused.hint.partition("--memory ")[2].partition("B)")[0]))
        found = [least + int(share * (most - least)) for share in SHARES]
        return sorted({*found, *(every + int(share * (least - every)) for share in LESS)})


@dataclass(frozen=True, slots=True)
class Met:
    """A limit that is met with everything; by what is left out, the plan's amount, None where it is missed."""

    where: str
    amount: float
    without: dict[str, float | None]
    processor_seconds: dict[str, float]


def met(model: str, workers: int, topology: str | None, changes: Sequence[str], *, partitioned: bool) -> Iterator[Met]:
    """The limits of a model that are met."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(model)
        if not file.exists():
            file = Path(folder) / "model.onnx"
            write_model(build(model), file)
        source = source_of(file, ReadOptions())
        target = target_of(workers, topology)
        inputs: Literal["free", "partitioned"] = "partitioned" if partitioned else "free"
        options = PlanOptions(model=file, effort="quick", inputs=inputs, recompute="none")
        planned = Limited(PlanRequest(options, source, target))

    def within(limit: int, off: str, used: set[str]) -> tuple[float | None, float]:
        before = time.process_time()
        try:
            with _ways(frozenset(filter(None, off.split("+"))), used):
                return planned.amount(planned.within(limit)), time.process_time() - before
        except InfeasibleError:
            return None, time.process_time() - before

    for limit in planned.limits:
        used: set[str] = set()
        amount, seconds = within(limit, "", used)
        if amount is not None and used:
            found = {off: within(limit, off, set()) for off in changes if used.intersection(off.split("+"))}
            where = f"{Path(model).stem} on {workers} in {limit / 1e6:,.1f} MB"
            times = {"": seconds, **{off: time for off, (_, time) in found.items()}}
            one = Met(where, amount, {off: other for off, (other, _) in found.items()}, times)
            print(one, file=sys.stderr, flush=True)
            yield one
        else:
            print(
                f"{model} on {workers} in {limit / 1e6:,.1f} MB: {'missed' if amount is None else 'as it is'}",
                f"{seconds:.1f} s",
                file=sys.stderr,
                flush=True,
            )


def memory_row(off: str, limits: Sequence[Met]) -> str:
    """What is different without a way to keep to limits, as a row of a table."""
    missed = [one.where for one in limits if one.without.get(off, one.amount) is None]
    dearer = sorted(
        ((other / one.amount - 1, one.where) for one in limits if (other := one.without.get(off, one.amount))),
        reverse=True,
    )
    mean = exp(sum(log(1 + share) for share, _ in dearer) / max(1, len(dearer))) - 1
    most = [f"{where} {share:+.2%}" for share, where in (*dearer[:2], *dearer[-1:]) if abs(share) >= 5e-5]
    every = sum(one.processor_seconds[""] for one in limits)
    without = sum(one.processor_seconds.get(off, one.processor_seconds[""]) for one in limits)
    cells = (f"{len(missed)} of {len(limits)}", f"{mean:+.3%}", ", ".join(dict.fromkeys(most)) or "-")
    return f"| {off} | " + " | ".join(cells) + f" | {every / without:.2f} | {', '.join(missed[:3]) or '-'} |"


def memory_table(
    models: Sequence[tuple[str, int]], topology: str | None, changes: Sequence[str], *, partitioned: bool
) -> Iterator[str]:
    """The table of a limit's ways, once all limits of all models were tried."""
    limits: list[Met] = []
    for name, workers in models:
        limits += met(name, workers, topology, changes, partitioned=partitioned)
        print(f"{name} on {workers}: {len(limits)} limits so far", file=sys.stderr, flush=True)
    yield "| without | limits missed | dearer, mean | dearer, most | time with it / without | missed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from (memory_row(off, limits) for off in changes)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="What each mechanism of the search earns.")
    parser.add_argument("--without", nargs="+", metavar="MECHANISM", help="some; of --memory several together: a+b")
    parser.add_argument("--memory", action="store_true", help="ways to keep to a limit on memory instead")
    parser.add_argument("--partitioned", action="store_true", help="with --memory: data arrives in disjoint tiles")
    parser.add_argument("--topology", help="with --memory: the machine; plans are for the least time there")
    parser.add_argument("--doubled", action="store_true", help="numbers, doubled in turn, instead of mechanisms")
    parser.add_argument("--models", nargs="+", metavar="MODEL:WORKERS")
    parser.add_argument("--effort", choices=list(EFFORTS), default=None)
    chosen = parser.parse_args()
    names = chosen.without or (WAYS if chosen.memory else tuple(MECHANISMS))
    if unknown := [one for name in names for one in name.split("+") if one not in (*WAYS, *MECHANISMS)]:
        parser.error(f"--without {unknown[0]}: known are {', '.join((*MECHANISMS, *WAYS))}")
    if chosen.memory:
        pairs = [text.rpartition(":") for text in chosen.models or ()]
        models = [(name, int(workers)) for name, _, workers in pairs] or LIMITED
        for line in memory_table(models, chosen.topology, names, partitioned=chosen.partitioned):
            print(line, flush=True)
        return
    samples: list[tuple[EffortName, list[tuple[str, int]]]] = [
        ("quick", [(name, 8) for name in QUICK]),
        ("normal", [*((name, 8) for name in NORMAL), *WIDE]),
    ]
    if chosen.models:
        pairs = [text.partition(":") for text in chosen.models]
        samples = [(chosen.effort or "quick", [(name, int(workers or 8)) for name, _, workers in pairs])]
    elif chosen.effort:
        samples = [(name, models) for name, models in samples if name == chosen.effort]
    changes = {name: MECHANISMS[name] for name in names}
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
