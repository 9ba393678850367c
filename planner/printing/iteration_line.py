"""An iteration of a run, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.units import format_loss, format_seconds

if TYPE_CHECKING:
    from planner.runtime.run_report import StepReport


def iteration_line(report: StepReport) -> str:
    """The line of a step.

    Example: ``step 3 of 100  epoch 1 of 2  loss 0.693147  4.1 ms``.
    """
    parts = [f"step {report.step} of {report.steps}"]
    if report.epoch is not None:
        parts.append(f"epoch {report.epoch} of {report.epochs}")
    if report.loss is not None:
        parts.append(f"loss {format_loss(report.loss)}")
    if report.accuracy is not None:
        parts.append(f"accuracy {report.accuracy:.4f}")
    if report.evaluation is not None:
        if report.evaluation.loss is not None:
            parts.append(f"eval loss {format_loss(report.evaluation.loss)}")
        if report.evaluation.accuracy is not None:
            parts.append(f"eval accuracy {report.evaluation.accuracy:.4f}")
    return "  ".join([*parts, format_seconds(report.seconds)])
