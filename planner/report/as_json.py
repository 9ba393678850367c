"""Results as plain values for ``--json``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.artifacts.estimate import TimeEstimate
from planner.report import reasons_json
from planner.report.bounds import bounds_json, stepped_json
from planner.report.door import door_json
from planner.results import (
    Beside,
    BuildResult,
    Comparison,
    Explanation,
    ExportResult,
    GradResult,
    PlanResult,
    ReportResult,
    ZooResult,
    ZooRow,
)
from planner.search.user_rules.prices import Price

if TYPE_CHECKING:
    from planner.runtime.judge.compare import StepComparison, TensorComparison
    from planner.runtime.measure.profile import Profile
    from planner.runtime.run_report import RunResult

SCHEMA_VERSION = 1


def _seconds(estimate: TimeEstimate | None) -> float | None:
    return None if estimate is None else estimate.estimated_seconds


def grad(result: GradResult) -> dict[str, Any]:
    """What ``tofu grad --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "output": str(result.output),
        "loss": result.loss,
        "optimizer": result.optimizer,
        "inputs": list(result.inputs),
        "data": [
            {"name": row.name, "dtype": row.dtype, "shape": list(row.shape), "meaning": row.meaning}
            for row in result.data
        ],
        "results": list(result.results),
        "states": result.states,
        "state_elements": result.state_elements,
        "frozen": [row.name for row in result.parameters if row.verdict == "frozen"],
        "parameters": [
            {
                "name": row.name,
                "shape": list(row.shape),
                "verdict": row.verdict,
                "why": row.why,
                "evidence": list(row.evidence),
            }
            for row in result.parameters
        ],
        "ops": sum(result.ops_by_type.values()),
        "ops_by_type": dict(result.ops_by_type),
        **({"values": dict(result.values)} if result.values else {}),
        **({} if result.door is None else {"model_file": door_json(result.door)}),
        **({"left_out": dict(result.left_out)} if result.left_out else {}),
        "warnings": list(result.warnings),
    }


def plan(result: PlanResult) -> dict[str, Any]:
    """What ``tofu plan --json`` prints."""
    plan = result.plan.as_dict()
    plan.pop("iteration_spaces")
    return {
        **plan,
        "steps": stepped_json(result.plan.strategies),
        "slowest_share": result.plan.slowest_share,
        "objective": result.objective,
        "found_by": result.found_by,
        **({} if result.beside is None else _beside(result.beside)),
        "warnings": list(result.warnings),
        **({"left_out": list(result.left_out)} if result.left_out else {}),
        "another_effort": None if result.another_effort is None else asdict(result.another_effort),
        "directory": str(result.directory),
        **({} if result.has_models else {"has_models": False}),
        "search_seconds": result.search_seconds,
        "total_seconds": result.total_seconds,
        "part_seconds": dict(result.part_seconds),
        "ops": result.ops,
        "fetches": result.fetches,
        "segments": result.segments,
        "functions": result.functions,
        "arena_bytes": result.arena_bytes and list(result.arena_bytes),
        "workspace_bytes": result.workspace_bytes and list(result.workspace_bytes),
        "collectives": result.collectives and {kind: dict(total) for kind, total in result.collectives.items()},
        **({"values": dict(result.values)} if result.values else {}),
        **({"prices": [_price(price) for price in result.prices]} if result.prices else {}),
        **({} if result.summary is None else {"summary": reasons_json.summary(result.summary)}),
    }


def _beside(beside: Beside) -> dict[str, Any]:
    return {
        "data_parallel_seconds": beside.data_seconds,
        "data_parallel_is_exact": beside.is_exact,
        "other_workers": [asdict(other) for other in beside.others],
    }


def _price(price: Price) -> dict[str, Any]:
    is_found = {} if price.is_found else {"is_found": False}
    return {price.kind: price.rule, "price_bytes": price.price_bytes, **is_found}


