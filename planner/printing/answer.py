"""Why one tensor lies as it does, or one op is divided as it is, for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from planner.printable import some
from planner.printing.console import ReportConsole
from planner.printing.drawing import by_region, drawn
from planner.printing.facts import counted
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
    cost = f"{format_bytes(why.moved_bytes)} moved per iteration over all workers"
    if why.excess_bytes:
        cost += f", {format_bytes(why.excess_bytes)} excess"
    facts = [("tiling" if why.kind == "tensor" else "strategy", why.choice), ("costs", cost), ("why", why.reason)]
    console.print_paragraphs(facts)
    console.print()
    console.print_line(_head(why))
    for line in drawn(why.tiles, why.shape, why.axes, console.columns - 2):
        console.print_line("  " + line)
    if why.kind == "tensor":
        _deliveries(console, "made by", [one for one in why.deliveries if not one.is_input], "makes", why)
        _deliveries(console, "read by", [one for one in why.deliveries if one.is_input], "needs", why)
    else:
        _deliveries(console, "reads", [one for one in why.deliveries if one.is_input], "needs", why)
        _deliveries(console, "makes", [one for one in why.deliveries if not one.is_input], "makes", why)
    if why.runners_up:
        console.print()
        console.print_text("runners-up, each the best plan that a quick search finds near this one with that choice:")
        console.print_items([_runner_up_item(one) for one in why.runners_up])
    if why.remark:
        console.print_text(f"({why.remark})")


def _extents(why: Why) -> str:
    if why.kind == "tensor":
        return "[" + ", ".join(map(str, why.shape)) + "]"
    return " ".join(f"{axis}={extent}" for axis, extent in zip(why.axes, why.shape, strict=True))


def _head(why: Why) -> str:
    what = "tiles" if why.kind == "tensor" else "parts"
    divided = [
        axis
        for number, axis in enumerate(why.axes)
        if any((tile.lo[number], tile.hi[number]) != (0, why.shape[number]) for tile in why.tiles)
    ]
    name = "dim " if why.kind == "tensor" else ""
    if not divided:
        return f"{what} by worker"
    if len(divided) == 1:
        return f"{what} by worker ({name}{divided[0]} across)"
    if len(divided) == 2:
        return f"{what} by worker ({name}{divided[0]} down, {name}{divided[1]} across)"
    return f"{what} by worker ({', '.join(name + axis for axis in divided)} are divided)"


def _deliveries(console: ReportConsole, head: str, found: Sequence[Delivery], verb: str, why: Why) -> None:
    """Prints deliveries, the dearest first."""
    if not found:
        return
    console.print()
    console.print_line(head)
    ordered = sorted(found, key=lambda one: -one.moved_bytes)
    items = []
    for one in ordered[:_SHOWN_DELIVERIES]:
        other = f"{one.op} ({one.op_type}, split {one.strategy})" if why.kind == "tensor" else one.tensor
        shape = why.shape if why.kind == "tensor" else _hull(one)
        regions = "; ".join(f"{region} on {who}" for region, who in by_region(one.regions, shape, _SHOWN_REGIONS))
        regions = regions.replace("and on ", "and ")
        what = f"{verb} contributions to" if one.is_partial else verb
        items.append(((format_bytes(one.moved_bytes),), other, f"{what} {regions}: {one.reason}"))
    console.print_items(items)
    if len(ordered) > _SHOWN_DELIVERIES:
        console.print_text(f"and {len(ordered) - _SHOWN_DELIVERIES} more (--json)", 2)


def _hull(one: Delivery) -> tuple[int, ...]:
    """The extents that the regions reach, where the tensor's own are not told."""
    return tuple(max(region.hi[dim] for region in one.regions) for dim in range(one.regions[0].rank))


def _runner_up_item(one: RunnerUp) -> tuple[tuple[str, ...], str, str]:
    if one.cost_bytes is None or one.more_bytes is None:
        return ("no plan", ""), one.choice, one.why_not
    share = (
        "" if one.more_share is None else f"{'+' if one.more_share >= 0 else '-'}{format_ratio(abs(one.more_share))}"
    )
    more = f"{'+' if one.more_bytes >= 0 else '-'}{format_bytes(abs(one.more_bytes))}"
    said = []
    if one.lacking_bytes is not None:
        said.append(f"does not fit by {binary(one.lacking_bytes)}" if one.lacking_bytes else "fits")
    if one.changed:
        said.append(f"{counted(len(one.changed), 'other')} with it: {some(one.changed, _SHOWN_CHANGED)}")
    else:
        said.append("nothing else changes")
    if one.pin:
        said.append(f"--pin {shlex.quote(one.pin)}")
    return (f"at most {share}" if share else "at most", more), one.choice, "; ".join(said)
