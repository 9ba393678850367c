"""A plan's folder, opened: the model's form that was planned, and its ops with their descriptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from planner.artifacts.plan import Decision, DescriptionFile
from planner.artifacts.plan_folder import PlanFolder, open_folder
from planner.artifacts.planned_form import planned_form
from planner.descriptions import in_force
from planner.errors import UsageError
from planner.graph.model import Graph
from planner.graph.reading.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import Canonical
from planner.search.decided import Decided
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions


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
    descriptions: Descriptions
    """Those that are in force."""
    described_by: DescriptionFile | None = None
    """The user's descriptions among them; None: tofu's own alone."""

    @property
    def decided(self) -> Decided:
        """The plan as a search gives one."""
        decision = {field.name: getattr(self.folder.plan, field.name) for field in fields(Decision)}
        return Decided(**decision, graph=self.graph, ops=self.ops)


def opened(directory: Path | None, opdefs: Path | None, *, with_models: bool = True, as_planned: bool = True) -> Opened:
    """Opens a plan's folder, and checks that its plan fits its model.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        opdefs: the file of descriptions that the plan was made with, or None.
        with_models: the workers' models are looked at, if they are there.
        as_planned: they are the very files that were planned (``open_folder``).

    Raises:
        TofuError: there is no plan, or it does not fit.
    """
    folder = open_folder(directory, with_models=with_models, as_planned=as_planned)
    model = read_model(folder.model, operators=EVERY_OPERATOR)
    planned = planned_form(folder, model)
    descriptions, source = in_force(opdefs, "replicate")
    if source is not None and source != folder.plan.described_by:
        _refuse_other_descriptions(folder, source)
    return Opened(
        folder, model, planned.form, planned.graph, descriptions.bind_all(planned.graph), descriptions, source
    )


def _refuse_other_descriptions(folder: PlanFolder, source: DescriptionFile) -> None:
    made_with = folder.plan.described_by
    if made_with is None:
        raise UsageError(f"--opdefs: the plan in {folder.path} was made without descriptions of your own")
    raise UsageError(
        f"--opdefs: the plan in {folder.path} was made with other descriptions",
        facts=(
            f"plan: {made_with.name}, sha256 {made_with.sha256}",
            f"given: {source.name}, sha256 {source.sha256}",
        ),
        hint="give the file that the plan was made with, or plan the model again",
    )
