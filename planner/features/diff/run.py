"""``tofu diff``: two plans side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from planner.api.arguments import takes
from planner.artifacts.place import MANIFEST, PLAN
from planner.artifacts.plan_folder import PlanFolder, open_folder
from planner.artifacts.planned_form import planned_form
from planner.descriptions import of_plan
from planner.errors import UsageError
from planner.features.diff.difference import Difference, PlannedModel, difference
from planner.features.diff.options import DiffOptions
from planner.graph.compare.counterparts import Counterparts, counterparts, in_common
from planner.graph.core.model import Graph
from planner.graph.folding.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.progress import in_part

_COMMON: Final = 0.5
"""Two versions of a model have more than this share of the smaller one's ops in common."""


@takes(DiffOptions)
def diff(options: DiffOptions) -> Difference:  # noqa: D417 - those are the fields of the options
    """What differs between two plans, of one model or of two versions of it, and what it costs.

    Args:
        a: a plan's folder, or the plan.json in it.
        b: another one.
        progress: told what is being done.

    Raises:
        TofuError: one is no plan, or the models have too little in common.

    Example:
        ::

            planner.show(planner.diff("plan-data", "plan"))
    """
    folders = tuple(_open(Path(path)) for path in (options.a, options.b))
    progress = options.progress
    progress("reading the models")
    first, second = (_planned(folder) for folder in folders)
    progress("looking for what they have in common")
    matching = counterparts(first.model, second.model)
    _refuse_unrelated(first, second, matching)
    tell = in_part(progress, "penalty")
    excess = []
    for planned in (first, second):
        tell(str(planned.path))
        excess.append(_excess(planned))
    return difference(first, second, matching, (excess[0], excess[1]))


def _excess(planned: PlannedModel) -> Mapping[str, int] | None:
    """The penalty of each op; None where the descriptions are not there that the plan was made with."""
    descriptions, source = of_plan(planned.plan.described_by)
    return planned.excess(descriptions) if source == planned.plan.described_by else None


def _open(path: Path) -> PlanFolder:
    """The folder that a path names, or that the plan.json which it names is in.

    Raises:
        TofuError: neither.
    """
    if path.is_file():
        if path.name == PLAN and (path.parent / MANIFEST).is_file():
            return open_folder(path.parent)
        hint = "name the folder that `tofu plan` wrote"
        raise UsageError(f"{path} is no plan's folder, nor the {PLAN} in one", hint=hint)
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint="write a plan with `tofu plan`")
    return open_folder(path)


def _planned(folder: PlanFolder) -> PlannedModel:
    """A folder's plan with its graphs.

    Raises:
        ModelError: the plan does not fit its model.
    """
    plan = folder.plan
    model = read_model(folder.model, operators=EVERY_OPERATOR)
    return PlannedModel(folder.path, plan, model, planned_form(folder, model).form.graph)


def _refuse_unrelated(first: PlannedModel, second: PlannedModel, matching: Counterparts) -> None:
    if matching.is_of_one_structure:
        return
    least = min(len(first.model.ops), len(second.model.ops))
    common = in_common(first.model, second.model, matching)
    if common <= _COMMON * least:
        raise UsageError(
            f"{first.path} and {second.path} are plans of unrelated models",
            facts=(
                _description(first.path, first.model),
                _description(second.path, second.model),
                f"{common:,} ops are in both, with all that they read and make",
            ),
            hint="diff two plans of one model, or of two versions of it",
        )


def _description(path: Path, model: Graph) -> str:
    return f"{path}: {model.name}, {len(model.ops):,} ops"
