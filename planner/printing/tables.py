"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from planner.graph.compare.modules import parameter_module
from planner.printing.console import ReportConsole
from planner.printing.door import door_fact
from planner.printing.estimate import beside_measurement
from planner.printing.facts import by_pattern, counted
from planner.printing.planned import constant_inputs
from planner.results import GradResult, ParameterRow
from planner.units import binary, format_bytes, format_loss, format_ratio, format_seconds

if TYPE_CHECKING:
    from planner.runtime.measure.profile import Profile
    from planner.runtime.run_report import RunResult

_SHOWN_STEPS = 12


def print_grad(result: GradResult, file: TextIO) -> None:
    """Prints the training graph of ``tofu grad`` and the settings that it trains with."""
    console = ReportConsole(file)
    console.print_facts(
        [
            ("training graph", f"{result.output}: {counted(result.ops, 'op')} of {len(result.ops_by_type)} types"),
            ("loss", result.loss),
            *result.settings,
            ("state", f"{counted(result.states, 'tensor')}, {counted(result.state_elements, 'element')}"),
            *constant_inputs(result.values),
            *([] if result.door is None else [door_fact(result.door)]),
        ],
    )
    console.print()
    console.print_line("inputs")
    for row in result.data:
        meaning = f", {row.meaning}" if row.meaning else ""
        console.print_text(f"{row.name}: {row.dtype} {list(row.shape)}{meaning}", 2, following=4)
    console.print_line("results")
    console.print_text(", ".join(result.results), 2)
    if result.left_out:
        console.print_line("left out, because the loss does not need them")
        for name, why in result.left_out:
            console.print_text(f"{name}: {why}", 2, following=4)
    if result.parameters:
        console.print()
        for heading, names in _parameter_groups(result.parameters):
            console.print_text(heading, following=2)
            console.print_text(names, 2)
    # Warnings stand last: a long list of parameters would scroll them away.
    if result.warnings:
        console.print()
        for warning in result.warnings:
            console.print_text(f"warning: {warning}", following=2)


def _parameter_groups(parameters: Sequence[ParameterRow]) -> list[tuple[str, str]]:
    """Constants with one verdict for one reason, and their modules; the trained ones first, and most first."""
    groups: dict[tuple[str, str], list[ParameterRow]] = {}
    for row in parameters:
        is_plain = row.verdict == "trained" and row.evidence != ("stated",) and "samples" not in row.evidence
        groups.setdefault((row.verdict, "" if is_plain else f": {row.why}"), []).append(row)
    order = {"trained": 0, "statistic": 1, "frozen": 2}
    ordered = sorted(groups.items(), key=lambda item: (order[item[0][0]], -len(item[1])))
    return [
        (
            f"{verdict}: {counted(len(rows), 'tensor')}, {counted(sum(row.elements for row in rows), 'element')}{why}",
            by_pattern([parameter_module(row.name) or row.name for row in rows]),
        )
        for (verdict, why), rows in ordered
    ]


_FIRST_STEPS, _MOST_STEPS = 5, 40
"""Rows of a long run: so many first ones, and so many in all."""


