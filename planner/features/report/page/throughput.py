"""The throughput of a plan: samples a second, and the share of its devices' peak."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from planner.algebra.tiling import UNCUT
from planner.artifacts.estimate import TimeEstimate
from planner.cost.roofline import computes_in
from planner.graph.core.model import Graph, Role
from planner.graph.step.deliveries import is_delivery
from planner.machine.topology_file import Device, Machine
from planner.tdl.bind import BoundOp
from planner.units import format_ratio


def throughput(graph: Graph, ops: Iterable[BoundOp], estimate: TimeEstimate | None, machine: Machine | None) -> str:
    """Samples a second, and the share of the devices' peak, in words; "" of a plan without an estimate."""
    if estimate is None:
        return ""
    devices = [] if machine is None else [machine.devices[device] for device in estimate.devices]
    share = peak_share(ops, devices, estimate.estimated_seconds) if devices else None
    peak = "" if share is None else f"{format_ratio(share)} of the devices' peak"
    return "; ".join(filter(None, (rate(graph, estimate.estimated_seconds), peak)))


def rate(graph: Graph, seconds: float) -> str:
    """``103,352 tokens a second``; "" of a graph without data.

    The first data input with a dim tells the unit: integers [batch, sequence] are tokens, numbers [batch, channels,
    height, width] are images; dim 0 of any other counts samples.

    Args:
        graph: of a plan.
        seconds: of a step.
    """
    inputs = (graph.tensors[name] for name in graph.inputs if graph.roles[name] is Role.DATA)
    data = next((tensor for tensor in inputs if tensor.shape), None)
    if data is None or not seconds:
        return ""
    kinds = {(False, 2): "tokens", (True, 4): "images"}
    unit = kinds.get((data.dtype.is_float, len(data.shape)), "samples")
    count = math.prod(data.shape) if unit == "tokens" else data.shape[0]
    return f"{count / seconds:,.0f} {unit} a second"


def peak_share(ops: Iterable[BoundOp], devices: Sequence[Device], seconds: float) -> float | None:
    """The floating-point operations of a step, each counted once, by those of the devices at their peaks in that time.

    Args:
        ops: of a plan.
        devices: of its workers.
        seconds: of a step.

    Returns:
        None where a peak is not stated.
    """
    needed_seconds = 0.0
    for bound in ops:
        dtype = computes_in((*bound.node.input_dtypes, *bound.node.output_dtypes))
        if dtype is None or is_delivery(bound.op):
            continue
        speeds = [device.flop_per_s(dtype) for device in devices]
        if not all(speeds):
            return None
        needed_seconds += float(bound.operations(bound.ranges(UNCUT)).sum()) / sum(speed or 0 for speed in speeds)
    return needed_seconds / seconds if seconds else None
