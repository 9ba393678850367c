"""The output of `tofu profile`, as tables for people and as plain values."""

from __future__ import annotations

from typing import TextIO

from planner.features.profile.result import ProfileResult
from planner.machine.device_profile import MeasuredOp, places_text
from planner.printing.console import ReportConsole
from planner.units import format_bytes, format_seconds

_SHOWN_OPS = 12


def _row(op: MeasuredOp) -> tuple[str, ...]:
    inputs, outputs = (
        places_text(op.signature.inputs, op.shapes.inputs),
        places_text(op.signature.outputs, op.shapes.outputs),
    )
    if not op.seconds:
        return op.signature.op, inputs, outputs, format_seconds(0), "", ""
    rate = f"{op.operations / op.seconds / 1e9:.1f} GFLOP/s"
    return (
        op.signature.op,
        inputs,
        outputs,
        format_seconds(op.seconds),
        rate,
        f"{format_bytes(round(op.touched_bytes / op.seconds))}/s",
    )


def print_profile(result: ProfileResult, file: TextIO) -> None:
    """Prints what was measured, and the parts that take longest."""
    console = ReportConsole(file)
    profile, device = result.profile, result.profile.device
    threads = "1 thread" if device.threads == 1 else f"{device.threads} threads"
    lacking = f"; {result.model_unmeasured} could not be measured" if result.model_unmeasured else ""
    overhead = format_seconds(device.overhead_seconds)
    console.print_facts(
        [
            ("profile", str(result.output)),
            ("model", profile.model),
            ("workers", str(result.workers)),
            ("device", f"{device.kind}: {device.name}, {threads} for an op"),
            (
                "runtime",
                f"{device.runtime}; {overhead} of each run, which are beside its op, are taken off",
            ),
            ("measured", f"{len(profile.ops):,} parts of ops in {format_seconds(result.total_seconds)}"),
            ("the whole model", f"{format_seconds(result.model_seconds)} for {result.ops:,} ops{lacking}"),
        ]
    )
    console.print()
    longest = sorted(profile.ops, key=lambda op: -op.seconds)[:_SHOWN_OPS]
    heads = ("what takes longest", "inputs", "outputs", "time", "rate", "bandwidth")
    console.print_table(heads, [_row(op) for op in longest], heads[3:])
    if profile.unmeasured:
        console.print()
        rows = [
            (op.signature.op, places_text(op.signature.inputs, op.shapes.inputs), op.reason)
            for op in profile.unmeasured[:_SHOWN_OPS]
        ]
        console.print_table(("not measured", "inputs", "why"), rows)
        if len(profile.unmeasured) > _SHOWN_OPS:
            console.print_line(f"and {len(profile.unmeasured) - _SHOWN_OPS} more, which the file names")