def explain(result: Explanation) -> dict[str, Any]:
    """What ``tofu explain --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": result.plan.model,
        "workers": result.plan.workers,
        "strategy": result.plan.strategy,
        "moved_bytes": result.plan.moved_bytes,
        "excess_bytes": result.plan.excess_bytes,
        "repeated_bytes": result.plan.repeated_bytes,
        "slowest_share": result.plan.slowest_share,
        "soybean_bytes": result.plan.soybean_bytes,
        "estimated_seconds": _seconds(result.plan.estimate),
        "estimate": None if result.plan.estimate is None else result.plan.estimate.as_dict(),
        **({} if result.plan.stopped_by is None else {"stopped_by": result.plan.stopped_by}),
        "described_by": None if result.plan.described_by is None else asdict(result.plan.described_by),
        "undescribed": [asdict(op) for op in result.plan.undescribed],
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
                **({"delivers": row.delivers} if row.delivers else {}),
            }
            for row in result.tensors
        ],
        "state": [
            {"input": row.current, "output": row.following, "evidence": list(row.evidence), "why": row.why}
            for row in result.state
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
        "in_place": [
            {
                "name": row.name,
                "shape": list(row.shape),
                "held_by": row.held_by,
                "made_by": row.made_by,
                "read_by": list(row.read_by),
            }
            for row in result.in_place
        ],
        "bounds": bounds_json(result.distances),
        "steps": stepped_json(result.plan.strategies, (row.name for row in result.ops)),
        # Told of one op, or in a short answer: an empty list would say in any other answer that there is nothing.
        **({"memory": [asdict(row) for row in result.memory]} if result.memory else {}),
        **({"causes": [reasons_json.cause(one) for one in result.causes]} if result.causes else {}),
        **({"kept": [reasons_json.kept(one) for one in result.kept]} if result.kept else {}),
        **({"apart": [reasons_json.cause(one) for one in result.apart]} if result.apart else {}),
        **({} if result.why is None else {"why": reasons_json.why(result.why)}),
    }


def run(result: RunResult) -> dict[str, Any]:
    """What ``tofu run --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "steps": result.steps,
        "losses": [_finite(loss) for loss in result.losses],
        "fetches": len(result.fetches),
        "predicted_bytes": result.predicted_bytes,
        "moved_bytes": result.moved_bytes,
        "verified": result.verified,
        "no_reference": result.no_reference,
        "own_precision": list(result.own_precision),
        "max_error": _finite(result.max_error),
        "max_error_limit": _limit_of_largest(result.comparisons),
        "comparisons": [_comparison(comparison) for comparison in result.comparisons],
        **({} if result.door is None else {"model_file": door_json(result.door)}),
        "first_step": result.first_step,
        "seconds": list(result.seconds),
        # A worker's memory as the user counts it; the table tells copies between workers apart.
        "peak_bytes": [
            sum(parts) for parts in zip(result.arena_bytes, result.workspace_bytes, result.staging_bytes, strict=True)
        ],
        "arena_bytes": list(result.arena_bytes),
        "staging_bytes": list(result.staging_bytes),
        **({} if result.on_gpus is None else {"on_gpus": asdict(result.on_gpus), "nearly_same": result.nearly_same}),
        "checkpoint": None if result.checkpoint is None else str(result.checkpoint),
        "exported": list(result.exported),
        "export": None if result.export is None else str(result.export),
        "drawn": {
            "weights": {
                "tensors": len(result.drawn.weights),
                "bytes": result.drawn.weight_bytes,
                "seed": result.drawn.seed,
            },
            "inputs": [tensor.name for tensor in result.drawn.inputs],
        },
        "data_dir": None if result.data_folder is None else str(result.data_folder),
        "is_interrupted": result.is_interrupted,
        **({"accuracies": [_finite(share) for share in result.accuracies]} if result.accuracies else {}),
        **(
            {
                "evaluations": [
                    {
                        "step": one.step,
                        "loss": _finite(one.loss),
                        "accuracy": _finite(one.accuracy),
                        "batches": one.batches,
                    }
                    for one in result.evaluations
                ]
            }
            if result.evaluations
            else {}
        ),
        **({} if result.profile is None else {"profile": _profile(result.profile)}),
    }


def report(result: ReportResult) -> dict[str, Any]:
    """What ``tofu report --json`` prints."""

    def named(file: Path | None) -> str | None:
        return None if file is None else str(file)

    return {
        "schema_version": SCHEMA_VERSION,
        "directory": str(result.directory),
        "page": named(result.page),
        "page_bytes": result.page_bytes,
        "svg": named(result.svg),
        "trace": named(result.trace),
        "trace_events": result.trace_events,
        "measured": result.is_measured,
        "left_out": list(result.left_out),
    }


