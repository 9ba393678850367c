"""The sections of a page, each a piece of HTML."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from planner.features.report.page.charts import PART_FILL, schedule_chart
from planner.features.report.page.facts import Beside, PlanFacts
from planner.features.report.page.layers import PARTS
from planner.features.report.page.markup import Child, Markup, element, joined
from planner.features.report.page.memory_charts import occupancy_chart, swatch
from planner.graph.core.model import Role
from planner.graph.step.purposes import Purpose
from planner.printable import some
from planner.printing.facts import gap_scope, recomputed
from planner.printing.occupancy import SAID
from planner.printing.planned import and_more
from planner.units import binary, format_bytes, format_ratio, format_seconds

_SHOWN_BUFFERS = 12
_SHOWN_NAMES = 3
_SHOWN_LAYERS = 60
_MUCH = 0.05
"""The share of the peak from which results are worth a hint."""


def verdict(facts: PlanFacts) -> Markup:
    """What one wants to know first."""
    plan = facts.plan
    rows: list[tuple[Child, Child]] = [
        ("Workers", f"{plan.workers}, by cuts of {' × '.join(map(str, plan.cuts)) or '1'}"),
        *([("Throughput", facts.throughput)] if facts.throughput else []),
        ("Communication", f"{format_bytes(plan.moved_bytes)} a step, over all workers"),
        ("Memory", _holds(facts)),
        ("Load imbalance", f"slowest worker +{format_ratio(plan.slowest_share - 1)}"),
        ("Gap", _code(gap(facts))),
    ]
    rows += [(name.capitalize(), text) for name, text in recomputed(plan)]
    if plan.stopped_by is not None:
        rows.append(("Search", f"ended early ({plan.stopped_by}); it had more to do"))
    # Before all that speaks for the plan.
    warned = joined(*(element("p", f"Warning: {warning}", class_="warning") for warning in plan.warnings))
    return _section("verdict", "The plan", element("p", _lead(facts), class_="lead"), warned, _list(rows))


def _lead(facts: PlanFacts) -> str:
    """The plan in one sentence, by what it is to have the least of, beside data parallelism."""
    plan, estimate = facts.plan, facts.plan.estimate
    data = next((way for way in facts.beside if way.moved_bytes is not None), None)
    if plan.asked.for_time and estimate is not None:
        price, rival = estimate.estimated_seconds, None if data is None else data.seconds
        amount = f"{format_seconds(price)} a step on {estimate.topology}, estimated"
        theirs = "" if rival is None else format_seconds(rival)
    else:
        price, rival = plan.cost, None if data is None else (data.moved_bytes or 0) + (data.excess_bytes or 0)
        amount = f"{format_bytes(plan.cost)} a step, moved and penalty"
        theirs = "" if rival is None else format_bytes(rival)
    workers = f"{plan.workers} worker{'s' * (plan.workers > 1)}"
    if data is None or rival is None:
        return f"On {workers} the plan takes {amount}."
    if rival == price:
        return f"On {workers} the plan takes {amount}: as much as {data.name}."
    how = f"{format_ratio(abs(rival - price) / rival)} {'less' if price < rival else 'more'} than" if rival else "where"
    return f"On {workers} the plan takes {amount}: {how} {data.name}, which takes {theirs}."


def provenance(facts: PlanFacts) -> Markup:
    """Where the page comes from, so that it can be made again."""
    plan, stamp = facts.plan, facts.provenance
    rows: list[tuple[Child, Child]] = [
        ("Made", f"{stamp.date}, by {stamp.versions}"),
        ("Model", joined(plan.model, ", sha256 ", element("code", plan.model_digest))),
    ]
    lines = (stamp.plan_command, stamp.command, f"tofu explain {shlex.quote(str(facts.directory))}")
    return element("footer", _list(rows), *(element("p", element("code", line, class_="command")) for line in lines))


def gap(facts: PlanFacts) -> str:
    """How far the plan is from the best, and by what measure."""
    plan = facts.plan
    if plan.certified_gap is None:
        return "no bound was computed; `tofu plan` with --effort normal or thorough has one, where the graph allows"
    measure = {"bytes": "moved bytes and penalty", "time": "time, as the tables of the search add it up"}[plan.gap_of]
    return f"at most {format_ratio(plan.certified_gap)} above the least {measure} among {gap_scope(plan)}"


def beside(facts: PlanFacts) -> Markup:
    """Known schemes beside the plan and its bound, as bars of time, or of cost in bytes."""
    plan, estimate = facts.plan, facts.plan.estimate
    seconds = None if estimate is None else estimate.estimated_seconds
    peak = max(usage.total_bytes for usage in facts.memory)
    ways = [Beside("this plan", plan.moved_bytes, plan.excess_bytes, gap(facts), seconds, peak), *facts.beside]
    by_time = plan.asked.for_time and seconds is not None
    # A bound on bytes says nothing of time: it stands only among bars of cost.
    if plan.certified_gap is not None and plan.gap_of == "bytes" and not by_time:
        ways.append(Beside("lower bound", round(plan.cost / (1 + plan.certified_gap)), 0, f"of {gap_scope(plan)}"))

    def price(way: Beside) -> float:
        return (way.seconds if by_time else (way.moved_bytes or 0) + (way.excess_bytes or 0)) or 0.0

    longest = max(map(price, ways)) or 1.0
    rows: list[tuple[Child, ...]] = [
        (
            way.name,
            _stacked_bar([price(way) / longest]),
            *("–" if amount is None else text(amount) for amount, text in _amounts(way)),
            _code(way.remark),
        )
        for way in ways
    ]
    heads = ("", "", "time", "communication", "duplicated or uneven work", "memory per worker", "")
    legend = "estimated time of a step" if by_time else "communication with duplicated or uneven work, in bytes"
    note = f"Bars: {legend}. `tofu compare` has all schemes of the literature."
    return _section("beside", "Beside the plan", _table(heads, rows, range(2, 6)), _note(note))


def _amounts(way: Beside) -> Iterator[tuple[float | None, Callable[[Any], str]]]:
    yield from ((way.seconds, format_seconds), (way.moved_bytes, format_bytes))
    yield from ((way.excess_bytes, format_bytes), (way.peak_bytes, binary))


def layers(facts: PlanFacts) -> Markup:
    """The cost of each layer by pass, and its communication; equal layers in one row."""
    is_timed = facts.schedule is not None
    total = sum(row.total for row in facts.layers)
    longest = max((sum(row.each) for row in facts.layers), default=0.0) or 1.0

    def text(amount: float) -> str:
        return f"{1e3 * amount:,.2f}" if is_timed else format_bytes(round(amount))

    rows: list[tuple[Child, ...]] = [
        (
            element("code", row.names[0] if len(row.names) == 1 else f"{row.names[0]} … {row.names[-1]}"),
            f"×{len(row.names)}" if len(row.names) > 1 else "",
            _stacked_bar([amount / longest for amount in row.each]),
            *map(text, row.each),
            text(sum(row.each)),
            text(row.total),
            format_ratio(row.total / total) if total else "",
        )
        for row in facts.layers[:_SHOWN_LAYERS]
    ]
    hidden = len(facts.layers) - len(rows)
    unit = "Milliseconds" if is_timed else "No schedule: work and communication in bytes, by the plan's rates,"
    return _section(
        "layers",
        "Time by layer" if is_timed else "Cost by layer",
        _key(),
        _table(("layer", "", "each", *PARTS, "each", "together", "share"), rows, range(3, 10)),
        _note(
            f"{unit} of one layer, then of all in the row. An op counts on its slowest worker; the layers add up to "
            f"the estimate.{f' {hidden:,} more rows are not shown.' if hidden > 0 else ''}"
        ),
    )


def _key() -> Markup:
    """The colours of the parts of a step."""
    keys = (
        joined(" ", element("svg", element("rect", width=12, height=12, fill=fill), width=12, height=12), f" {part}")
        for part, fill in PART_FILL.items()
    )
    return element("p", *keys, class_="key")


def _stacked_bar(shares: Sequence[float]) -> Markup:
    ends = list(accumulate((160 * share for share in shares), initial=0.0))
    rectangles = (
        element("rect", x=start, width=end - start, height=14, fill=fill)
        for start, end, fill in zip(ends, ends[1:], PART_FILL.values(), strict=False)
    )
    return element("svg", *rectangles, width=162, height=16, aria_hidden="true")


def why(facts: PlanFacts) -> Markup:
    """The largest causes of the plan's cost."""
    causes = [
        (
            some(cause.names, _SHOWN_NAMES),
            "moves" if cause.kind == "tensor" else "penalty",
            format_bytes(cause.cost_bytes),
            format_ratio(cause.share),
            cause.reason,
        )
        for cause in facts.causes
    ]
    parts: list[Child] = [_table(("of", "", "bytes", "of the cost", "why"), causes, (2, 3))] if causes else []
    if not causes:
        parts.append(_note("Nothing moves, and no work is repeated."))
    parts.append(_note(f"`tofu explain {facts.directory} TENSOR` has the alternatives of a tensor."))
    return _section("why", "Why", *parts)


