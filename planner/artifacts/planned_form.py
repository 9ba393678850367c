"""The form of a model that a plan is of, and that the plan fits it: each names what the other one has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.artifacts.plan_folder import PlanFolder
from planner.errors import ModelError, UsageError
from planner.graph.decompositions import planned_graph
from planner.graph.deliveries import with_deliveries
from planner.graph.model import Graph
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.graph.rewriting.lanes import with_lanes
from planner.graph.rewriting.recomputation import Activations, recomputed


@dataclass(frozen=True, slots=True)
class PlannedForm:
    """A model as a plan divides it."""

    form: Canonical
    """The model, rewritten as it was before it was planned, with copies of what the plan computes again; equal
    ops of which workers have some whole are marked."""
    graph: Graph
    """The same with the bodies and shared deliveries of the plan: what the plan's tilings and strategies name."""


def planned_form(folder: PlanFolder, model: Graph) -> PlannedForm:
    """The form of a model that a plan is of.

    Args:
        folder: of the plan.
        model: as its file was read.

    Raises:
        ModelError: the plan is of another model than the one beside it, with all findings.
    """
    found = _named_form(folder, model)
    _check_complete(folder, found.graph)
    return found


def check_named(folder: PlanFolder, model: Graph) -> None:
    """Refuses a plan that names what its model does not have; a run, which goes by the worker models, needs no more.

    Args:
        folder: of the plan.
        model: as its file was read.

    Raises:
        ModelError: with all findings.
    """
    _named_form(folder, model)


def _named_form(folder: PlanFolder, model: Graph) -> PlannedForm:
    form = _form(folder, model)
    planned = planned_graph(form.graph, folder.plan.strategies, folder.plan.workers)
    _check_deliveries(folder, planned)
    graph = with_deliveries(planned, folder.plan.deliveries)
    ops = {op.name for op in graph.ops}
    strangers = [f"there is no op {name!r}, which has a strategy" for name in folder.plan.strategies if name not in ops]
    for name in folder.plan.tilings:
        if name not in graph.tensors:
            strangers.append(f"there is no tensor {name!r}, which has a tiling")
    _refuse_misfits(folder, strangers)
    return PlannedForm(form, graph)


def _form(folder: PlanFolder, model: Graph) -> Canonical:
    """The canonical form, with copies of what the plan computes again."""
    form, again = _canonical_form(folder, model), folder.plan.recomputed
    if again is None or not again.tensors:
        return form
    try:
        known = Activations(form.graph).all
    except UsageError as error:
        raise ModelError(f"{folder.path}: {error.what}, and the plan computes something again for it") from None
    strangers = [name for name in again.tensors if name not in known]
    _refuse_misfits(folder, [f"{name!r}, which is computed again, is no activation" for name in strangers])
    return replace(form, graph=recomputed(form.graph, again.tensors))


def _canonical_form(folder: PlanFolder, model: Graph) -> Canonical:
    stated = folder.plan.in_place
    if stated is None:
        return Canonical(model, {})
    form = canonical(model, folder.plan.kept)
    differing = sorted(stated.items() ^ form.in_place.items())
    _refuse_misfits(
        folder, [f"tensor {name!r} is not read in place as {held!r} everywhere" for name, held in differing]
    )
    return replace(form, graph=with_lanes(form.graph, folder.plan.owned))


def _check_deliveries(folder: PlanFolder, graph: Graph) -> None:
    """Refuses deliveries of tensors that there are not, or that nobody reads."""
    of: dict[str, str] = {}
    facts = []
    inputs = {op.name: op.inputs for op in graph.ops}
    for one in folder.plan.deliveries:
        of[one.name] = of.get(one.tensor, one.tensor)
        is_new = one.name not in graph.tensors and one.name not in inputs
        reads = [reader for reader in one.readers if of[one.name] in inputs.get(reader, ())]
        chained = [other for other in folder.plan.deliveries if other.tensor == one.name]
        if of[one.name] not in graph.tensors or not is_new or not (reads or chained):
            readers = ", ".join(map(repr, one.readers)) or "nobody"
            facts.append(f"delivery {one.name!r} of {one.tensor!r} is read by {readers}")
    _refuse_misfits(folder, facts)


def _check_complete(folder: PlanFolder, graph: Graph) -> None:
    """Refuses a plan that leaves ops or tensors of the model out."""
    plan = folder.plan
    facts = [f"op {op.name!r} has no strategy" for op in graph.ops if op.name not in plan.strategies]
    for name, tensor in graph.tensors.items():
        tiling = plan.tilings.get(name)
        if tiling is None and name not in graph.constants:
            facts.append(f"tensor {name!r} has no tiling")
        if tiling is not None and name not in plan.tensor_bytes:
            facts.append(f"tensor {name!r} has no bytes")
        if tiling is not None and any(dim >= max(1, len(tensor.shape)) for dim in tiling.dims):
            facts.append(f"tensor {name!r} of shape {list(tensor.shape)} cannot be tiled {tiling}")
    _refuse_misfits(folder, facts)


def _refuse_misfits(folder: PlanFolder, facts: Sequence[str]) -> None:
    if facts:
        raise ModelError(
            f"{folder.path}: the plan does not fit its model", facts=tuple(facts), hint="plan the model again"
        )
