"""The output of ``tofu plan``: the plan beside what one would do without it, what costs most, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from planner.cost.seconds.simulated import differs
from planner.printing.console import ReportConsole
from planner.printing.estimate import beside_facts, source_facts
from planner.printing.facts import counted, cuts_text, gap, restrictions, slowest, table_facts, undescribed
from planner.printing.simulated import simulated_text
from planner.reasons import Cause, Outlook, Summary
from planner.results import AnotherEffort, MicroBatches, PlanResult
from planner.search.user_rules.prices import Price
from planner.units import binary, format_bytes, format_ratio, format_seconds


def plan(result: PlanResult, file: TextIO) -> None:
    """Prints a plan that was found and what it costs."""
    console, best_plan = ReportConsole(file), result.plan
    how = f"cuts: {cuts_text(best_plan.cuts)}; strategy: {best_plan.strategy}"
    console.print_text(f"{best_plan.model} on {counted(best_plan.workers, 'worker')} ({how})")
    console.print()
    if result.summary is not None:
        outlooks(console, result.summary)
        console.print()
    console.print_paragraphs(
        [
            *_micro_batches(result.micro_batches),
            ("objective", _objective(result)),
            *slowest(best_plan),
            gap(best_plan),
            *_machine(result),
            *beside_facts(result.beside),
            *restrictions(best_plan),
            *(("warning", warning) for warning in result.warnings),
            *constant_inputs(result.values),
            ("state", f"{binary(result.state_bytes)} in all"),
            ("search", f"{format_seconds(result.search_seconds)}, from file to files {_total(result)}"),
            ("written to", str(result.directory)),
            *([] if result.has_models else [("models", "not written: `tofu build` makes them, or `tofu run`")]),
            *([("left out", ", ".join(result.left_out))] if result.left_out else []),
        ],
    )
    if result.prices:
        console.print()
        console.print_text("what was asked for costs, in moved bytes and excess:")
        console.print_items([((_price(price),), f"--{price.kind} {price.rule}", "") for price in result.prices])
    # Causes are shares of the totals above; the commands stand last, where a user goes on.
    undescribed(console, best_plan.undescribed)
    if result.summary is not None:
        largest(console, result.summary.causes, best_plan.moved_bytes, best_plan.excess_bytes)
    if result.another_effort is not None:
        console.print()
        console.print_text(_another_effort(result.another_effort))
    if result.summary is not None:
        console.print()
        console.print_text("to go on with:")
        for command in result.summary.commands:
            console.print_line(f"  {command}")


def outlooks(console: ReportConsole, summary: Summary) -> None:
    """Prints what one device, data parallelism and the plan need, side by side."""
    ways = (summary.one_device, summary.data_parallel, summary.this_plan)
    heads = ("one device", "data parallelism", "this plan")
    rows = [
        ("memory per worker", [_memory(way) for way in ways]),
        ("moved per iteration", [_or_none(way.moved_bytes, format_bytes) for way in ways]),
    ]
    if any(way.estimated_seconds is not None for way in ways):
        rows.append(("estimated time", [_or_none(way.estimated_seconds, format_seconds) for way in ways]))
    if summary.limit_bytes is not None:
        rows.append((f"fits in {binary(summary.limit_bytes)}", [_fits(way) for way in ways]))
    widest = max(len(name) for name, _ in rows)
    console.print_line(" " * widest + "".join(f"  {head:>16}" for head in heads))
    for name, cells in rows:
        console.print_line(f"{name:<{widest}}" + "".join(f"  {cell:>16}" for cell in cells))
    for head, way in zip(heads, ways, strict=True):
        if way.remark:
            console.print_text(f"{head}: {way.remark}")
    if any(way.is_least_memory for way in ways):
        console.print_text("at least: what lies there op by op; a program was not made for it.")


def largest(console: ReportConsole, causes: Sequence[Cause], moved_bytes: int, excess_bytes: int) -> None:
    """Prints the largest causes of what a plan costs; nothing where it costs nothing."""
    if not causes:
        return
    parts = f"{format_bytes(moved_bytes)} moved, {format_bytes(excess_bytes)} excess"
    console.print()
    console.print_text(f"what costs most of {format_bytes(moved_bytes + excess_bytes)} ({parts}):")
    console.print_items([cause_item(cause) for cause in causes])


def cause_item(cause: Cause) -> tuple[tuple[str, ...], str, str]:
    """A cause for ``print_items``."""
    return (format_bytes(cause.cost_bytes), format_ratio(cause.share)), and_more(cause.names), cause.reason


def and_more(names: Sequence[str]) -> str:
    """``conv1 and 3 more``."""
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def constant_inputs(values: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Inputs that became constants."""
    return [("constant inputs", ", ".join(f"{name} = {value}" for name, value in values))] if values else []


