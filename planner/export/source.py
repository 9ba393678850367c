"""A plan's folder as what was planned: the graph in its planned form, its ops, and how each is divided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.artifacts.plan import Plan
from planner.artifacts.plan_folder import PlanFolder, open_folder
from planner.descriptions import in_force
from planner.errors import ModelError
from planner.graph.bodies import planned_graph
from planner.graph.deliveries import with_deliveries
from planner.graph.model import Graph
from planner.graph.reading.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.tdl.bind import BoundOp


@dataclass(frozen=True)
class Source:
    """What an export is made of."""

    plan: Plan
    model: Graph
    """As the user gave it."""
    graph: Graph
    """What was planned: the model's canonical form, bodies and deliveries in it."""
    ops: tuple[BoundOp, ...]
    """Of the graph, in its order."""


def source_of(directory: Path, opdefs: Path | None = None) -> Source:
    """Reads a plan's folder.

    Args:
        directory: the folder.
        opdefs: the file of descriptions that the plan was made with, or None.

    Raises:
        TofuError: it is no plan, or the plan does not fit its model.
    """
    folder = open_folder(directory)
    plan, model = folder.plan, read_model(folder.model, operators=EVERY_OPERATOR)
    whole = model if plan.in_place is None else canonical(model, plan.kept).graph
    graph = with_deliveries(planned_graph(whole, plan.strategies), plan.deliveries)
    _check(folder, graph)
    descriptions, _ = in_force(opdefs, "replicate")
    return Source(plan, model, graph, descriptions.bind_all(graph))


def _check(folder: PlanFolder, graph: Graph) -> None:
    """Refuses a plan of another model than the one beside it."""
    plan = folder.plan
    facts = [f"op {op.name!r} has no strategy" for op in graph.ops if op.name not in plan.strategies]
    for name, tensor in graph.tensors.items():
        tiling = plan.tilings.get(name)
        if tiling is None and name not in graph.constants:
            facts.append(f"tensor {name!r} has no tiling")
        elif tiling is not None and any(dim >= max(1, len(tensor.shape)) for dim in tiling.dims):
            facts.append(f"tensor {name!r} of shape {list(tensor.shape)} cannot be tiled {tiling}")
    if facts:
        raise ModelError(
            f"{folder.path}: the plan does not fit its model", facts=tuple(facts), hint="plan the model again"
        )