def memory(facts: PlanFacts) -> Markup:
    """Memory over the steps, and what it is of where it is fullest."""
    occupancy = facts.fullest
    limit = None if facts.limits is None else facts.limits[occupancy.worker]
    last, total = len(occupancy.held_bytes) - 1, occupancy.total_bytes
    rows: list[tuple[Child, ...]] = [
        (swatch(purpose), purpose.value, binary(size), f"{100 * size / total:.1f}%", SAID.get(purpose, ""))
        for purpose, size in sorted(occupancy.amounts(occupancy.fullest).items(), key=lambda item: -item[1])
    ]
    rows.append(("", "in all, as planned", binary(total), "", ""))
    largest = [
        (
            and_more([span.buffer for span in group]),
            group[0].purpose.value,
            binary(group[0].size_bytes),
            binary(len(group) * group[0].size_bytes),
            group[0].op_type or "–",
            f"{group[0].first:,} to {group[0].last:,}" if group[0].first or group[0].last < last else "all steps",
        )
        for group in occupancy.alike_at(occupancy.fullest)[:_SHOWN_BUFFERS]
    ]
    heads = ("buffers", "for", "each", "together", "made by", "held in steps (the first)")
    return _section(
        "memory",
        "Memory over the step",
        element("p", _holds(facts), class_="lead"),
        _zoomed(occupancy_chart(occupancy, facts.memory[occupancy.worker].begins, limit)),
        _note(
            "What is held, step by step of the worker's program, by what it is for; where steps are many, the fullest "
            "of each stretch. Dotted lines: where the backward pass and the first update begin. Under the pointer: "
            "the amounts, and the largest buffers."
        ),
        element("h3", f"What it is in step {occupancy.fullest:,}, where worker {occupancy.worker} is fullest"),
        _table(("", "for", "takes", "", ""), rows, (2, 3)),
        *_results_hint(facts),
        element("h3", "What takes most then"),
        _table(heads, largest, (2, 3)),
        *_other_workers(facts),
    )


