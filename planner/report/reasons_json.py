"""Causes, answers to why and summaries as plain values for ``--json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.algebra.region import Region
from planner.reasons import Cause, Delivery, Kept, Outlook, Summary, Why


def cause(found: Cause) -> dict[str, Any]:
    """One cause of what a plan costs."""
    return {
        "kind": found.kind,
        "names": list(found.names),
        "cost_bytes": found.cost_bytes,
        "share": found.share,
        "reason": found.reason,
    }


def kept(found: Kept) -> dict[str, Any]:
    """Tensors that several workers have."""
    return {"names": list(found.names), "held_bytes": found.held_bytes, "reason": found.reason}


def why(found: Why) -> dict[str, Any]:
    """The answer of one tensor or op."""
    return {
        "kind": found.kind,
        "name": found.name,
        "about": found.about,
        "role": None if found.role is None else found.role.value,
        "axes": list(found.axes),
        "shape": list(found.shape),
        "choice": found.choice,
        "tiles": [_region(tile) for tile in found.tiles],
        "deliveries": [_delivery(one) for one in found.deliveries],
        "moved_bytes": found.moved_bytes,
        "excess_bytes": found.excess_bytes,
        "plan_cost_bytes": found.plan_cost_bytes,
        "reason": found.reason,
        "runners_up": [{**asdict(one), "changed": list(one.changed)} for one in found.runners_up],
        "remark": found.remark,
        "limit_bytes": found.limit_bytes,
    }


def summary(found: Summary) -> dict[str, Any]:
    """What one wants to know of a plan."""
    return {
        "one_device": _outlook(found.one_device),
        "data_parallel": _outlook(found.data_parallel),
        "this_plan": _outlook(found.this_plan),
        "limit_bytes": found.limit_bytes,
        "causes": [cause(one) for one in found.causes],
        "commands": list(found.commands),
    }


def _outlook(found: Outlook) -> dict[str, Any]:
    return asdict(found)


def _delivery(found: Delivery) -> dict[str, Any]:
    return {
        "tensor": found.tensor,
        "op": found.op,
        "op_type": found.op_type,
        "strategy": found.strategy,
        "is_input": found.is_input,
        "regions": [_region(region) for region in found.regions],
        "is_partial": found.is_partial,
        "moved_bytes": found.moved_bytes,
        "reason": found.reason,
    }


def _region(region: Region) -> list[list[int]]:
    """Where it begins and where it ends, by dim; the end is not in it."""
    return [list(region.lo), list(region.hi)]
