"""``tofu compare``: every strategy of the literature beside the found plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from planner.api.machines import machine_and_workers, profile_for, time_of
from planner.cost.tables import CostTables
from planner.cost.topology import level_ways
from planner.descriptions import UnknownOps, in_force
from planner.errors import TofuError
from planner.graph.canonical import canonical
from planner.graph.randomness import lower_randomness
from planner.partition.build import partition
from planner.progress import Progress, silent
from planner.report.results import (
    Comparison,
    ComparisonRow,
)
from planner.search.composites import decide_with_bodies
from planner.search.decide import decide
from planner.search.methods import METHODS
from planner.search.sharing import shared
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
    rows = []
    for number, method in enumerate(METHODS.values(), start=1):
        progress(f"strategy {number} of {len(METHODS)}: {method.name}")
        try:
            tables = CostTables()
            decided = decide_with_bodies(
                graph, descriptions, workers, levels=levels, strategy=method.name, tables=tables
            )
            if method.name == "tofu":
                again = partial(decide, workers=workers, levels=levels, tables=tables)
                decided = shared(decided, descriptions, tables, "normal", again)
        except TofuError as error:
            if method.name == "tofu":
                raise
            rows.append(ComparisonRow(method.name, method.what, None, None, None, None, error.what))
            continue
        decision = decided.decision
        program = partition(decided.graph, decided.ops, decision.plan).program
        estimate = time_of(decided, decision.plan, program, machine, measured)
        rows.append(
            ComparisonRow(
                method.name,
                method.what,
                decision.plan.moved_bytes,
                max(program.peak_bytes),
                decision.plan.excess_bytes,
                decision.search_seconds,
                estimated_seconds=None if estimate is None else estimate.estimated_seconds,
                sources=None if estimate is None else estimate.sources,
            )
        )
    return Comparison(graph.name, workers, tuple(rows), None if machine is None else machine.name)