def _results_hint(facts: PlanFacts) -> Iterator[Markup]:
    """A note on results that take much of the peak."""
    peak, graph = facts.fullest, facts.graph
    share = peak.amounts(peak.fullest).get(Purpose.RESULTS, 0) / max(1, peak.total_bytes)
    if share >= _MUCH:
        results = [name for name in graph.outputs if graph.roles[name] is Role.RESULT]
        largest = max(results, key=lambda name: graph.tensors[name].size_bytes)
        text = f"{largest} is an output, so it is held to the end of the step: {format_ratio(share)} of the peak. "
        yield element("p", text, "A model that returns the loss alone needs less.", class_="warning")


def _holds(facts: PlanFacts) -> str:
    """The memory of the fullest worker, beside the others and the memory of its device."""
    peak = facts.fullest
    stated = "" if facts.plan.has_program else " The plan states less, for no program was made with it."
    limit = peak.total_bytes if facts.limits is None else facts.limits[peak.worker]
    room = "" if facts.limits is None else f", and fits in {binary(limit)}"
    if peak.total_bytes > limit:
        room = f", {binary(peak.total_bytes - limit)} more than its memory of {binary(limit)}"
    return f"Worker {peak.worker} holds {binary(peak.total_bytes)} of tensors at most{room}.{stated}"


def _other_workers(facts: PlanFacts) -> list[Markup]:
    """The peaks of the workers, where they are not all alike."""
    peaks = [usage.total_bytes for usage in facts.memory]
    limits = facts.limits or ()
    if len(set(peaks)) == 1 and len(set(limits)) <= 1:
        return []
    texts = [binary(limit) for limit in limits] or ["–"] * len(peaks)
    rows = [(str(worker), binary(peak), texts[worker]) for worker, peak in enumerate(peaks)]
    return [element("h3", "All workers"), _table(("worker", "holds", "limit"), rows, (1, 2))]


