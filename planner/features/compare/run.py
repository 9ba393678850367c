"""``tofu compare``: every strategy of the literature beside the found plan."""

from __future__ import annotations

from planner.api.arguments import takes
from planner.artifacts.place import is_plan
from planner.artifacts.plan_folder import open_folder
from planner.cost.distance import distances, times_the_least
from planner.cost.tables import CostTables
from planner.features.compare.options import CompareOptions
from planner.features.compare.result import Comparison, ComparisonRow
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target, time_of
from planner.planning.objective import LITERATURE, of_the_literature
from planner.planning.request import PlanRequest, source_of, target_for
from planner.planning.session import Session
from planner.search.decide import STRATEGIES
from planner.search.decision import Decision


@takes(CompareOptions)
def compare(options: CompareOptions) -> Comparison:  # noqa: D417 - those are the fields of the options
    """Plans a training graph by every strategy of the literature.

    Tofu's own plan is the one that ``plan`` makes where nothing else is asked for: on a topology for the least time.

    Args:
        model: an ONNX file, or a model in memory without external data; a name of the zoo; or the folder of a plan,
            which stands for its model, machine, profile and rates.
        gpus: how many workers; may be left out with a topology or a plan.
        topology: a topology file, or the name of one that ships, for estimates of time.
        dim: sizes of symbolic dims.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read, or not even tofu's own search has a plan.

    Example:
        ::

            for row in planner.compare("train.onnx", gpus=8).rows:
                print(row.strategy, row.moved_bytes, row.reason)
    """
    model, progress = options.model, options.progress
    request = PlanRequest(
        PlanOptions(model=model, progress=progress),
        source_of(model, ReadOptions(dim=options.dim)),
        target_for(model, options.gpus, options.topology),
        rates=open_folder(model, with_models=False).plan.rates if is_plan(model) else None,
    )
    session, target, tables = Session(request), request.target, CostTables()
    rows = []
    timed: list[tuple[float, Decision]] = []  # without their programs, which together take much memory
    for name, outcome in of_the_literature(LITERATURE, session.by_strategy, progress):
        if isinstance(outcome, Trial):
            rows.append(_row(name, outcome, target, tables))
            timed.append((rows[-1].estimated_seconds or 0.0, outcome.decided))
        else:
            rows.append(ComparisonRow(name, STRATEGIES[name], None, None, None, None, outcome.what))
    progress("strategy tofu")
    fastest = [Trial(min(timed, key=lambda entry: entry[0])[1])] if timed else []
    rows.insert(0, _row("tofu", session.planned_beside(fastest), target, tables))
    machine = None if target.machine is None else target.machine.name
    return Comparison(session.graph.name, target.workers, tuple(rows), machine, request.objective)


def _row(name: str, trial: Trial, target: Target, tables: CostTables) -> ComparisonRow:
    decided, program = trial.decided, trial.partitioned.program
    estimate = None if target.machine is None else time_of(trial, target.machine, target.profile)
    return ComparisonRow(
        name,
        STRATEGIES[name],
        decided.moved_bytes,
        max(program.peak_bytes),
        decided.excess_bytes,
        decided.search_seconds,
        estimated_seconds=None if estimate is None else estimate.estimated_seconds,
        sources=None if estimate is None else estimate.sources,
        soybean_bytes=program.soybean_bytes,
        times_the_least=times_the_least(
            distances(decided.graph, decided.ops, decided.strategies, decided.tilings, tables, with_grids=False)
        ),
    )
