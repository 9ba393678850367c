"""A plan's folder, opened: the model's form that was planned, and its ops with their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from planner.artifacts.plan import Decision, DescriptionFile
from planner.artifacts.plan_folder import PlanFolder, newest_folder, open_folder
from planner.descriptions import in_force
from planner.errors import ModelError, UsageError
from planner.graph.bodies import planned_graph
from planner.graph.deliveries import with_deliveries
from planner.graph.model import Graph
from planner.graph.reading.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.search.decided import Decided
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan with what it is a plan of."""

    folder: PlanFolder
    model: Graph
    """As it was read."""
    form: Canonical
    """The form of it that was planned."""
    graph: Graph
    """That form with the bodies and shared deliveries of the plan."""
    ops: tuple[BoundOp, ...]
    """Of ``graph``, in its order."""

    @property
    def decided(self) -> Decided:
        """The plan as a search gives one."""
        told = {one.name: getattr(self.folder.plan, one.name) for one in fields(Decision)}
        return Decided(**told, graph=self.graph, ops=self.ops)


def opened(directory: Path | None, opdefs: Path | None) -> Opened:
    """Opens a plan's folder, and checks that its plan fits its model.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        opdefs: the file of descriptions that the plan was made with, or None.

    Raises:
        TofuError: there is no plan, or it does not fit.
    """
    folder = open_folder(directory if directory is not None else newest_folder(Path()))
    model = read_model(folder.model, operators=EVERY_OPERATOR)
    form = _form(folder, model)
    planned = planned_graph(form.graph, folder.plan.strategies)
    _check_deliveries(folder, planned)
    graph = with_deliveries(planned, folder.plan.deliveries)
    descriptions, source = in_force(opdefs, "replicate")
    if source is not None and source != folder.plan.described_by:
        _refuse_other_descriptions(folder, source)
    _check_tensors(folder, graph)
    return Opened(folder, model, form, graph, descriptions.bind_all(graph))


def _form(folder: PlanFolder, model: Graph) -> Canonical:
    """The form of the model that was planned."""
    stated = folder.plan.in_place
    if stated is None:
        return Canonical(model, {})
    form = canonical(model, folder.plan.kept)
    differing = sorted(stated.items() ^ form.in_place.items())
    _refuse_misfits(
        folder, [f"tensor {name!r} is not read in place as {held!r} everywhere" for name, held in differing]
    )
    return form


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
            facts.append(f"delivery {one.name!r} of {one.tensor!r} is read by {', '.join(one.readers) or 'nobody'}")
    _refuse_misfits(folder, facts)


def _check_tensors(folder: PlanFolder, graph: Graph) -> None:
    """Refuses a plan of another model than the one beside it."""
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


def _refuse_other_descriptions(folder: PlanFolder, given: DescriptionFile) -> None:
    made_with = folder.plan.described_by
    if made_with is None:
        raise UsageError(f"--opdefs: the plan in {folder.path} was made without descriptions of your own")
    raise UsageError(
        f"--opdefs: the plan in {folder.path} was made with other descriptions",
        facts=(
            f"plan: {made_with.name}, sha256 {made_with.sha256}",
            f"given: {given.name}, sha256 {given.sha256}",
        ),
        hint="give the file that the plan was made with, or plan the model again",
    )
