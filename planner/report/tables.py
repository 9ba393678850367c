"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from planner.artifacts.plan import Plan, UndescribedOp
from planner.machine.rates import Rates
from planner.report.bounds import bounds, memory
from planner.report.console import ReportConsole
from planner.report.estimate import beside_facts, beside_measurement, estimate_facts
from planner.results import (
    AnotherEffort,
    Comparison,
    ComparisonRow,
    Explanation,
    GradResult,
    ParameterRow,
    PlanResult,
    ZooResult,
    ZooRow,
)
from planner.search.user_rules.prices import Price
from planner.units import format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from planner.runtime.measure.profile import Profile
    from planner.runtime.run_report import RunResult

_SHOWN_UNSPLIT = 5
_SHOWN_STEPS = 12
_SHOWN_NAMES = 4


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


def grad(result: GradResult, file: TextIO) -> None:
    """Prints what ``tofu grad`` built."""
    console = ReportConsole(file)
    console.print_facts(
        [
            ("training graph", str(result.output)),
            ("loss", result.loss),
            ("optimizer", result.optimizer),
            ("inputs", ", ".join(result.inputs)),
            ("results", ", ".join(result.results)),
            ("state", f"{result.states} tensors, {result.state_elements:,} elements"),
            ("ops", f"{sum(result.ops_by_type.values())} of {len(result.ops_by_type)} types"),
            *_values(result.values),
        ],
    )
    if result.parameters:
        console.print()
        columns = ("constants", "why", "tensors", "elements", "names")
        console.print_table(columns, _parameter_rows(result.parameters), columns[2:4])


def _parameter_rows(parameters: Sequence[ParameterRow]) -> list[tuple[str, ...]]:
    """Constants that are decided alike in one row: the trained ones first, most first."""
    groups: dict[tuple[str, str], list[ParameterRow]] = {}
    for row in parameters:
        groups.setdefault((row.verdict, row.why), []).append(row)
    order = {"trained": 0, "statistic": 1, "frozen": 2}
    ordered = sorted(groups.items(), key=lambda item: (order[item[0][0]], -len(item[1])))
    return [
        (verdict, why, str(len(rows)), f"{sum(row.elements for row in rows):,}", _named([row.name for row in rows]))
        for (verdict, why), rows in ordered
    ]


