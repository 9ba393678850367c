"""Estimates of time as lines of a table."""

from __future__ import annotations

from planner.artifacts.estimate import ComputeSources, TimeEstimate
from planner.results import Beside
from planner.units import format_bytes, format_seconds

_SHOWN_DEVICES = 16


def time_parts(estimate: TimeEstimate) -> str:
    """The parts of an estimated step."""
    compute, transfer = format_seconds(estimate.compute_seconds), format_seconds(estimate.transfer_seconds)
    synchronization = format_seconds(estimate.synchronisation_seconds)
    return f"{compute} computing, {transfer} transfers, {synchronization} synchronization"


def estimate_facts(estimate: TimeEstimate | None) -> list[tuple[str, str]]:
    """The estimated time of an iteration on the plan's topology; nothing where there is none."""
    if estimate is None:
        return []
    facts = [
        ("topology", estimate.topology),
        ("estimated time", f"{format_seconds(estimate.estimated_seconds)} per step: {time_parts(estimate)}"),
        ("  if overlapped", format_seconds(estimate.overlapped_seconds)),
        *source_facts(estimate.sources),
    ]
    facts += [
        (f"  over {level.name}", f"{format_bytes(level.moved_bytes)}, links busy {format_seconds(level.busy_seconds)}")
        for level in estimate.levels
    ]
    # Usually worker k is on device k, which goes without saying.
    if estimate.devices != tuple(range(len(estimate.devices))):
        shown = ", ".join(str(device) for device in estimate.devices[:_SHOWN_DEVICES])
        suffix = ", ..." if len(estimate.devices) > _SHOWN_DEVICES else ""
        facts.append(("  devices, by worker", shown + suffix))
    facts += [("  assumed", assumption) for assumption in estimate.assumptions]
    return facts


def beside_facts(beside: Beside | None) -> list[tuple[str, str]]:
    """The estimates of other numbers of devices; nothing where none is."""
    if beside is None:
        return []
    facts = []
    if beside.others:
        texts = (f"{format_seconds(count.estimated_seconds)} on {count.workers}" for count in beside.others)
        facts.append(("other GPU counts", ", ".join(texts)))
    return facts


def source_facts(sources: ComputeSources | None) -> list[tuple[str, str]]:
    """The share of the compute that was measured; nothing where no profile was given."""
    if sources is None:
        return []
    text = f"{sources.measured_ops:,} of {sources.ops:,} ops as measured ({format_seconds(sources.measured_seconds)})"
    for count, seconds, how in (
        (sources.scaled_ops, sources.scaled_seconds, "scaled from the nearest measured shapes"),
        (sources.roofline_ops, sources.roofline_seconds, f"by the roofline times {sources.roofline_factor or 0:.3g}"),
    ):
        text += f", {count:,} {how} ({format_seconds(seconds)})" if count else ""
    return [("  computing", text), ("  measured on", sources.device)]


def beside_measurement(estimate: TimeEstimate | None, iteration_seconds: float) -> list[tuple[str, str]]:
    """The estimate beside what was measured, and how far off it is."""
    if estimate is None:
        return []
    facts = []
    for name, seconds in (("estimated", estimate.estimated_seconds), ("  if overlapped", estimate.overlapped_seconds)):
        # ICML'18, table 4, has the same error: (estimated - measured) / measured.
        error = (seconds - iteration_seconds) / iteration_seconds if iteration_seconds else 0.0
        facts.append((name, f"{format_seconds(seconds)} on {estimate.topology}, {error:+.0%}"))
    return facts
