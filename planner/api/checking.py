"""`tofu check`: whether plans cost more than a baseline says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from planner.api.arguments import takes
from planner.cost.by_op import op_cost
from planner.cost.tables import CostTables
from planner.errors import UsageError
from planner.gate.baseline import Baseline, ModelCosts, PlanCost, model_costs, op_type_at
from planner.gate.verdict import CheckResult, judge
from planner.graph.core.model import Graph, Op
from planner.graph.decompositions import expand
from planner.graph.reading.named_file import names_file
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.parts import whole_name
from planner.options import ReadOptions
from planner.options.planning import CheckOptions
from planner.partition.build import partition
from planner.planning.owners import decide_with_owners
from planner.planning.request import source_of, target_for
from planner.printable import some
from planner.progress import in_part
from planner.regular_file import read_regular
from planner.runtime.values.results import write_bytes
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.units import parse_ratio
from planner.whole import try_file

_SHOWN = 8
_MOST_BASELINE_BYTES = 64_000_000


@dataclass(frozen=True)
class _Checked:
    """A model that is to be planned."""

    name: str
    graph: Graph
    planned: Graph
    """Its canonical form, whose ops have names of the graph's, or make parts of its tensors."""
    costs: ModelCosts
    """Without plans."""
    keys: Mapping[str, str]
    """The place of every op in the graph."""
    before: ModelCosts | None
    """What the baseline says of it."""


@takes(CheckOptions)
def check(options: CheckOptions) -> CheckResult:  # noqa: D417 - those are the fields of the options
    """Plans models and compares moved bytes, peak memory and certified gap with a baseline.

    Nothing that is measured is compared, so that a machine's load changes nothing.

    Args:
        models: ONNX files, folders of plans, whose models are read as they were planned, or names of the zoo; or one
            of them. A file wins where both exist.
        gpus: numbers of workers, or one; each model is planned for each. None: of the plan that is the model.
        baseline: the file to compare with.
        max_increase: how much more is allowed, as a share of what the baseline says: ``1%``.
        update: write what the plans cost into the baseline, instead of refusing what it does not know.
        dim: sizes of symbolic dims.
        progress: told what is being done.

    Raises:
        TofuError: a model cannot be read or planned, or the baseline is missing, cannot be read, or is not of these
            models.

    Example:
        ::

            result = planner.check("train.onnx", gpus=[2, 4], baseline="costs.json")
            assert result.is_passed, [verdict.grew for verdict in result.verdicts]
    """
    models, gpus, update, progress = options.models, options.gpus, options.update, options.progress
    names = [str(models)] if isinstance(models, Path) else list(map(str, models))
    path = options.baseline
    _refuse_repeated(names)
    allowed = _share(options.max_increase)
    baseline = _read(path, update)
    if update:
        try_file(path)
    sources, graphs = {}, {}
    for name in names:
        progress(f"reading {name}")
        sources[name] = source_of(Path(name), ReadOptions(dim=options.dim if names_file(name) else None))
        graphs[name] = sources[name].read()
    workers = {name: _counts(name, gpus) for name in names}
    checked = _look_up(graphs, workers, baseline, path, update)
    verdicts = []
    written = dict(baseline.models)
    for model in checked:
        places: dict[str, list[str]] = {}
        for op in model.graph.ops:
            places.setdefault(model.keys[op.name], []).append(op.name)
        costs = {}
        for count in workers[model.name]:
            tell = in_part(progress, f"{model.name} on {count} workers")
            tell("planning")
            decided = decide_with_owners(
                model.planned, sources[model.name].descriptions, SearchRequest(count, progress=tell)
            )
            costs[count] = _cost(model, decided)
            verdicts.append(judge(model.name, count, model.costs, places, costs[count], model.before, allowed))
        # Plans on other numbers of workers stay in the file, but only as long as they are of this very model.
        old = model.before
        is_same = old is not None and old.structure == model.costs.structure and old.ops == model.costs.ops
        plans = old.plans if old is not None and is_same else {}
        written[model.name] = replace(model.costs, plans={**plans, **costs})
    if update:
        write_bytes(path, Baseline(written).to_json().encode())
    return CheckResult(str(path), allowed, tuple(verdicts), update)


def _refuse_repeated(models: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(models).items() if count > 1)
    if repeated:
        raise UsageError(f"{', '.join(repeated)}: is given twice")


def _counts(name: str, gpus: int | Sequence[int] | None) -> list[int]:
    """The numbers of workers of a model: those that are asked for, or that of the plan.

    Raises:
        UsageError: neither is there.
    """
    counts = target_for(Path(name), None, None).workers if gpus is None else gpus
    return sorted(set(counts)) if isinstance(counts, Sequence) else [counts]