def _named(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more (--json names all)" if more > 0 else "")


def _values(values: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("constant inputs", ", ".join(f"{name} = {value}" for name, value in values))] if values else []


def _excess(plan: Plan) -> str:
    """What repeated and uneven work costs, as bytes of a link."""
    uneven = plan.excess_bytes - plan.repeated_bytes
    parts = f"{format_bytes(plan.repeated_bytes)} of repeated work, {format_bytes(uneven)} of uneven work"
    more = f"computing takes {format_ratio(plan.slowest_share - 1)} longer than an even share"
    return f"as if {format_bytes(plan.excess_bytes)} moved ({parts}): {more}"


def _rates(rates: Rates) -> list[tuple[str, str]]:
    """By which excess was counted, where the user said it."""
    if rates == Rates():
        return []
    each = f"{rates.touched_bytes:.3g} bytes of memory and {rates.operations:.3g} operations"
    return [("  by rates", f"{each} in the time of a byte of a link")]


def _plan_facts(plan: Plan, objective: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    cuts = " x ".join(str(ways) for ways in plan.cuts) or "none"
    what = {"bytes": "of moved bytes and excess", "time": "of time, as the tables of the search add it up"}[plan.gap_of]
    gap = "not computed" if plan.certified_gap is None else f"{format_ratio(plan.certified_gap)} {what}"
    if plan.deliveries and plan.certified_gap is not None:
        gap += ", of plans in which these readers may share"
    largest = max(plan.peak_bytes)
    facts = [
        ("model", plan.model),
        ("workers", f"{plan.workers} (cuts: {cuts})"),
        ("strategy", plan.strategy),
        *objective,
        ("moved", f"{format_bytes(plan.moved_bytes)} per iteration over all workers"),
        ("as SoyBean counts", format_bytes(plan.soybean_bytes)),
        ("memory per worker", f"{format_bytes(largest)} of tensors at most"),
        ("excess", _excess(plan)),
        *_rates(plan.rates),
        ("gap to the optimum", gap),
    ]
    if plan.stopped_by is not None:
        why = {"time": "the time for it was over", "interrupt": "it was interrupted"}[plan.stopped_by]
        facts.append(("search stopped", f"{why}; it had more to do"))
    if plan.decided_apart:
        apart = f"{plan.decided_apart:,} of the tensors and ops apart from the others"
        facts.append(("search restricted", f"the graph is too entangled to be decided all at once: {apart}"))
    facts += estimate_facts(plan.estimate)
    if plan.deliveries:
        of = len({one.tensor for one in plan.deliveries})
        facts.append(("shared deliveries", f"{len(plan.deliveries)}, of {_count(of, 'tensor')}"))
    if plan.unsplit:
        shown = ", ".join(plan.unsplit[:_SHOWN_UNSPLIT]) + (", ..." if len(plan.unsplit) > _SHOWN_UNSPLIT else "")
        facts.append(("not split", f"{_count(len(plan.unsplit), 'op')}, which could not be at some cut: {shown}"))
    if plan.described_by is not None:
        facts.append(("described by", f"{plan.described_by.name}, sha256 {plan.described_by.sha256[:16]}"))
    if plan.undescribed:
        moved = sum(op.moved_bytes for op in plan.undescribed)
        repeated = sum(op.repeated_elements for op in plan.undescribed)
        facts.append(
            (
                "not described",
                f"{_count(len(plan.undescribed), 'op')}, run whole by every worker: {format_bytes(moved)} to bring "
                f"them their inputs, {_count(repeated, 'element')} touched again",
            )
        )
    return facts


def _undescribed(console: ReportConsole, ops: Iterable[UndescribedOp]) -> None:
    """Prints what each op costs that is executed whole for want of a description."""
    ordered = sorted(ops, key=lambda op: (-op.moved_bytes, -op.repeated_elements, op.name))
    rows = [(op.name, op.op_type, format_bytes(op.moved_bytes), f"{op.repeated_elements:,}") for op in ordered]
    if not rows:
        return
    console.print()
    columns = ("not described, run whole", "type", "inputs brought", "elements touched again")
    console.print_table(columns, rows, columns[2:])


def plan(result: PlanResult, file: TextIO) -> None:
    """Prints a plan that was found and what it costs."""
    console = ReportConsole(file)
    console.print_facts(
        [
            *_plan_facts(result.plan, _objective(result)),
            *beside_facts(result.beside),
            *(("warning", warning) for warning in result.warnings),
            *_values(result.values),
            ("state", f"{format_bytes(result.state_bytes)} in all"),
            ("ops", f"{result.ops}, run as {result.segments} segments ({result.functions} distinct)"),
            ("fetches", str(result.fetches)),
            (
                "collectives",
                ", ".join(f"{total['count']} {kind}" for kind, total in result.collectives.items()) or "none",
            ),
            ("search", format_seconds(result.search_seconds)),
            ("from file to files", format_seconds(result.total_seconds)),
            ("written to", str(result.directory)),
            *([("left out", ", ".join(result.left_out))] if result.left_out else []),
        ],
    )
    if result.prices:
        console.print()
        priced = [(f"--{price.kind} {price.rule}", _price(price)) for price in result.prices]
        console.print_table(("what was asked for", "price"), priced, ("price",))
    costly = sorted(result.plan.tensor_bytes.items(), key=lambda item: (-item[1], item[0]))[:10]
    if costly and costly[0][1]:
        console.print()
        rows = [(name, str(result.plan.tilings[name]), format_bytes(moved)) for name, moved in costly if moved]
        console.print_table(("what moves most", "tiling", "moved"), rows, ("moved",))
    _undescribed(console, result.plan.undescribed)
    if result.another_effort is not None:
        console.print()
        console.print_line(_another_effort(result.another_effort))


def _another_effort(another: AnotherEffort) -> str:
    if another.effort is None:
        return another.tries
    if another.about_seconds is None:
        return f"--effort {another.effort} would try: {another.tries}"
    return f"--effort {another.effort} would try, in about {format_seconds(another.about_seconds)}: {another.tries}"


def _objective(result: PlanResult) -> list[tuple[str, str]]:
    """What the plan was to have the least of; whose plan it is where it is one of the literature's."""
    what = {"bytes": "the least cost (moved bytes and excess)", "time": "the least estimated time"}[result.objective]
    whose = f"; the plan is that of {result.found_by}" if result.found_by != result.plan.strategy else ""
    return [("objective", what + whose)]


def _price(price: Price) -> str:
    """What a rule costs, against a plan without it."""
    if not price.is_found:
        return "not found: the search was stopped"
    if price.price_bytes is None:
        return "no plan without it"
    return f"{format_bytes(price.price_bytes)} more (moved and excess)"


def explain(result: Explanation, file: TextIO) -> None:
    """Prints the tensors and ops of a plan."""
    console = ReportConsole(file)
    if result.is_of_bounds:
        bounds(console, result.distances)
        return
    if result.subject is None:
        guessed = sum(row.is_inferred for row in result.state)
        known = f"{len(result.state)} tensors" + (f", {guessed} of them inferred (see below)" if guessed else "")
        console.print_facts([*_plan_facts(result.plan), ("state", known)])
        console.print()
    rows = [
        (
            row.name,
            _shape(row.shape),
            "delivery" if row.delivers else row.role.value,
            row.tiling,
            _shape(row.tile_shape),
            format_bytes(row.moved_bytes),
        )
        for row in result.tensors
    ]
    console.print_table(("tensor", "shape", "role", "tiling", "tile", "moved"), rows, ("moved",))
    console.print()
    if result.in_place:
        places = [(row.name, _shape(row.shape), row.held_by, " ".join(row.read_by)) for row in result.in_place]
        console.print_table(("tensor", "shape", "is held by", "read in place by"), places)
        console.print()
    inferred = [
        (row.current, row.following, " ".join(row.evidence), row.why) for row in result.state if row.is_inferred
    ]
    if inferred:
        console.print_table(("state", "replaced by", "evidence", "why"), inferred)
        console.print()
    ops = [(row.name, row.op_type, row.strategy, " ".join(row.variables)) for row in result.ops]
    console.print_table(("op", "type", "strategy", "index variables"), ops)
    shown = {row.name for row in result.ops}
    _undescribed(console, (op for op in result.plan.undescribed if op.name in shown))
    if result.distances:
        console.print()
        bounds(console, result.distances)
        memory(console, result.memory)


def run(result: RunResult, file: TextIO) -> None:
    """Prints the steps of a run, what moved, and the verdict."""
    console = ReportConsole(file)
    numbers = [str(number) for number in range(result.first_step, result.first_step + result.steps)]
    seconds = [format_seconds(seconds) for seconds in result.seconds]
    if result.losses:
        columns: tuple[str, ...] = ("step", result.loss_name, "time")
        rows: list[tuple[str, ...]] = list(
            zip(numbers, [f"{loss:.6f}" for loss in result.losses], seconds, strict=True)
        )
    else:
        columns, rows = ("step", "time"), list(zip(numbers, seconds, strict=True))
    console.print_table(columns, rows, columns)
    console.print()
    agree = all(fetch.predicted_bytes == fetch.moved_bytes for fetch in result.fetches)
    most = max(result.staging_bytes)
    staged = f", {format_bytes(most)} for copies between workers" if most else ""
    facts = [
        ("predicted", f"{result.predicted_bytes:,} bytes per step, in {_count(len(result.fetches), 'fetch', 'es')}"),
        ("moved", f"{result.moved_bytes:,} bytes per step, " + ("equal" if agree else "NOT equal") + " in every fetch"),
        ("memory per worker", f"{format_bytes(max(result.arena_bytes))} of arrays at most" + staged),
    ]
    if result.on_gpus is not None:
        taken = ", ".join(f"{format_bytes(size)} on GPU {device}" for device, size in result.on_gpus.beside_bytes)
        facts.append(("beside the arrays", f"{taken}, of sessions and tables"))
        for what, ops in (
            ("computed in larger types", result.on_gpus.changes.widened),
            ("computed by other ops", result.on_gpus.changes.expanded),
            ("on the CPU", result.on_gpus.changes.on_cpu),
        ):
            if ops:
                facts.append((what, ", ".join(ops)))
    if result.nearly_same:
        facts.append(("replicas", f"differ in the last bits in {_count(result.nearly_same, 'place')}"))
    if result.data_folder is not None:
        facts.append(("weights from", str(result.data_folder)))
    if result.checkpoint is not None:
        facts.append(("checkpoint", str(result.checkpoint)))
    if result.exported:
        facts.append(("exported", _count(len(result.exported), "tensor")))
    if result.comparisons:
        judge = "the unpartitioned model" if result.no_reference else "a float64 reference"
        if result.own_precision:
            judge += f" ({', '.join(result.own_precision)} in the model's own precision)"
        noise = f", of them {result.noise_tensors} only as noise" if result.noise_tensors else ""
        judged = _count(result.judged_tensors, "tensor")
        facts.append(("judged", f"{judged} over {_count(result.steps, 'step')}, with {judge}{noise}"))
        if result.worst is not None:
            step, tensor = result.worst
            whole = "" if tensor.whole_error is None else f", the whole model's {tensor.whole_error:.2e}"
            facts.append(
                (
                    "largest error",
                    f"{tensor.error:.2e} in {tensor.tensor}, step {step}{whole}, limit {tensor.limit:.2e}",
                )
            )
        if result.strange_elements:
            facts.append(("not finite", f"{_count(result.strange_elements, 'element')} of the whole model's"))
        if result.no_reference:
            facts.append(("no reference", result.no_reference))
        facts.append(("verdict", "verified" if result.verified else "NOT verified"))
    console.print_facts(facts)
    for comparison in result.comparisons:
        for tensor in comparison.tensors:
            if not tensor.is_same:
                console.print_line(f"  step {comparison.step}, {tensor}")
        if comparison.remark:
            console.print_line(f"  step {comparison.step}: {comparison.remark}")
    if result.profile is not None:
        _profile(console, result.profile)


def _count(number: int, what: str, plural: str = "s") -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _profile(console: ReportConsole, profile: Profile) -> None:
    """Prints where the time went: by worker, and the steps that took longest or waited longest."""
    console.print()
    console.print_facts(
        [
            ("iteration", f"{format_seconds(profile.iteration_seconds)}, mean of {profile.iterations}"),
            *beside_measurement(profile.estimate, profile.iteration_seconds),
            ("share in fetches", format_ratio(profile.fetch_share)),
        ],
    )
    console.print()
    columns: tuple[str, ...] = ("worker", "compute", "fetch", "wait", "segments", "fetches", "predicted", "moved")
    rows: list[tuple[str, ...]] = [
        (
            str(worker.worker),
            format_seconds(worker.compute_seconds),
            format_seconds(worker.fetch_seconds),
            format_seconds(worker.wait_seconds),
            str(worker.segments),
            str(worker.fetches),
            f"{worker.predicted_bytes:,}",
            f"{worker.moved_bytes:,}",
        )
        for worker in profile.workers
    ]
    if profile.estimate is not None:
        compute, fetch = profile.estimate.worker_compute_seconds, profile.estimate.worker_fetch_seconds
        columns += ("est. compute", "est. fetch")
        rows = [
            (*row, format_seconds(compute[number]), format_seconds(fetch[number])) for number, row in enumerate(rows)
        ]
    console.print_table(columns, rows, columns)
    console.print()
    longest = sorted(profile.steps, key=lambda step: -(step.seconds + step.wait_seconds))[:_SHOWN_STEPS]
    steps = [
        (
            str(step.worker),
            step.step,
            ", ".join(step.ops[:3]) + (", ..." if len(step.ops) > 3 else ""),
            format_seconds(step.seconds),
            format_seconds(step.wait_seconds),
            f"{step.predicted_bytes:,}",
            f"{step.moved_bytes:,}",
        )
        for step in longest
    ]
    heads = ("worker", "what takes longest", "ops", "time", "wait", "predicted", "moved")
    console.print_table(heads, steps, ("time", "wait", "predicted", "moved"))


def compare(result: Comparison, file: TextIO) -> None:
    """Prints the strategies of the literature beside the found plan, the best first by what that is made for."""
    console = ReportConsole(file)
    facts = [("model", result.model), ("workers", str(result.workers))]
    console.print_facts([*facts, *([("topology", result.topology)] if result.topology is not None else [])])
    console.print()

    def amount(row: ComparisonRow) -> float:
        return (row.estimated_seconds if result.objective == "time" else row.cost) or 0

    found = next(amount(row) for row in result.rows if row.strategy == "tofu")
    rows: list[tuple[str, ...]] = []
    for row in sorted(result.rows, key=lambda row: (row.moved_bytes is None, amount(row))):
        if row.moved_bytes is None:
            rows.append((row.strategy, "no plan", "", "", "", "", "", "", row.reason))
            continue
        sources = row.sources
        rows.append(
            (
                row.strategy,
                format_bytes(row.moved_bytes),
                f"{amount(row) / found:.2f}" if found else "",
                format_bytes(row.peak_bytes or 0),
                "" if row.estimated_seconds is None else format_seconds(row.estimated_seconds),
                "" if sources is None else f"{sources.measured_ops:,} of {sources.ops:,} ops",
                format_bytes(row.excess_bytes or 0),
                "-" if row.times_the_least is None else f"{row.times_the_least:.2f}",
                row.what,
            )
        )
    times = "time to tofu's" if result.objective == "time" else "cost to tofu's"
    costs = "moved", times, "arrays per worker", "est. time", "measured", "excess", "products to least"
    columns: tuple[str, ...] = ("strategy", *costs, "what it is")
    lacking = {"est. time": result.topology is None, "measured": all(row.sources is None for row in result.rows)}
    kept = [number for number, column in enumerate(columns) if not lacking.get(column, False)]
    columns, rows = tuple(columns[number] for number in kept), [tuple(row[number] for number in kept) for row in rows]
    console.print_table(columns, rows, columns[1:-1])


def zoo(result: ZooResult, file: TextIO) -> None:
    """Prints a model of the zoo that was written."""
    ReportConsole(file).print_facts(
        [
            ("training graph", str(result.output)),
            ("inputs", ", ".join(result.inputs)),
            ("parameters", f"{result.parameters:,} ({format_bytes(result.weight_bytes)}), without values"),
            ("state", f"{format_bytes(result.state_bytes)} with histories and running statistics"),
            ("ops", f"{sum(result.ops_by_type.values())} of {len(result.ops_by_type)} types"),
        ],
    )


def zoo_models(rows: Sequence[ZooRow], file: TextIO) -> None:
    """Prints the models of the zoo."""
    console = ReportConsole(file)
    models = [
        (name, str(batch), row.optimizer, row.about if not number else "")
        for row in rows
        for number, (name, batch) in enumerate(row.members.items())
    ]
    console.print_table(("model", "batch", "optimizer", "what it is"), models, ("batch",))
    console.print()
    forms = (row.form for row in rows if row.form.lower() != row.form)  # capitals stand for numbers
    console.print_line("Other sizes by the same forms: " + ", ".join(forms))