def _micro_batches(batches: MicroBatches | None) -> list[tuple[str, str]]:
    """What moves for them, and what once a step."""
    if batches is None:
        return []
    moved, update = format_bytes(batches.moved_bytes), format_bytes(batches.update_bytes)
    return [("micro-batches", f"{batches.count:,}, which move {moved} in all; the update moves {update} once")]


def _memory(way: Outlook) -> str:
    least = "at least " if way.is_least_memory else ""
    return "-" if way.memory_bytes is None else least + binary(way.memory_bytes)


def _or_none(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _fits(way: Outlook) -> str:
    return "not known" if way.fits is None else "yes" if way.fits else "no"


def _total(result: PlanResult) -> str:
    return format_seconds(result.total_seconds)


def _machine(result: PlanResult) -> list[tuple[str, str]]:
    """For what the time is estimated, and what was taken for what the topology does not say."""
    estimate = result.plan.estimate
    if estimate is None:
        return table_facts(result.plan)
    compute, transfer, synchronisation = (
        format_seconds(seconds)
        for seconds in (estimate.compute_seconds, estimate.transfer_seconds, estimate.synchronisation_seconds)
    )
    parts = f"{compute} computing, {transfer} transfers, {synchronisation} synchronisation"
    return [
        ("topology", estimate.topology),
        ("estimated time", f"{format_seconds(estimate.estimated_seconds)} per iteration: {parts}"),
        *_simulated(result, estimate.estimated_seconds),
        ("  if overlapped", format_seconds(estimate.overlapped_seconds)),
        *source_facts(estimate.sources),
        *(("  assumed", assumption) for assumption in estimate.assumptions),
    ]


def _simulated(result: PlanResult, estimated_seconds: float) -> list[tuple[str, str]]:
    """The simulated time, where it differs notably from the estimated one."""
    simulated = result.simulated_seconds
    if simulated is None or not differs(estimated_seconds, simulated):
        return []
    text = simulated_text(estimated_seconds, simulated)
    return [("  simulated", f"{text}; `tofu explain {result.directory} --time` says where")]


def _another_effort(another: AnotherEffort) -> str:
    if another.effort is None:
        return another.tries
    if another.about_seconds is None:
        return f"--effort {another.effort} would try: {another.tries}"
    return f"--effort {another.effort} would try, in about {format_seconds(another.about_seconds)}: {another.tries}"


def _objective(result: PlanResult) -> str:
    """The objective of the plan, and the strategy of the literature that found it, if one did."""
    aim = {"bytes": "the least cost (moved bytes and excess)", "time": "the least estimated time"}[result.objective]
    whose = f"; the plan is that of {result.found_by}" if result.found_by != result.plan.strategy else ""
    return aim + whose


def _price(price: Price) -> str:
    """What a rule costs, against a plan without it."""
    if not price.is_found:
        return "not found: the search was stopped"
    if price.price_bytes is None:
        return "no plan without it"
    return f"{format_bytes(price.price_bytes)} more"
