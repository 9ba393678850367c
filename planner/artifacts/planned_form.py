"""The form of a model that a plan is of, and that the plan fits it: each names what the other one has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.artifacts.form import Form
from planner.artifacts.plan_folder import PlanFolder
from planner.errors import ModelError, UsageError
from planner.graph.core.model import Graph
from planner.graph.decompositions import planned_graph
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.graph.rewriting.lanes import lanes_of, marked
from planner.graph.rewriting.recomputation import Activations, recomputed
from planner.graph.step.deliveries import SharedDelivery, with_deliveries


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
    form = _named_form(folder, model)
    _check_complete(folder, form.graph)
    return form


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
    plan = folder.plan
    form = divided(plan, plan.strategies, plan.workers, model, folder.path)
    ops = {op.name for op in form.graph.ops}
    strangers = [f"there is no op {name!r}, which has a strategy" for name in plan.strategies if name not in ops]
    for name in plan.tilings:
        if name not in form.graph.tensors:
            strangers.append(f"there is no tensor {name!r}, which has a tiling")
    _refuse_misfits(folder.path, strangers)
    return form


def divided(form: Form, planned: Collection[str] | None, workers: int, model: Graph, where: Path) -> PlannedForm:
    """The form of a model that is divided, whether a plan is of it or not.

    Args:
        form: what was made of the model.
        planned: names of the ops that are divided, see ``planned_graph``; None: none through its body.
        workers: how many there are.
        model: as its file was read.
        where: what says so, for the message.

    Raises:
        ModelError: the form is none of this model, with all findings.
    """
    canonical_form = _form(form, model, where)
    names = {op.name for op in canonical_form.graph.ops} if planned is None else planned
    graph = planned_graph(canonical_form.graph, names, workers)
    _check_deliveries(form.deliveries, graph, where)
    return PlannedForm(canonical_form, with_deliveries(graph, form.deliveries))


def _form(form: Form, model: Graph, where: Path) -> Canonical:
    """The canonical form, with copies of what is computed again."""
    canonical_form, again = _canonical_form(form, model, where), form.recomputed
    if again is None or not again.tensors:
        return canonical_form
    try:
        activations = Activations(canonical_form.graph).all
    except UsageError as error:
        raise ModelError(f"{where}: {error.what}, and the plan computes something again for it") from None
    strangers = [name for name in again.tensors if name not in activations]
    _refuse_misfits(where, [f"{name!r}, which is computed again, is no activation" for name in strangers])
    return replace(canonical_form, graph=recomputed(canonical_form.graph, again.tensors), lanes=None)


def _canonical_form(form: Form, model: Graph, where: Path) -> Canonical:
    if form.in_place is None:
        return Canonical(model, {})
    canonical_form = canonical(model, form.kept)
    differing = sorted(form.in_place.items() ^ canonical_form.in_place.items())
    names = sorted(form.in_parts.keys() | canonical_form.in_parts.keys())
    strangers = [name for name in names if form.in_parts.get(name) != canonical_form.in_parts.get(name)]
    _refuse_misfits(where, [f"tensor {name!r} has not these parts" for name in strangers])
    _refuse_misfits(where, [f"tensor {name!r} is not read in place as {held!r} everywhere" for name, held in differing])
    if not form.owned:
        return canonical_form
    lanes = lanes_of(canonical_form.graph)
    owned = [lane for lane in lanes if lane.name in form.owned]
    return replace(canonical_form, graph=marked(canonical_form.graph, owned), lanes=lanes)


def _check_deliveries(deliveries: Sequence[SharedDelivery], graph: Graph, where: Path) -> None:
    """Refuses deliveries of tensors that there are not, or that nobody reads."""
    of: dict[str, str] = {}
    facts = []
    inputs = {op.name: op.inputs for op in graph.ops}
    for delivery in deliveries:
        of[delivery.name] = of.get(delivery.tensor, delivery.tensor)
        is_new = delivery.name not in graph.tensors and delivery.name not in inputs
        reads = [reader for reader in delivery.readers if of[delivery.name] in inputs.get(reader, ())]
        chained = [follower for follower in deliveries if follower.tensor == delivery.name]
        if of[delivery.name] not in graph.tensors or not is_new or not (reads or chained):
            readers = ", ".join(map(repr, delivery.readers)) or "nobody"
            facts.append(f"delivery {delivery.name!r} of {delivery.tensor!r} is read by {readers}")
    _refuse_misfits(where, facts)


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
    _refuse_misfits(folder.path, facts)


def _refuse_misfits(where: Path, facts: Sequence[str]) -> None:
    if facts:
        raise ModelError(f"{where}: the plan does not fit its model", facts=tuple(facts), hint="plan the model again")