def print_run(result: RunResult, file: TextIO, *, is_told: bool = False) -> None:
    """Prints the steps of a run, what moved, and the verdict.

    Args:
        result: of the run.
        file: where to.
        is_told: a line of each step stands there already.
    """
    console = ReportConsole(file)
    numbers = [str(number) for number in range(result.first_step, result.first_step + result.steps)]
    seconds = [format_seconds(seconds) for seconds in result.seconds]
    if result.losses:
        columns: tuple[str, ...] = ("step", result.loss_name, "time")
        rows: list[tuple[str, ...]] = list(zip(numbers, list(map(format_loss, result.losses)), seconds, strict=True))
    else:
        columns, rows = ("step", "time"), list(zip(numbers, seconds, strict=True))
    # This run has fetched nothing: further down, the bytes of no fetch would be called equal to the predicted ones.
    if not result.steps:
        facts = [("steps", f"{result.first_step - 1} were done already")]
        if result.exported:
            facts.append(("exported", f"{counted(len(result.exported), 'tensor')} to {result.export}"))
        console.print_facts(facts)
        return
    left_out = len(rows) - _MOST_STEPS
    if left_out > 0:
        rows[_FIRST_STEPS : _FIRST_STEPS + left_out] = [("…",) * len(columns)]
    if not is_told:
        console.print_table(columns, rows, columns)
    console.print()
    if left_out > 0 and not is_told:
        console.print_text(f"{counted(left_out, 'step')} more: --json and -o FILE.csv have all", 0)
        console.print()
    agree = all(fetch.predicted_bytes == fetch.moved_bytes for fetch in result.fetches)
    peaks = (arena + inside for arena, inside in zip(result.arena_bytes, result.workspace_bytes, strict=True))
    staging_bytes = max(result.staging_bytes)
    staged = f", {binary(staging_bytes)} for copies between workers" if staging_bytes else ""
    facts = [
        ("predicted", f"{result.predicted_bytes:,} bytes per step, in {counted(len(result.fetches), 'transfer')}"),
        (
            "moved",
            f"{result.moved_bytes:,} bytes per step, " + ("equal" if agree else "NOT equal") + " in each transfer",
        ),
        ("memory per worker", f"{binary(max(peaks))} of tensors at peak" + staged),
    ]
    if result.threads:
        facts.append(("threads per worker", str(result.threads)))
    if result.on_gpus is not None:
        memory = ", ".join(f"{format_bytes(size)} on GPU {device}" for device, size in result.on_gpus.beside_bytes)
        facts.append(("sessions and tables", memory))
        for heading, ops in (
            ("computed in larger types", result.on_gpus.changes.widened),
            ("computed by other ops", result.on_gpus.changes.expanded),
            ("on the CPU", result.on_gpus.changes.on_cpu),
        ):
            if ops:
                facts.append((heading, ", ".join(ops)))
    if result.nearly_same:
        facts.append(("replicas", f"differ in the last bits in {counted(result.nearly_same, 'place')}"))
    if result.data_folder is not None:
        facts.append(("weights from", str(result.data_folder)))
    if result.accuracies:
        facts.append(("accuracy", f"{result.accuracies[-1]:.4f} in the last step"))
    if result.evaluations:
        last = result.evaluations[-1]
        loss = "" if last.loss is None else f"loss {format_loss(last.loss)}"
        share = "" if last.accuracy is None else f"accuracy {last.accuracy:.4f}"
        batches = counted(last.batches, "batch", "es")
        facts.append(
            ("held-out data", f"{', '.join(filter(None, (loss, share)))} over {batches}, after step {last.step}")
        )
    if result.is_interrupted:
        facts.append(("interrupted", f"after step {result.first_step + result.steps - 1}"))
    if result.checkpoint is not None:
        facts.append(("checkpoint", str(result.checkpoint)))
    if result.exported:
        facts.append(("exported", f"{counted(len(result.exported), 'tensor')} to {result.export}"))
    if result.comparisons:
        reference = "the original model" if result.no_reference else "float64"
        if result.own_precision:
            reference += f" ({', '.join(result.own_precision)} in the model's own precision)"
        noise = f" ({result.noise_tensors} too close to zero to compare)" if result.noise_tensors else ""
        amount = f"{counted(result.judged_tensors, 'tensor')} in {counted(result.steps, 'step')}"
        facts.append(("checked", f"{amount} against {reference}{noise}"))
        if result.worst is not None:
            step, tensor = result.worst
            model_error = "" if tensor.whole_error is None else f", the original model's {tensor.whole_error:.2e}"
            facts.append(
                (
                    "largest error",
                    f"{tensor.error:.2e} in {tensor.tensor}, step {step}{model_error}, limit {tensor.limit:.2e}",
                )
            )
        if result.strange_elements:
            facts.append(("not finite", f"{counted(result.strange_elements, 'element')} of the original model"))
        if result.untold_elements:
            untold = counted(result.untold_elements, "element")
            facts.append(("against the original", f"{untold}, where inputs are not finite and float64 is undefined"))
        if result.far is not None:
            steps, far = result.far
            off = f"{far.error:.2e} off the float64 reference in {far.tensor}"
            facts.append(("original model", f"{off}, in {counted(steps, 'step')}: the reference is used instead"))
        if result.no_reference:
            facts.append(("no reference", result.no_reference))
        if result.door is not None:
            facts.append(door_fact(result.door))
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
    # A wait counts like work: a fetch that takes no time and waits long shows the worker that is late.
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