def traffic(facts: PlanFacts) -> Markup:
    """The collectives, and the use of links by level of the machine."""
    plan = facts.plan
    kinds = [
        (kind, f"{count:,}", format_bytes(moved // count), format_bytes(moved))
        for kind, total in facts.collectives.items()
        for count, moved in [(total["count"], total["moved_bytes"])]
    ]
    parts: list[Child] = [_table(("collective", "number", "mean", "together"), kinds, (1, 2, 3)) if kinds else ""]
    if (estimate := plan.estimate) is not None:
        levels = [
            (
                level.name,
                format_bytes(level.moved_bytes),
                format_seconds(level.busy_seconds),
                format_ratio(level.busy_seconds / estimate.estimated_seconds) if estimate.estimated_seconds else "0%",
            )
            for level in estimate.levels
        ]
        parts += [
            element("h3", f"By level of {estimate.topology}"),
            _table(("level", "moves", "busiest link in use", "of the step"), levels, (1, 2, 3))
            if levels
            else _note("Nothing moves over its links."),
        ]
    else:
        parts.append(_note("The plan is for no topology, so there are no levels; `tofu plan --topology` names one."))
    return _section("traffic", "Traffic", *parts)


def schedule(facts: PlanFacts) -> Markup:
    """The simulated schedule, and what was measured."""
    parts: list[Child] = []
    estimate = facts.plan.estimate
    if estimate is not None:
        times = (estimate.compute_seconds, estimate.transfer_seconds, estimate.synchronisation_seconds)
        compute, transfer, synchronisation = map(format_seconds, times)
        parts.append(
            element(
                "p",
                f"A step is estimated to take {format_seconds(estimate.estimated_seconds)} on "
                f"{estimate.topology}: {compute} computing, {transfer} transfers, {synchronisation} synchronization; "
                f"{format_seconds(estimate.overlapped_seconds)} if transfers overlap computing.",
            )
        )
    if facts.schedule is not None:
        simulated = facts.schedule.simulation
        exposed = sum(part.simulated_seconds for part in facts.schedule.sums() if part.kind != "compute")
        share = format_ratio(exposed / simulated.seconds) if simulated.seconds else "0%"
        parts.append(
            element(
                "p",
                f"Simulated step by step it takes {format_seconds(simulated.seconds)}. Exposed communication: "
                f"{format_seconds(exposed)}, {share} of the step, on its longest path.",
            )
        )
        spans = tuple(facts.schedule.spans())
        parts += [_key(), _zoomed(schedule_chart(spans, facts.plan.workers, facts.pass_of, simulated.transfers))]
        parts.append(
            _note(
                "Links: the share of workers that send. `tofu report -o FILE.json` writes it op by op, for Perfetto; "
                "`tofu explain --view time` compares it with the estimate."
            )
        )
    else:
        parts.append(_note(facts.no_schedule))
    if facts.measured is not None:
        parts += [element("h3", "Measured by tofu run --measure"), _measured(facts)]
    return _section("schedule", "Schedule", *parts)


def _measured(facts: PlanFacts) -> Markup:
    measured = facts.measured
    assert measured is not None, "something was measured"
    rows = []
    for worker, steps in enumerate(measured.workers):
        compute = sum(step.seconds for step in steps if not step.is_fetch)
        fetch = sum(step.seconds for step in steps if step.is_fetch)
        wait = sum(step.wait_seconds for step in steps)
        rows.append((str(worker), *map(format_seconds, (compute, fetch, wait))))
    mean = format_seconds(measured.iteration_seconds)
    return joined(
        element("p", f"{mean} a step, mean of {measured.iterations} ({measured.engine}, {measured.device})."),
        _table(("worker", "computes", "fetches", "waits"), rows, (1, 2, 3)),
    )


def certainty(facts: PlanFacts) -> Markup:
    """What is exact, and what is estimated."""
    estimate = facts.plan.estimate
    exact = (
        "Tiles and moved bytes are exact: `tofu run` counts them, and fails if one differs from the plan's. So is the "
        "memory of arrays, allocated as one block; memory inside of ops is not counted. "
    )
    times = (
        "No time is estimated: the plan is for no topology."
        if estimate is None
        else "Times are estimates, by rooflines or by `tofu profile`, and by the bandwidths of the topology."
    )
    assumed = [f"Assumed: {assumption}." for assumption in (() if estimate is None else estimate.assumptions)]
    return _section(
        "certainty",
        "Exact and estimated",
        _note(exact + times),
        element("ul", *(element("li", text) for text in assumed)),
    )


def _section(name: str, title: str, *parts: Child) -> Markup:
    return element("section", element("h2", title), *parts, id=name)


def _zoomed(chart: Markup) -> Markup:
    """A chart that the script gives buttons to make larger."""
    return element("div", chart, class_="zoom", tabindex=0)


def _note(text: str) -> Markup:
    return element("p", _code(text), class_="note")


def _code(text: str) -> Markup:
    """A text of ours, in which commands stand between backquotes."""
    parts = text.split("`")
    return joined(*(element("code", part) if at % 2 else part for at, part in enumerate(parts)))


def _list(rows: Iterable[tuple[Child, Child]]) -> Markup:
    return element("dl", *(joined(element("dt", name), element("dd", value)) for name, value in rows))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Child]], numbers: Sequence[int] = ()) -> Markup:
    """A table; the columns in ``numbers`` stand to the right."""

    def cells(name: str, row: Sequence[Child]) -> Markup:
        parts = (element(name, cell, class_="n" if at in numbers else None) for at, cell in enumerate(row))
        return element("tr", *parts)

    body = element("tbody", *(cells("td", row) for row in rows))
    return element("div", element("table", element("thead", cells("th", heads)), body), class_="wide")
