"""The summary of ``tofu plan``: the plan beside data parallelism and one device, its largest costs, next commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from planner.cost.seconds.simulated import differs
from planner.printing.console import ReportConsole
from planner.printing.estimate import beside_facts, source_facts, time_parts
from planner.printing.facts import counted, gap, imbalance, restrictions, stopped, table_facts, undescribed
from planner.printing.simulated import simulated_text
from planner.reasons import Cause, Outlook, Summary
from planner.results import AnotherEffort, MicroBatches, PlanResult
from planner.search.user_rules.prices import Price
from planner.units import binary, format_bytes, format_ratio, format_seconds

_SHOWN_CAUSES = 2


def print_plan(result: PlanResult, file: TextIO) -> None:
    """Prints a plan, the answer first: time or bytes against data parallelism, memory, gap, and the largest costs."""
    console, best_plan, summary = ReportConsole(file), result.plan, result.summary
    console.print_paragraphs(stopped(best_plan))
    console.print_text(_headline(result))
    if summary is not None:
        outlooks(console, summary)
        if summary.scheme:
            console.print_text(f"tilings closest to: {summary.scheme}")
    console.print_paragraphs(
        [
            gap(best_plan, "" if result.another_effort is None else _another_effort(result.another_effort)),
            *imbalance(best_plan),
            *_collectives(result),
            *_objective(result),
            *_machine(result),
            *beside_facts(result.beside),
            *_micro_batches(result.micro_batches),
            *restrictions(best_plan, is_brief=True),
            *(("warning", warning) for warning in result.warnings),
            *constant_inputs(result.values),
            *([("left out", ", ".join(result.left_out))] if result.left_out else []),
            *(("largest costs" if not at else "", cause_text(cause)) for at, cause in enumerate(_causes(summary))),
            ("written to", _written(result)),
            *(
                ("" if at else "next", command)
                for at, command in enumerate(() if summary is None else summary.commands)
            ),
        ],
    )
    if result.prices:
        console.print()
        console.print_text("rules cost, in bytes of communication and of duplicated or uneven work:")
        console.print_items([((_price(price),), f"--{price.kind} {price.rule}", "") for price in result.prices])
    undescribed(console, best_plan.undescribed)


def outlooks(console: ReportConsole, summary: Summary) -> None:
    """Prints the needs of one device, data parallelism and the plan, side by side."""
    ways = (summary.one_device, summary.data_parallel, summary.this_plan)
    heads = ("one device", "data parallelism", "this plan")
    rows = [
        ("memory per worker", [_memory(way) for way in ways]),
        ("moved per step", [_or_none(way.moved_bytes, format_bytes) for way in ways]),
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


def largest(console: ReportConsole, causes: Sequence[Cause], moved_bytes: int, excess_bytes: int) -> None:
    """Prints the largest causes of a plan's cost; nothing where it costs nothing."""
    if not causes:
        return
    parts = f"{format_bytes(moved_bytes)} communication, {format_bytes(excess_bytes)} duplicated or uneven work"
    console.print()
    console.print_text(f"largest costs of {format_bytes(moved_bytes + excess_bytes)} ({parts}):")
    console.print_items([cause_item(cause) for cause in causes])


def cause_item(cause: Cause) -> tuple[tuple[str, ...], str, str]:
    """A cause for ``print_items``."""
    return (format_bytes(cause.cost_bytes), format_ratio(cause.share)), and_more(cause.names), cause.reason


def cause_text(cause: Cause) -> str:
    """A cause in a line: ``6.9 kB  reduce-scatter: MatMul is split along k (x2 and 3 more)``."""
    return f"{format_bytes(cause.cost_bytes)}  {cause.reason} ({and_more(cause.names)})"