def _limit_of_largest(comparisons: Sequence[StepComparison]) -> float | None:
    """The limit of the tensor whose error is ``max_error``."""
    found = [comparison.worst for comparison in comparisons if comparison.worst is not None]
    return _finite(max(found, key=lambda tensor: tensor.error).limit) if found else None


def _comparison(comparison: StepComparison) -> dict[str, Any]:
    return {
        "step": comparison.step,
        "tensors": len(comparison.tensors),
        "noise": comparison.noise,
        "not_finite_elements": comparison.strange_elements,
        "untold_elements": comparison.untold_elements,
        "far": [asdict(tensor) for tensor in comparison.far],
        "worst": None if comparison.worst is None else _tensor(comparison.worst),
        "different": [_tensor(tensor) for tensor in comparison.tensors if not tensor.is_same],
        "judged": [_tensor(tensor) for tensor in comparison.tensors],
        "is_same": comparison.is_same,
    }


def _tensor(tensor: TensorComparison) -> dict[str, Any]:
    return {
        "name": tensor.tensor,
        "is_same": tensor.is_same,
        "is_noise": tensor.is_noise,
        "error": _finite(tensor.error),
        "whole_error": _finite(tensor.whole_error),
        "noise_error": _finite(tensor.noise_error),
        "limit": _finite(tensor.limit),
        "median_error": _finite(tensor.median_error),
        "median_limit": _finite(tensor.median_limit),
        "remark": tensor.remark,
    }


def _finite(number: float | None) -> float | None:
    """The number; None where it is infinite or none, which JSON cannot say."""
    return number if number is not None and math.isfinite(number) else None


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "iterations": profile.iterations,
        "iteration_seconds": profile.iteration_seconds,
        "estimated_seconds": _seconds(profile.estimate),
        "estimate": None if profile.estimate is None else profile.estimate.as_dict(),
        "fetch_share": profile.fetch_share,
        "workers": [asdict(worker) for worker in profile.workers],
        "steps": [{**asdict(step), "ops": list(step.ops)} for step in profile.steps],
    }


def compare(result: Comparison) -> dict[str, Any]:
    """What ``tofu compare --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": result.model,
        "workers": result.workers,
        "topology": result.topology,
        "objective": result.objective,
        "rows": [
            {
                "strategy": row.strategy,
                "moved_bytes": row.moved_bytes,
                "soybean_bytes": row.soybean_bytes,
                "peak_bytes": row.peak_bytes,
                "estimated_seconds": row.estimated_seconds,
                "excess_bytes": row.excess_bytes,
                "bounds": {"times_the_least": row.times_the_least},
                "cost": row.cost,
                "search_seconds": row.search_seconds,
                "reason": row.reason,
                **({} if row.sources is None else {"sources": asdict(row.sources)}),
            }
            for row in result.rows
        ],
    }


def zoo(result: ZooResult) -> dict[str, Any]:
    """What ``tofu zoo NAME --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": result.name,
        "output": str(result.output),
        "inputs": list(result.inputs),
        "parameters": result.parameters,
        "weight_bytes": result.weight_bytes,
        "state_bytes": result.state_bytes,
        "ops": sum(result.ops_by_type.values()),
        "ops_by_type": dict(result.ops_by_type),
    }


def zoo_models(rows: Sequence[ZooRow]) -> dict[str, Any]:
    """What ``tofu zoo --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "families": [
            {
                "form": row.form,
                "about": row.about,
                "optimizer": row.optimizer,
                "models": [{"name": name, "batch": batch} for name, batch in row.members.items()],
            }
            for row in rows
        ],
    }


def build(result: BuildResult) -> dict[str, Any]:
    """What ``tofu build --json`` prints."""
    return {"schema_version": SCHEMA_VERSION, **asdict(result), "directory": str(result.directory)}


def export(result: ExportResult) -> dict[str, Any]:
    """What ``tofu export --json`` prints."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(result).items()}
    return {"schema_version": SCHEMA_VERSION, **plain}
