"""``tofu compare``: every strategy of the literature beside the found plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from planner.cost.tables import CostTables
from planner.descriptions import UnknownOps, in_force
from planner.errors import TofuError
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.randomness import lower_randomness
from planner.machine.routes import level_ways
from planner.planning.bodies import Decided, decide_with_bodies
from planner.planning.deliveries import shared
from planner.planning.fit import Candidate, candidate_of
from planner.planning.machines import machine_and_workers, profile_for, time_of
from planner.planning.objective import EFFORTS_FOR_TIME, LITERATURE, Times, least_time, objective_of, timed
from planner.planning.room import shared_where_room
from planner.planning.sources import from_the_nearest
from planner.progress import Progress, silent
from planner.results import (
    Comparison,
    ComparisonRow,
)
from planner.search.effort import EffortName
from planner.search.literature.methods import METHODS
from planner.search.request import SearchRequest
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import read_step


def compare(
    model: Path,
    *,
    gpus: int | None = None,
    topology: str | None = None,
    dim: Mapping[str, int] | None = None,
    value: Mapping[str, str] | None = None,
    state: Path | None = None,
    profile: Path | None = None,
    opdefs: Path | None = None,
    unknown_ops: UnknownOps = "refuse",
    progress: Progress = silent,
) -> Comparison:
    """Plans a training graph by every strategy of the literature.

    Tofu's own plan is the one that ``plan`` makes where nothing else is asked for: on a topology for the least time.

    Args:
        model: an ONNX file.
        gpus: how many workers; may be left out with a topology.
        topology: a topology file, or the name of one that ships, for estimates of time.
        dim: sizes of symbolic dims.
        value: by input, the number that it becomes, or numbers with commas between them.
        state: a file of pairs of state and next state; None: as the model says, or inferred.
        profile: see ``plan``.
        opdefs: see ``plan``.
        unknown_ops: see ``plan``.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read, or not even tofu's own search has a plan.
    """
    machine, workers = machine_and_workers(gpus, topology)
    levels = () if machine is None else level_ways(machine)
    measured = profile_for(profile, machine)
    progress(f"reading {model}")
    pairs = None if state is None else read_pairs(state)
    descriptions, _ = in_force(opdefs, unknown_ops)
    step = read_step(model, dims=dim, values=value, state_pairs=pairs, operators=descriptions)
    graph = canonical(lower_randomness(step)).graph
    objective = objective_of(None, machine, measured, "tofu")
    effort: EffortName = "normal" if objective == "bytes" else EFFORTS_FOR_TIME["normal"]
    tables = CostTables()
    ask = SearchRequest(workers, levels, effort=effort, tables=tables)
    search = partial(decide_with_bodies, graph, descriptions)
    progress("strategy tofu")
    plain = search(ask)
    found = candidate_of(shared(plain, descriptions, ask))

    def row(name: str, candidate: Candidate) -> ComparisonRow:
        decision, program = candidate.decided.decision, candidate.partitioned.program
        estimate = time_of(candidate.decided, decision.plan, program, machine, measured)
        return ComparisonRow(
            name,
            METHODS[name].what,
            decision.plan.moved_bytes,
            max(program.peak_bytes),
            decision.plan.excess_bytes,
            decision.search_seconds,
            estimated_seconds=None if estimate is None else estimate.estimated_seconds,
            sources=None if estimate is None else estimate.sources,
        )

    rows = []
    known: list[tuple[float, Decided]] = []
    for number, name in enumerate(LITERATURE, start=1):
        progress(f"strategy {number} of {len(LITERATURE)} of the literature: {name}")
        try:
            decided = search(replace(ask, strategy=name, effort="normal"))
        except TofuError as error:
            rows.append(ComparisonRow(name, METHODS[name].what, None, None, None, None, error.what))
            continue
        rows.append(row(name, candidate_of(decided)))
        known.append((rows[-1].estimated_seconds or 0.0, decided))
    if machine is not None and objective == "time":
        progress("strategy tofu, for the least time")
        goal = least_time(machine, tables, measured)
        candidates = [found, timed(lambda others: search(replace(ask, tables=others)), goal, tables)]
        if known:
            candidates.append(candidate_of(min(known, key=lambda one: one[0])[1]))
        found = Times(machine, goal, tables, measured).fastest(candidates, None).best
        if not found.decided.decision.plan.deliveries:
            found = shared_where_room(found, None, goal, descriptions, tables, progress)
    if machine is not None:
        found = from_the_nearest(found, machine, None, measured)
    rows.insert(0, row("tofu", found))
    return Comparison(graph.name, workers, tuple(rows), None if machine is None else machine.name, objective)
