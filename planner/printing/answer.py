"""The explanation of one tensor's tiling or one op's strategy, for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from planner.printable import some
from planner.printing.console import ReportConsole
from planner.printing.drawing import by_region, drawn
from planner.reasons import Delivery, RunnerUp, Why
from planner.units import binary, format_bytes, format_ratio

_SHOWN_DELIVERIES = 12
_SHOWN_REGIONS = 4
_SHOWN_CHANGED = 3


def answer(console: ReportConsole, why: Why) -> None:
    """Prints where it lies or how it is divided, what that costs and why, and what else was possible."""
    if why.kind == "tensor":
        role = "" if why.role is None else f"{why.role.value}, "
        console.print_line(f"{why.name}: {role}{why.about} {_extents(why)}")
    else:
        console.print_line(f"{why.name}: {why.about} {_extents(why)}")
    cost = f"{format_bytes(why.moved_bytes)} moved per step, all workers together"
    if why.excess_bytes:
        cost += f"; {format_bytes(why.excess_bytes)} of duplicated or uneven work"
    facts = [("tiling" if why.kind == "tensor" else "strategy", why.choice), ("costs", cost), ("why", why.reason)]
    console.print_paragraphs(facts)
    console.print()
    console.print_line(_head(why))
    for line in drawn(why.tiles, why.shape, why.axes, console.columns - 2):
        console.print_line("  " + line)
    inputs = [delivery for delivery in why.deliveries if delivery.is_input]
    outputs = [delivery for delivery in why.deliveries if not delivery.is_input]
    # As data flow: an op makes a tensor before others read it, and reads its inputs before it makes anything.
    if why.kind == "tensor":
        _deliveries(console, "made by", outputs, "makes", why)
        _deliveries(console, "read by", inputs, "needs", why)
    else:
        _deliveries(console, "reads", inputs, "needs", why)
        _deliveries(console, "makes", outputs, "makes", why)
    if why.runners_up:
        console.print()
        console.print_text("alternatives, each the best plan with that choice that a quick search finds:")
        console.print_items([_runner_up_item(runner_up) for runner_up in why.runners_up])
    if why.remark:
        console.print_text(f"({why.remark})")


def _extents(why: Why) -> str:
    if why.kind == "tensor":
        return "[" + ", ".join(map(str, why.shape)) + "]"
    return " ".join(f"{axis}={extent}" for axis, extent in zip(why.axes, why.shape, strict=True))


def _head(why: Why) -> str:
    unit = "shards" if why.kind == "tensor" else "parts"
    divided = [
        axis
        for number, axis in enumerate(why.axes)
        if any((tile.lo[number], tile.hi[number]) != (0, why.shape[number]) for tile in why.tiles)
    ]
    name = "dim " if why.kind == "tensor" else ""
    if not divided:
        return f"{unit} by worker"
    if len(divided) == 1:
        return f"{unit} by worker ({name}{divided[0]} across)"
    if len(divided) == 2:
        return f"{unit} by worker ({name}{divided[0]} down, {name}{divided[1]} across)"
    return f"{unit} by worker ({', '.join(name + axis for axis in divided)} are split)"


def _deliveries(console: ReportConsole, head: str, deliveries: Sequence[Delivery], verb: str, why: Why) -> None:
    """Prints deliveries, the dearest first."""
    if not deliveries:
        return
    console.print()
    console.print_line(head)
    ordered = sorted(deliveries, key=lambda delivery: -delivery.moved_bytes)
    items = []
    for delivery in ordered[:_SHOWN_DELIVERIES]:
        op = f"{delivery.op} ({delivery.op_type}, split {delivery.strategy})"
        peer, shape = (op, why.shape) if why.kind == "tensor" else (delivery.tensor, _hull(delivery))
        regions = "; ".join(f"{region} on {who}" for region, who in by_region(delivery.regions, shape, _SHOWN_REGIONS))
        regions = regions.replace("and on ", "and ")
        action = f"{verb} partial sums of" if delivery.is_partial else verb
        items.append(((format_bytes(delivery.moved_bytes),), peer, f"{action} {regions}: {delivery.reason}"))
    console.print_items(items)
    if len(ordered) > _SHOWN_DELIVERIES:
        console.print_text(f"and {len(ordered) - _SHOWN_DELIVERIES} more (--json)", 2)


def _hull(delivery: Delivery) -> tuple[int, ...]:
    """The extents that the regions reach, where the tensor's own are not told."""
    return tuple(max(region.hi[dim] for region in delivery.regions) for dim in range(delivery.regions[0].rank))


def _runner_up_item(runner_up: RunnerUp) -> tuple[tuple[str, ...], str, str]:
    if runner_up.cost_bytes is None or runner_up.more_bytes is None:
        return ("no plan", ""), runner_up.choice, runner_up.why_not
    share = runner_up.more_share
    share_text = "" if share is None else f"{'+' if share >= 0 else '-'}{format_ratio(abs(share))}"
    increase = f"{'+' if runner_up.more_bytes >= 0 else '-'}{format_bytes(abs(runner_up.more_bytes))}"
    remarks = []
    if runner_up.lacking_bytes is not None:
        remarks.append(f"{binary(runner_up.lacking_bytes)} above the limit" if runner_up.lacking_bytes else "fits")
    if runner_up.changed:
        remarks.append(f"also changes {some(runner_up.changed, _SHOWN_CHANGED)}")
    else:
        remarks.append("nothing else changes")
    if runner_up.pin:
        remarks.append(f"--pin {shlex.quote(runner_up.pin)}")
    return (f"at most {share_text}" if share_text else "at most", increase), runner_up.choice, "; ".join(remarks)
