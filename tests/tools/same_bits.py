"""What is computed again, held against what is kept: the same bits, the bytes that are predicted, the memory planned.

    python tests/tools/same_bits.py MODEL ... [--recompute all '*' auto chain] [--workers 2 4] [--steps 3] [--name]

A model is planned without recomputation; the plan with copies divides everything alike, each copy as its original. So
nothing but the copies can make other bits. Both run as `tofu run` has them run. Where results differ, the runtime has
fused ops of the one program otherwise than of the other: then both run once more, each op as it stands, and --name
says where bits part. `auto` is what planning computes again where there is room for half of the activations, or for as
much more as can be met, and that plan runs, too; `chain` is the set of those `auto` offers that saves half of what can
be saved. Models: files, or names of the zoo.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from drawn_inputs import sample
from planner import opdefs
from planner.api import grad
from planner.artifacts.program import Segment
from planner.artifacts.worker_model import WorkerModel
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, TofuError, UsageError
from planner.features.zoo import models as zoo
from planner.graph.core.model import Graph, Role
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import Activations, originals, recomputable, recomputed
from planner.graph.step.purposes import Purpose
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.options.running import RunOptions
from planner.partition.build import partition
from planner.partition.occupancy import occupancy
from planner.partition.segments import Partitioned
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit.trial import fullest
from planner.planning.machines import Target
from planner.planning.recomputation.offers import Offers
from planner.planning.recomputation.with_copies import with_copies
from planner.planning.recomputing import Recompute, again_of
from planner.planning.request import ModelSource, PlanRequest
from planner.planning.session import Session
from planner.runtime.engine.core import sessions
from planner.runtime.engine.core.backend import CpuBackend
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.run import run_with
from planner.runtime.run_report import RunResult
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.descriptions import Descriptions
from planner.training.doors.read import read_step
from planner.units import format_bytes
from world import DIMS


@dataclass(frozen=True)
class Case:
    """A model, and one plan of it without recomputation."""

    graph: Graph
    """In its canonical form."""
    plan: Decision
    descriptions: Descriptions

    @classmethod
    def of(cls, graph: Graph, workers: int) -> Case:
        """Plans a model, quickly.

        Args:
            graph: a training step as it is read.
            workers: how many.
        """
        form, descriptions = canonical(lower_randomness(graph)).graph, opdefs.standard()
        return cls(form, decide_with_bodies(form, descriptions, SearchRequest(workers, effort="quick")), descriptions)

    def options(self, steps: int) -> RunOptions:
        """How the model is run: of integers that nothing bounds, every second one is 1."""
        inputs: dict[str, np.ndarray] = {}
        for name in (name for name in self.graph.inputs if self.graph.roles[name] is Role.DATA):
            tensor = self.graph.tensors[name]
            try:
                inputs |= sample(self.graph, (name,), 0)
            except UsageError:
                inputs[name] = (np.arange(tensor.elements) % 2).astype(tensor.dtype.array_dtype).reshape(tensor.shape)
        return RunOptions(steps=steps, inputs=inputs, random_weights=True, allow_nan=True)

    def again(self, *texts: str) -> tuple[str, ...]:
        """The activations that an option's words are for."""
        return again_of(Recompute.parse(texts), self.graph, self.descriptions)

    def with_copies(self, again: tuple[str, ...]) -> Decision:
        """The plan in which some activations are computed again, each copy divided as what it is a copy of."""
        return with_copies(self.plan, self.graph, again, self.descriptions, CostTables(self.plan.rates))

    def limits(self) -> Iterator[int]:
        """Bytes on each worker that leave room for half of what activations take when the plan is fullest, then for
        three quarters, seven eighths.
        """
        program = partition(self.plan.graph, self.plan.ops, self.plan).program
        fullest = [occupancy(program, self.plan.graph, worker.worker) for worker in program.workers]
        most = max(fullest, key=lambda one: one.total_bytes)
        kept = most.amounts(most.fullest).get(Purpose.ACTIVATIONS, 0)
        yield from (most.total_bytes - kept // parts for parts in (2, 4, 8))

    def planned_within(self, limit: int) -> tuple[LoadedPlan, tuple[str, ...]]:
        """The plan that ``--recompute auto`` makes of the model, and what is computed again.

        Args:
            limit: bytes on each worker.

        Raises:
            InfeasibleError: no plan was found that fits.
        """
        workers = self.plan.workers
        source = ModelSource(Path(), ReadOptions(), self.descriptions, None, make=lambda: self.graph)
        options = PlanOptions(model=source.model, effort="quick")
        session = Session(PlanRequest(options, source, Target(workers), (limit,) * workers))
        trial = session.planned().trial
        told = session.complete(trial).recomputed
        return _with_program(self.graph, trial.partitioned), () if told is None else told.tensors

    def of_chain(self) -> tuple[str, ...]:
        """Of the sets that ``auto`` offers the first that saves half of what the last one does, with this plan; the one
        in the middle where none saves anything.
        """
        tables = CostTables(self.plan.rates)
        offers = Offers(self.graph, self.descriptions, tables, self.plan, least_cost(tables))
        most, least = (fullest(offers.taken_by(self.plan, number)) for number in (0, len(offers.sets) - 1))
        number = offers.first_with_room(self.plan, max(least, (most + least) // 2), 0)
        assert number is not None, "the last set has room"
        return Activations(self.graph).copied(offers.sets[number or len(offers.sets) // 2])


def _with_program(graph: Graph, partitioned: Partitioned) -> LoadedPlan:
    workers = zip(partitioned.program.workers, partitioned.fixed, strict=True)
    models = tuple(WorkerModel(worker, partitioned.bodies, fixed, "") for worker, fixed in workers)
    return LoadedPlan(graph, partitioned.program, models, model_digest="of the model")


def loaded(graph: Graph, plan: Decision) -> LoadedPlan:
    """A plan with its program, in memory.

    Args:
        graph: the model, which has no copies.
        plan: of it, with or without.
    """
    return _with_program(graph, partition(plan.graph, plan.ops, plan))


@contextmanager
def each_op_as_it_stands() -> Iterator[None]:
    """Sessions optimise nothing."""
    usual = sessions.SessionMaker.session
    sessions.SessionMaker.session = lambda self, model, **_: usual(  # type: ignore[method-assign]
        self, sessions.in_float32(model), is_literal=True
    )
    try:
        yield
    finally:
        sessions.SessionMaker.session = usual  # type: ignore[method-assign]


@dataclass(frozen=True)
class Compared:
    """Two runs, without recomputation and with it."""

    plain: RunResult
    again: RunResult
    plan: LoadedPlan
    """With copies."""

    @property
    def differing(self) -> tuple[str, ...]:
        """Outputs of the last step that are not the same bits."""
        return tuple(
            name for name, array in self.plain.results.items() if array.tobytes() != self.again.results[name].tobytes()
        )

    def check(self) -> None:
        """See ``check``."""
        check(self.again, self.plan)


def check(run: RunResult, plan: LoadedPlan) -> None:
    """Bytes moved are those that were predicted, and arenas are as planned."""
    assert run.moved_bytes == run.predicted_bytes
    assert all(fetch.predicted_bytes == fetch.moved_bytes for fetch in run.fetches)
    planned = [worker.arena_bytes for worker in plan.program.workers]
    for taken, stated in zip(run.arena_bytes, planned, strict=True):
        assert abs(taken - stated) <= stated / 1000


def compared(case: Case, again: tuple[str, ...], steps: int = 3) -> Compared:
    """Runs the plan of a case without recomputation and with it.

    Args:
        case: the case.
        again: the activations that are computed again.
        steps: of training.
    """
    plan, options = loaded(case.graph, case.with_copies(again)), case.options(steps)
    return Compared(run_with(loaded(case.graph, case.plan), options), run_with(plan, options), plan)


def read(name: str) -> Graph:
    """A training step: of a file, of the zoo, or one that is made of a forward model, on the mean squared error."""
    file = Path(name)
    if not file.exists():
        return zoo.build(name)
    dims = {} if file.parent.name != "world" else DIMS.get(file.stem, {})
    try:
        graph = read_step(file, dims=dims or None, values=None, state_pairs=None, operators=opdefs.standard())
        recomputable(graph)
    except UsageError:
        with tempfile.TemporaryDirectory() as folder:
            step = Path(folder) / "step.onnx"
            outputs = onnx.load(file, load_external_data=False).graph.output
            target = next(one.name for one in outputs if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT)
            grad(file, loss="mse", optimizer="sgd", lr=0.01, loss_input=target, output=step, dim=dims or None)
            return read_step(step, dims=None, values=None, state_pairs=None, operators=opdefs.standard())
    return graph


@contextmanager
def noted() -> Iterator[dict[tuple[int, str], tuple[bytes, Segment]]]:
    """What segments make, by worker and buffer, as of the last step, and by which segment."""
    usual, found = CpuBackend.segment, dict[tuple[int, str], tuple[bytes, Segment]]()

    def segment(self: CpuBackend, step: Segment, model: WorkerModel, arrays: Mapping[str, Any]) -> Callable[[], Any]:
        compute = usual(self, step, model, arrays)

        def run() -> Any:
            done = compute()
            for name in step.outputs:
                found[model.program.worker, name] = arrays[name].tobytes(), step
            return done

        return run

    CpuBackend.segment = segment  # type: ignore[method-assign]
    try:
        yield found
    finally:
        CpuBackend.segment = usual  # type: ignore[method-assign]


def fused_otherwise(case: Case, again: tuple[str, ...]) -> list[str]:
    """Where bits part: tensors that differ from those without copies though nothing that they are made of does, and the
    ops of the two segments that make them, which the runtime fuses in two ways.

    Args:
        case: the case.
        again: what is computed again.
    """
    plan, options = case.with_copies(again), case.options(1)
    of = originals(case.graph, recomputed(case.graph, again))
    with noted() as plain:
        run_with(loaded(case.graph, case.plan), options)
    with noted() as copied:
        run_with(loaded(case.graph, plan), options)
    types = {bound.op.name: bound.op.op_type for bound in plan.ops}
    differing: set[tuple[int, str]] = set()
    rows = []
    for (worker, name), (content, step) in copied.items():
        known = plain.get((worker, of.get(name, name)))
        if known is None or known[0] == content:
            continue
        differing.add((worker, name))
        if differing.isdisjoint((worker, read) for read in step.inputs):
            ways = [" ".join(types[op] for op in one.ops[-6:]) for one in (known[1], step)]
            rows.append(f"{name} ({ways[0]} | {ways[1]})")
    return list(dict.fromkeys(rows))


def picked(case: Case) -> tuple[int, LoadedPlan, tuple[str, ...]] | None:
    """The first of a case's limits that ``auto`` keeps to, its plan, and what is computed again; None: no limit is."""
    for limit in case.limits():
        with suppress(InfeasibleError):
            return limit, *case.planned_within(limit)
    return None


def _row(name: str, workers: int, text: str, steps: int, *, is_named: bool) -> str:
    case, within = Case.of(read(name), workers), ""
    if text == "auto":
        chosen = picked(case)
        if chosen is None:
            return "no plan was found that fits"
        limit, plan, again = chosen
        within = f" in {format_bytes(limit)}"
        if not again:
            return f"{len(case.graph.ops)} ops, fits{within} with nothing computed again"
        run = run_with(plan, case.options(steps))
        check(run, plan)
        assert max(run.arena_bytes) <= limit
    else:
        again = case.of_chain() if text == "chain" else case.again(text)
    if not again:
        return "nothing is computed again"
    found = compared(case, again, steps)
    found.check()
    said = f"{len(case.graph.ops)} ops, {len(again)} again{within}"
    if not found.differing:
        return f"{said}: equal"
    far = max(
        float(np.abs(found.plain.results[one].astype(float) - found.again.results[one].astype(float)).max())
        for one in found.differing
    )
    ops = fused_otherwise(case, again) if is_named else []
    with each_op_as_it_stands():
        literal = compared(case, again, steps)
    verdict = "equal" if not literal.differing else f"DIFFER in {len(literal.differing)}"
    fused = f"{len(found.differing)} of {len(found.plain.results)} differ by {far:.1e}, fused otherwise"
    return f"{said}: {fused}{' at ' + ', '.join(ops[:3]) if ops else ''}; without, {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Recomputation: the same bits.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--recompute", nargs="+", default=["all", "*"])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--name", action="store_true", help="of results that differ, name the ops")
    chosen = parser.parse_args()
    wrong = 0
    for name in chosen.models:
        for workers in chosen.workers:
            for text in chosen.recompute:
                started = time.process_time()
                try:
                    row = _row(name, workers, text, chosen.steps, is_named=chosen.name)
                except (TofuError, AssertionError) as error:
                    row = f"{type(error).__name__}: {str(error)[:150]}"
                wrong += "DIFFER" in row or "Error" in row
                print(f"{name:40} {workers} {text:4} {row}  {time.process_time() - started:.1f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
