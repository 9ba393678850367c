"""The output of ``tofu explain --view time``: an iteration simulated step by step, beside its estimate."""

from __future__ import annotations

from typing import TextIO

from planner.cost.seconds.simulated import Differing, differs
from planner.printing.console import ReportConsole
from planner.results import SimulationResult
from planner.units import format_seconds

_MOST_WORKERS = 16
_KINDS = {"compute": "computing", "transfer": "transfers", "synchronisation": "synchronisation"}


def print_simulation(result: SimulationResult, file: TextIO) -> None:
    """Prints how long an iteration takes, what each worker does meanwhile, and where the estimate differs."""
    console, estimate = ReportConsole(file), result.estimate
    console.print_paragraphs(
        [
            ("model", result.plan.model),
            ("topology", estimate.topology),
            ("estimated", f"{format_seconds(estimate.estimated_seconds)} per step, one thing after the other"),
            ("simulated", simulated_text(estimate.estimated_seconds, result.simulated_seconds)),
            ("  if overlapped", format_seconds(estimate.overlapped_seconds)),
        ]
    )
    console.print()
    console.print_text("of these times, on the longest path of the simulation:")
    _table(console, [(_KINDS[row.kind], row) for row in result.sums])
    console.print()
    hidden = len(result.worker_times) - _MOST_WORKERS
    console.print_text("what workers do" + (f"; {_MOST_WORKERS} of {len(result.worker_times)}:" if hidden > 0 else ":"))
    console.print_line(f"{'worker':<8}{'computes':>12}{'fetches':>12}{'waits':>12}")
    for worker, times in enumerate(result.worker_times[:_MOST_WORKERS]):
        cells = map(format_seconds, (times.compute_seconds, times.fetch_seconds, times.wait_seconds))
        console.print_line(f"{worker:<8}" + "".join(f"{cell:>12}" for cell in cells))
    console.print()
    # An estimate that agrees everywhere is news of its own: an empty table would leave open whether it was compared.
    if not result.differing:
        console.print_text("no op and no transfer differs by more than 10% and a thousandth of the step.")
        return
    shown, count = len(result.differing), result.differing_count
    count_text = f"{shown} of {count:,}" if shown < count else str(count)
    console.print_text(f"ops and transfers that differ by more than 10%, {count_text}:")
    _table(console, [(f"{_KINDS[row.kind]}: {row.name}", row) for row in result.differing])


def simulated_text(estimated_seconds: float, simulated_seconds: float) -> str:
    """A simulated time, and by how much an estimate differs from it where that is more than a tenth.

    >>> simulated_text(2.0, 1.5), simulated_text(2.0, 2.1)
    ('1.5 s per step, 25% less than estimated', '2.1 s per step')
    """
    text = f"{format_seconds(simulated_seconds)} per step"
    if not differs(estimated_seconds, simulated_seconds):
        return text
    if not estimated_seconds:
        return f"{text}, where nothing was estimated"
    share = simulated_seconds / estimated_seconds - 1
    return f"{text}, {abs(share):.0%} {'more' if share > 0 else 'less'} than estimated"


def _table(console: ReportConsole, rows: list[tuple[str, Differing]]) -> None:
    console.print_line(f"{'estimated':>12}{'simulated':>12}")
    for name, times in rows:
        cells = (format_seconds(times.estimated_seconds), format_seconds(times.simulated_seconds))
        console.print_line("".join(f"{cell:>12}" for cell in cells) + f"  {name}")