def and_more(names: Sequence[str]) -> str:
    """``conv1 and 3 more``."""
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def constant_inputs(values: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Inputs that became constants."""
    return [("constant inputs", ", ".join(f"{name} = {value}" for name, value in values))] if values else []


def _micro_batches(batches: MicroBatches | None) -> list[tuple[str, str]]:
    """The bytes that all micro-batches move, and those of the one update."""
    if batches is None:
        return []
    moved, update = format_bytes(batches.moved_bytes), format_bytes(batches.update_bytes)
    return [("micro-batches", f"{batches.count:,}: {moved} for all of them, {update} once for the update")]


def _memory(way: Outlook) -> str:
    least = "at least " if way.is_least_memory else ""
    return "-" if way.memory_bytes is None else least + binary(way.memory_bytes)


def _or_none(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _fits(way: Outlook) -> str:
    return "not known" if way.fits is None else "yes" if way.fits else "no"


def _headline(result: PlanResult) -> str:
    """``mlp on 4 workers: 20.3 us per step (data parallelism 24.4 us)``."""
    plan, strategy = result.plan, "" if result.plan.strategy == "tofu" else f", strategy {result.plan.strategy}"
    machine = "" if plan.estimate is None else f" of {plan.estimate.topology}"
    head = f"{plan.model} on {counted(plan.workers, 'worker')}{machine}{strategy}: "
    by_data = None if result.summary is None else result.summary.data_parallel
    seconds, by_data_seconds = plan.estimated_seconds, None if by_data is None else by_data.estimated_seconds
    if seconds is not None:
        beside = "" if by_data_seconds is None else f" (data parallelism {format_seconds(by_data_seconds)})"
        return f"{head}{format_seconds(seconds)} per step{beside}"
    by_data_bytes = None if by_data is None else by_data.moved_bytes
    beside = "" if by_data_bytes is None else f" (data parallelism {format_bytes(by_data_bytes)})"
    return f"{head}{format_bytes(plan.moved_bytes)} moved per step{beside}"


def _causes(summary: Summary | None) -> Sequence[Cause]:
    return () if summary is None else summary.causes[:_SHOWN_CAUSES]


def _collectives(result: PlanResult) -> list[tuple[str, str]]:
    """The collectives of the plan's program by kind; nothing where no program was made."""
    texts = (f"{kind} {format_bytes(total['moved_bytes'])}" for kind, total in (result.collectives or {}).items())
    return [("collectives", ", ".join(texts) or "none")] if result.collectives is not None else []


def _written(result: PlanResult) -> str:
    seconds = f"{format_seconds(result.total_seconds)} (search {format_seconds(result.search_seconds)})"
    models = "" if result.has_models else "; no models yet: `tofu build` or `tofu run` makes them"
    return f"{result.directory} in {seconds}{models}"


def _machine(result: PlanResult) -> list[tuple[str, str]]:
    """The parts of the estimated time, and how many numbers the topology leaves to assumptions."""
    estimate = result.plan.estimate
    if estimate is None:
        return table_facts(result.plan)
    assumed = counted(len(estimate.assumptions), "assumption")
    return [
        ("estimated time", time_parts(estimate)),
        *_simulated(result, estimate.estimated_seconds),
        *source_facts(estimate.sources),
        *([("  assumed", f"{assumed}: `tofu explain {result.directory}`")] if estimate.assumptions else []),
    ]


def _simulated(result: PlanResult, estimated_seconds: float) -> list[tuple[str, str]]:
    """The simulated time, where it differs notably from the estimated one."""
    simulated = result.simulated_seconds
    if simulated is None or not differs(estimated_seconds, simulated):
        return []
    text = simulated_text(estimated_seconds, simulated)
    return [("  simulated", f"{text}: `tofu explain {result.directory} --view time`")]


def _another_effort(another: AnotherEffort) -> str:
    if another.effort is None:
        return another.tries
    return f"try --effort {another.effort}: {another.tries}"


def _objective(result: PlanResult) -> list[tuple[str, str]]:
    """The objective where a topology would allow another one, and the strategy of the literature that won, if any."""
    winner = f"; the best plan is that of {result.found_by}" if result.found_by != result.plan.strategy else ""
    aim = {"bytes": "bytes (communication, duplicated and uneven work)", "time": "estimated time"}[result.objective]
    is_of_bytes = result.objective == "bytes" and result.plan.estimate is not None
    return [("objective", aim + winner)] if is_of_bytes or winner else []


def _price(price: Price) -> str:
    """The price of a rule, against a plan without it."""
    if not price.is_found:
        return "not found: the search was stopped"
    if price.price_bytes is None:
        return "no plan without it"
    return f"{format_bytes(price.price_bytes)} more"
