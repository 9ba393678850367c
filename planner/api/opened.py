"""A plan's folder, opened: the model's form that was planned, and its ops with their descriptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from planner.artifacts.plan import DescriptionFile, Partitioning
from planner.artifacts.plan_folder import PlanFolder, open_folder
from planner.artifacts.planned_form import planned_form
from planner.descriptions import of_plan
from planner.graph.core.model import Graph
from planner.graph.folding.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import Canonical
from planner.search.decision import Decision
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
    lacking: DescriptionFile | None = None
    """The user's descriptions that the plan was made with, if they are not at hand (``remembered``)."""

    def require_descriptions(self) -> None:
        """Refuses a plan whose descriptions are not at hand.

        Raises:
            UsageError: so it is.
        """
        if self.lacking is not None:
            of_plan(self.lacking, self.folder.path)

    @property
    def decided(self) -> Decision:
        """The plan as a search gives one."""
        decision = {field.name: getattr(self.folder.plan, field.name) for field in fields(Partitioning)}
        return Decision(**decision, graph=self.graph, ops=self.ops)


def opened(
    directory: Path | None, *, with_models: bool = True, as_planned: bool = True, with_descriptions: bool = True
) -> Opened:
    """Opens a plan's folder, and checks that its plan fits its model.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        with_models: the workers' models are looked at, if they are there.
        as_planned: they are the very files that were planned (``open_folder``).
        with_descriptions: the user's descriptions that the plan was made with are needed.

    Raises:
        TofuError: there is no plan, it does not fit, or the descriptions that are needed are not at hand.
    """
    folder = open_folder(directory, with_models=with_models, as_planned=as_planned)
    model = read_model(folder.model, operators=EVERY_OPERATOR)
    planned = planned_form(folder, model)
    descriptions, source = of_plan(folder.plan.described_by, folder.path if with_descriptions else None)
    lacking = folder.plan.described_by if source is None else None
    ops = descriptions.bind_all(planned.graph)
    return Opened(folder, model, planned.form, planned.graph, ops, descriptions, lacking)
