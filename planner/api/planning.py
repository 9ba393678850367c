"""``tofu plan``: from a model to a plan's folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from onnx import ModelProto

from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import (
    try_place,
    write_folder,
)
from planner.artifacts.program import Fetch, Segment
from planner.collection import without_collection
from planner.cost.tables import CostTables
from planner.descriptions import UnknownOps, in_force
from planner.errors import InfeasibleError, UsageError, did_you_mean
from planner.graph.external import data_folder_of, note_data_folder, without_data_folder
from planner.graph.model import Graph
from planner.graph.reading.values import values_of
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.graph.rewriting.randomness import lower_randomness
from planner.graph.to_onnx import to_model
from planner.machine.rates import Rates
from planner.machine.routes import level_ways
from planner.machine.topology_file import Machine, load_topology
from planner.partition.build import complete_plan, plan_files
from planner.partition.collectives import collectives, counted
from planner.partition.sharding import with_annotations
from planner.planning.beside import LARGE, NO_SPEED, of_data, others, warnings
from planner.planning.bodies import Decided, decide_with_bodies
from planner.planning.deliveries import Sharing, shared
from planner.planning.fit import Candidate, candidate_of, least_cost, within
from planner.planning.machines import machine_and_workers, memory_limits, profile_for, time_of
from planner.planning.objective import (
    EFFORTS_FOR_TIME,
    LITERATURE,
    Objective,
    Times,
    can_be_timed,
    is_large,
    least_time,
    objective_of,
    of_the_literature,
    timed,
)
from planner.planning.room import fits, shared_where_room
from planner.planning.sources import from_the_nearest
from planner.planning.undescribed import undescribed_ops
from planner.progress import Progress, silent
from planner.results import Beside, PlanResult
from planner.runtime.values.results import write_bytes
from planner.search.decide import STRATEGIES
from planner.search.effort import EffortName
from planner.search.request import SearchRequest
from planner.search.user_rules.prices import prices
from planner.search.user_rules.rules import Replication, Rules, matching
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import read_step
from planner.whole import try_file


@without_collection()
def plan(
    model: Path,
    *,
    gpus: int | None = None,
    topology: str | None = None,
    memory: str | None = None,
    objective: Objective | None = None,
    rates: str | None = None,
    dim: Mapping[str, int] | None = None,
    value: Mapping[str, str] | None = None,
    strategy: str = "tofu",
    pin: Mapping[str, str] | None = None,
    forbid: Sequence[tuple[str, str]] = (),
    replicate: Replication = "all",
    inputs: str = "free",
    through_bodies: bool = True,
    share: Sharing = "auto",
    effort: EffortName = "normal",
    out: Path | None = None,
    force: bool = False,
    state: Path | None = None,
    sharding_annotations: Path | None = None,
    profile: Path | None = None,
    opdefs: Path | None = None,
    unknown_ops: UnknownOps = "refuse",
    progress: Progress = silent,
) -> PlanResult:
    """Plans a training graph, and writes the plan and one model for each worker.

    Args:
        model: an ONNX file.
        gpus: how many workers; may be left out with a topology. Fewer than its devices are those of a part of it.
        topology: a topology file, or the name of one that ships.
        memory: what the tensors of a worker may take, such as ``12GiB``; None: what the topology's devices have.
        objective: ``bytes``: the least cost, moved bytes and excess; ``time``: the least that an iteration is estimated
            to take, for which there must be a topology; None: time where there is one, as ``objective_of`` says.
        rates: what repeated and uneven work is worth in moved bytes: how fast a link, a memory and a device are, such
            as ``link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s``; None: those of ``planner.machine.rates``.
        dim: sizes of symbolic dims.
        value: by input, the number that it becomes, or numbers with commas between them.
        strategy: one of ``planner.search.decide.STRATEGIES``.
        pin: by tensor, or by pattern of tensors, the tiling that it must have.
        forbid: tensor, or pattern of tensors, and a placement that it must not have at any cut: ``("act*", "R")``.
        replicate: which tensors may be replicated where they can be cut: ``all``, ``weights`` (state, and data as
            ``inputs`` says) or ``none``.
        inputs: ``free``: data arrives in any tiling; ``partitioned``: in disjoint tiles only.
        through_bodies: cut composite ops (Softmax, LayerNormalization, ...) along the dims that they normalise over,
            through their bodies, where that costs less.
        share: ``auto``: what several readers have brought to them is brought once where that saves bytes and there is
            memory; ``none``: every reader has its own delivery. The literature's strategies always have that.
        effort: ``quick``: no bound of what a plan can be; ``normal``: where it takes seconds, and a better plan where
            the bound's search finds one; ``thorough``: where it takes minutes, too.
        out: the folder to write; MODEL.tofuK in the working directory if None.
        force: a plan that is there is replaced.
        state: a file of pairs of state and next state; None: as the model says, or inferred.
        sharding_annotations: a file to write: the model with the tilings as ONNX sharding annotations.
        profile: a file of ``profile``: what ops were measured to take, for the topology's devices.
        opdefs: descriptions of the user's own (docs/describe-an-operator.md); the file is executed.
        unknown_ops: ``refuse`` operators without a description, or ``replicate`` them: every worker runs them whole.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or planned, or the folder not written.
    """
    started = time.perf_counter()
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy {strategy!r} is not known", hint=did_you_mean(strategy, STRATEGIES))
    machine, workers = machine_and_workers(gpus, topology)
    priced_by = None if rates is None else Rates.parse(rates)
    limits = memory_limits(memory, machine, workers)
    measured = profile_for(profile, machine)
    judged_by = objective_of(objective, machine, measured, strategy)
    directory = out if out is not None else Path(f"{model.stem}.tofu{workers}")
    try_place(directory, force=force)
    if sharding_annotations is not None:
        try_file(sharding_annotations)
    progress(f"reading {model}")
    pairs = None if state is None else read_pairs(state)
    descriptions, source = in_force(opdefs, unknown_ops)
    whole = lower_randomness(read_step(model, dims=dim, values=value, state_pairs=pairs, operators=descriptions))
    # Not in the model that is written: the same model is to have the same digest, whatever its plans' folders are.
    whole, data_folder = without_data_folder(whole), data_folder_of(whole, model if model.is_dir() else model.parent)
    content = to_model(whole).SerializeToString(deterministic=True)
    rules = Rules(pin or {}, tuple(forbid), replicate)
    form, kept_apart = canonical_under(rules, whole)
    graph = form.graph
    progress(f"analysing {len(graph.ops)} ops")
    tables = CostTables(priced_by)
    levels = () if machine is None else level_ways(machine)
    ask = SearchRequest(
        workers,
        levels,
        strategy,
        replace(rules, names=frozenset(graph.tensors)),
        partitioned_inputs=inputs == "partitioned",
        effort=effort,
        model_digest=digest(content),
        tables=tables,
        progress=progress,
    )
    search = partial(decide_with_bodies, descriptions=descriptions, through_bodies=through_bodies)
    # What a rule costs is said in bytes.
    is_in_bytes = judged_by == "bytes" or bool(rules.pins or rules.forbidden)
    effort_for_bytes = effort if is_in_bytes else EFFORTS_FOR_TIME[effort]
    is_free = strategy == "tofu"  # the literature's strategies are what they are
    may_share = share == "auto" and is_free

    def found_under(chosen: Rules) -> tuple[Decided, Decided]:
        """The plan in which every reader has its own delivery, and the one in which some may be shared."""
        planned = graph if chosen is rules else canonical_under(chosen, whole)[0].graph
        again = replace(ask, rules=replace(chosen, names=frozenset(planned.tensors)), effort=effort_for_bytes)
        plain = search(planned, ask=again)
        return plain, shared(plain, descriptions, again) if may_share else plain

    plain, decided = found_under(rules)
    priced = prices(
        rules,
        decided.decision.plan.cost,
        lambda others: found_under(others)[1].decision.plan.cost,
        progress,
    )
    candidate, goal = candidate_of(decided), least_cost(tables)
    times: Times | None = None
    fitting: Candidate | None = None
    by_data: Candidate | None = None
    if machine is not None and (judged_by == "time" or (can_be_timed(machine, measured) and not is_large(machine))):
        of_time = least_time(machine, tables, measured)
        times = Times(machine, of_time, tables, measured)
        names = LITERATURE if is_free and judged_by == "time" else ("data",)
        known = list(
            of_the_literature(
                names, lambda name: search(graph, ask=replace(ask, strategy=name, effort="normal")), progress
            )
        )
        by_data = next((one for one in known if one.decided.decision.plan.strategy == "data"), None)
        if judged_by == "time":
            goal = of_time
            progress("planning again, for the least time")
            quickly = replace(ask, effort=EFFORTS_FOR_TIME[effort])
            by_tables = timed(lambda others: search(graph, ask=replace(quickly, tables=others)), goal, tables)
            own = [candidate, by_tables]
            candidate = times.fastest(own, None).best
            fitting = times.fastest([*own, *known] if is_free else own, limits).fitting
    progress("writing a program for each worker")
    if limits is not None and not fits(candidate, limits):
        first = candidate_of(plain) if candidate.decided.decision.plan.deliveries else candidate
        try:
            candidate = within(first, ask, limits, goal)
        except InfeasibleError:
            if fitting is None:
                raise
            candidate = fitting
    if times is not None and fitting is not None:
        candidate = min(fitting, candidate, key=times.seconds)
    if may_share and not candidate.decided.decision.plan.deliveries:
        candidate = shared_where_room(candidate, limits, goal, descriptions, tables, progress)
    if machine is not None:
        candidate = from_the_nearest(candidate, machine, limits, measured)
    decided, partitioned = candidate.decided, candidate.partitioned
    decision = decided.decision
    complete = replace(
        complete_plan(decision.plan, partitioned),
        strategy=strategy,
        gap_of=judged_by if decision.plan.certified_gap is None else decision.plan.gap_of,
        estimate=time_of(decided, decision.plan, partitioned.program, machine, measured),
        described_by=source,
        undescribed=undescribed_ops(decided.graph, decided.ops, decision.plan, descriptions.is_unknown),
        in_place=form.in_place,
        kept=kept_apart,
    )
    program = partitioned.program
    write_folder(directory, plan_files(whole, content, complete, partitioned), program, data_folder, force=force)
    if sharding_annotations is not None:
        shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
        annotated, _ = with_annotations(ModelProto.FromString(content), complete, shapes)
        note_data_folder(annotated, data_folder, sharding_annotations.parent)
        write_bytes(sharding_annotations, annotated.SerializeToString(deterministic=True))
    steps = [step for worker in partitioned.program.workers for step in worker.steps]
    beside, said = None, []
    if machine is not None and topology is not None and times is not None and complete.estimate is not None:

        def of_a_part(machine: Machine, name: str, tables: CostTables) -> Decided:
            ways = level_ways(machine)
            part_of_it = replace(
                ask, workers=machine.device_count, levels=ways, strategy=name, effort="quick", tables=tables
            )
            return search(graph, ask=part_of_it)

        beside = Beside(
            *of_data(by_data, times, limits),
            others=tuple(
                others(
                    load_topology(topology),
                    workers,
                    of_a_part,
                    lambda machine: memory_limits(memory, machine, machine.device_count),
                    is_timed=judged_by == "time",
                    rates=tables.rates,
                    strategy=strategy,
                    profile=measured,
                    progress=progress,
                )
            ),
        )
        said = list(warnings(complete.estimate.estimated_seconds, workers, beside, strategy))
    elif machine is not None and objective is None and is_free:
        said = [LARGE if is_large(machine) else NO_SPEED]
    return PlanResult(
        plan=complete,
        directory=directory,
        search_seconds=decision.search_seconds,
        total_seconds=time.perf_counter() - started,
        ops=len(whole.ops),
        fetches=sum(isinstance(step, Fetch) for step in steps),
        segments=sum(isinstance(step, Segment) for step in steps),
        functions=len(partitioned.bodies),
        state_bytes=sum(graph.tensors[pair.current].size_bytes for pair in graph.state),
        arena_bytes=tuple(worker.arena_bytes for worker in partitioned.program.workers),
        workspace_bytes=tuple(worker.workspace_bytes for worker in partitioned.program.workers),
        collectives=counted(collectives(partitioned.program)),
        prices=priced,
        values=values_of(whole.notes),
        objective=judged_by,
        found_by=decision.plan.strategy,
        beside=beside,
        warnings=tuple(said),
    )


def canonical_under(rules: Rules, whole: Graph) -> tuple[Canonical, tuple[str, ...]]:
    """A model in its canonical form, and the tensors that stay in it because rules name them.

    A pin gives a tiling to a tensor that would be read in place, and a prohibition takes a placement from it: the
    tensor stays. A prohibition by a pattern is for the tensors that there are; those that would be read in place stay
    only where it matches no other.
    """
    form = canonical(whole)
    if not form.in_place:
        return form, ()
    there = set(whole.tensors) - form.in_place.keys() - whole.constants.keys()
    named = {name for pattern in rules.pins for name in matching(pattern, form.in_place, None)}
    for pattern, _ in rules.forbidden:
        if pattern in form.in_place or not matching(pattern, there, None):
            named.update(matching(pattern, form.in_place, None))
    if not named:
        return form, ()
    return canonical(whole, named), tuple(sorted(named))
