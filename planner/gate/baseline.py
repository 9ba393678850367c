"""The file that `tofu check` compares with: what plans cost when it was written.

    {"schema_version": 2,
     "models": {
       "mlp-5x300": {                                          the name that it was checked by, or its file
         "structure": "a4d9...",                               see planner.graph.compare.structure
         "ops": {"00001.Gemm.649b9dc68f27": "[400, 300] [300, 300] -> [400, 300]", ...},
         "plans": {
           "4": {"cost": 6970000, "moved_bytes": 6960000, "peak_bytes": 3000224, "certified_gap": null,
                 "op_costs": {"00001.Gemm.649b9dc68f27": 240000, ...}}}}}}

Ops are named by their place in the graph, so that renamed tensors change nothing. Everything is sorted, one fact in a
line: a change of the file shows what has changed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from planner.errors import UsageError
from planner.graph.compare.structure import structure_of
from planner.graph.core.model import Graph
from planner.records import plain, reader
from planner.strict_json import JsonError, Value, parse_json

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan."""

    told: ClassVar = "cost moved_bytes peak_bytes certified_gap"

    cost: int
    """The moved bytes, and the penalty of repeated and uneven work (``planner.cost.excess``)."""
    moved_bytes: int
    """The bytes that move between workers in one iteration."""
    peak_bytes: int
    """The memory of the worker that needs the most."""
    certified_gap: float | None
    """The optimality gap of the plan; None where no bound is known."""
    op_costs: Mapping[str, int]
    """The cost of each op, by its place in the graph; ops that cost nothing are left out."""


@dataclass(frozen=True)
class ModelCosts:
    """The costs of a model's plans."""

    structure: str
    """Digest of the graph without names and sizes."""
    ops: Mapping[str, str]
    """The shapes of an op's inputs and outputs, by its place in the graph; of all ops at that place, where it is not
    one.
    """
    plans: Mapping[int, PlanCost]
    """The plan for each number of workers."""


@dataclass(frozen=True)
class Baseline:
    """The contents of a baseline's file."""

    models: Mapping[str, ModelCosts]
    """The costs of each model, by the name that it was checked by."""

    def to_json(self) -> str:
        """The file's text: sorted, and equal for equal costs."""
        models = {name: _model_as_dict(model) for name, model in sorted(self.models.items())}
        return json.dumps({"schema_version": SCHEMA_VERSION, "models": models}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Baseline:
        """Reads a baseline that ``to_json`` wrote.

        Args:
            text: of the file.
            source: the file's name, for the error.

        Raises:
            UsageError: it is no baseline, or one of another version.
        """
        again = "write it anew with --update"
        try:
            data = parse_json(text)
            version = data["schema_version"].value
            if version != SCHEMA_VERSION:
                raise UsageError(
                    f"baseline {source} has schema version {version!r}; this tofu reads {SCHEMA_VERSION}",
                    hint=f"remove the file and {again}, by the tofu that is to read it",
                )
            return reader(cls, {Mapping[int, PlanCost]: _plans})(data)
        except JsonError as error:
            raise UsageError(
                f"baseline {source} cannot be read: {error}", hint=f"name another file, or remove it and {again}"
            ) from None


def shapes_by_place(graph: Graph, keys: Mapping[str, str]) -> dict[str, str]:
    """The shapes of every place of a graph; see ``ModelCosts.ops``."""
    forms: dict[str, Counter[str]] = {}
    for op in graph.ops:
        inputs, outputs = (
            " ".join(str(list(graph.tensors[name].shape)) for name in names if name)
            for names in (op.inputs, op.outputs)
        )
        forms.setdefault(keys[op.name], Counter())[f"{inputs} -> {outputs}"] += 1
    return {
        key: "; ".join(f"{count} x {form}" if count > 1 else form for form, count in sorted(counts.items()))
        for key, counts in sorted(forms.items())
    }


def model_costs(graph: Graph) -> tuple[ModelCosts, Mapping[str, str]]:
    """The part of a baseline on a graph, without plans; and the place of every op."""
    structure = structure_of(graph)
    return ModelCosts(structure.digest, shapes_by_place(graph, structure.keys), {}), structure.keys


def op_type_at(place: str) -> str:
    """The op type at a place of a graph."""
    return place.partition(".")[2].rpartition(".")[0]


def _model_as_dict(model: ModelCosts) -> dict[str, Any]:
    return {
        "structure": model.structure,
        "ops": dict(sorted(model.ops.items())),
        "plans": {
            str(workers): {
                **plain(cost),
                "op_costs": dict(sorted(cost.op_costs.items())),
            }
            for workers, cost in sorted(model.plans.items())
        },
    }


def _plans(data: Value) -> dict[int, PlanCost]:
    plans = reader(dict[str, PlanCost])(data)
    for workers in plans:
        if not re.fullmatch("[1-9][0-9]{0,8}", workers):
            raise data.fault(f"has the key {workers!r}, which is no number of workers")
    return {int(workers): plan for workers, plan in plans.items()}
