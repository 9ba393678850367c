"""Results as plain values for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.report.results import Explanation, GradResult, PlanResult

if TYPE_CHECKING:
    from planner.runtime.run import RunResult

SCHEMA_VERSION = 1


def grad(result: GradResult) -> dict[str, Any]:
    """What ``tofu grad --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "output": str(result.output),
        "loss": result.loss,
        "optimizer": result.optimizer,
        "inputs": list(result.inputs),
        "results": list(result.results),
        "states": result.states,
        "state_elements": result.state_elements,
        "ops": sum(result.ops_by_type.values()),
        "ops_by_type": dict(result.ops_by_type),
    }


def plan(result: PlanResult) -> dict[str, Any]:
    """What ``tofu plan --json`` prints."""
    plan = result.plan.as_dict()
    plan.pop("iteration_spaces")
    return {
        **plan,
        "directory": str(result.directory),
        "search_seconds": result.search_seconds,
        "total_seconds": result.total_seconds,
        "ops": result.ops,
        "fetches": result.fetches,
        "segments": result.segments,
        "functions": result.functions,
    }


def explain(result: Explanation) -> dict[str, Any]:
    """What ``tofu explain --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": result.plan.model,
        "workers": result.plan.workers,
        "strategy": result.plan.strategy,
        "moved_bytes": result.plan.moved_bytes,
        "soybean_bytes": result.plan.soybean_bytes,
        "tensors": [
            {
                "name": row.name,
                "shape": list(row.shape),
                "dtype": row.dtype,
                "role": row.role.value,
                "tiling": row.tiling,
                "tile_shape": list(row.tile_shape),
                "moved_bytes": row.moved_bytes,
                "made_by": row.made_by,
                "read_by": list(row.read_by),
            }
            for row in result.tensors
        ],
        "ops": [
            {
                "name": row.name,
                "op_type": row.op_type,
                "strategy": row.strategy,
                "variables": list(row.variables),
                "inputs": list(row.inputs),
                "outputs": list(row.outputs),
            }
            for row in result.ops
        ],
    }


def run(result: RunResult) -> dict[str, Any]:
    """What ``tofu run --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "steps": result.steps,
        "losses": list(result.losses),
        "predicted_bytes": result.predicted_bytes,
        "moved_bytes": result.moved_bytes,
        "verified": result.verified,
        "max_error": result.max_error,
    }