def _share(text: str) -> Fraction:
    share = parse_ratio(text, "--max-increase")
    if share >= 1 and "%" not in text:
        raise UsageError(f"--max-increase: {text!r} would be {100 * share}%", hint=f"write {text}% or {100 * share}%")
    return share


def _read(path: Path, update: bool) -> Baseline:
    """The baseline; an empty one where there is none and one is to be written."""
    if not path.is_file():
        if path.exists() or not update:
            raise UsageError(f"baseline {path} does not exist", hint="write it with --update")
        return Baseline({})
    try:
        content = read_regular(path, most_bytes=_MOST_BASELINE_BYTES)
    except OSError as error:
        raise UsageError(f"baseline {path} cannot be read: {error.strerror}", hint="name another file") from error
    return Baseline.from_json(content, str(path))


def _look_up(
    graphs: Mapping[str, Graph], workers: Mapping[str, Sequence[int]], baseline: Baseline, path: Path, update: bool
) -> list[_Checked]:
    """Finds every model in the baseline.

    Raises:
        UsageError: some are not in it, or not on as many workers; all of them at once.
    """
    models, faults = [], []
    for name, graph in graphs.items():
        costs, keys = model_costs(graph)
        entry = _entry(name, costs, baseline)
        if not update:
            if entry is None:
                faults.append(f"{name}: {_unknown(name, costs, baseline)}")
            else:
                plans = baseline.models[entry].plans
                missing = [str(count) for count in workers[name] if count not in plans]
                if missing:
                    has = ", ".join(str(count) for count in sorted(plans)) or "none"
                    faults.append(f"{name}: no plan on {', '.join(missing)} workers; there are plans on {has}")
        before = None if entry is None else baseline.models[entry]
        models.append(_Checked(name, graph, canonical(graph).graph, costs, keys, before))
    if faults:
        raise UsageError(
            f"baseline {path} is not of what is checked",
            facts=tuple(faults),
            hint="if the models are as they should be, write their costs with --update",
        )
    return models


def _entry(name: str, costs: ModelCosts, baseline: Baseline) -> str | None:
    """The baseline's name of a model: one of its structure, by name, else by its sizes, else the only one."""
    entries = sorted(entry for entry, model in baseline.models.items() if model.structure == costs.structure)
    if name in entries:
        return name
    of_its_sizes = [entry for entry in entries if baseline.models[entry].ops == costs.ops]
    if of_its_sizes:
        return of_its_sizes[0]
    return entries[0] if len(entries) == 1 else None


def _unknown(name: str, costs: ModelCosts, baseline: Baseline) -> str:
    """Why no model of the baseline is this one."""
    entries = sorted(entry for entry, model in baseline.models.items() if model.structure == costs.structure)
    if entries:
        return f"may be any of {some(entries, _SHOWN)}, which differ in sizes only; check it by one of these names"
    if name not in baseline.models:
        return f"the baseline has no model of this structure, it has {some(sorted(baseline.models), _SHOWN)}"
    base, actual = (Counter(op_type_at(key) for key in model.ops) for model in (baseline.models[name], costs))
    kinds = [
        f"{actual[kind]} {kind} instead of {base[kind]}" for kind in sorted(base | actual) if base[kind] != actual[kind]
    ]
    return f"is another model than the baseline's: {some(kinds, _SHOWN) if kinds else 'its ops are joined otherwise'}"


def _key(model: _Checked, op: Op) -> str:
    """The place of an op; of one of parts, that of the op of the whole."""
    producer_of = model.graph.producer
    return model.keys[op.name if op.name in model.keys else producer_of[whole_name(op.outputs[0], producer_of)].name]


def _cost(model: _Checked, decided: Decision) -> PlanCost:
    """What a plan costs, with the cost of a body counted for the op that it stands for."""
    plan, tables = decided, CostTables()
    unplanned = frozenset(op.name for op in model.planned.ops if op.name not in plan.strategies)
    bodies = expand(model.planned, unplanned, workers=plan.workers).bodies
    owner = {op.name: body.op for body in bodies for op in body.ops}
    costs: Counter[str] = Counter()
    for bound in decided.ops:
        amount = op_cost(decided.graph, bound, plan.strategies, plan.tilings, tables)
        costs[_key(model, owner.get(bound.op.name, bound.op))] += amount
    assert sum(costs.values()) == plan.cost, "the plan's cost is the sum over its ops"
    return PlanCost(
        plan.cost,
        plan.moved_bytes,
        max(partition(decided.graph, decided.ops, plan).program.peak_bytes),
        None if plan.certified_gap is None else round(plan.certified_gap, 6),
        {key: amount for key, amount in costs.items() if amount},
    )
