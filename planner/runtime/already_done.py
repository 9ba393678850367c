"""A run that is to go on from its last step: no step is run, and its files are written."""

from __future__ import annotations

import numpy as np

from planner.errors import UsageError
from planner.runtime.prepare import Start
from planner.runtime.run_report import RunResult
from planner.runtime.values.checkpoint import Checkpoint
from planner.runtime.values.export import export_weights
from planner.runtime.values.state import Drawn


def already_done(start: Start, checkpoint: Checkpoint) -> RunResult:
    """The report of a run that is to go on from its last step: the state, as the checkpoint has it.

    Raises:
        UsageError: more steps are done than were asked for.
    """
    plan, options = start.plan, start.options
    if checkpoint.step > start.last:
        wish, target, least = "--steps", str(start.last), checkpoint.step + 1
        # The caller has put steps in the place of epochs; who asked for epochs is answered in epochs.
        if options.epochs is not None:
            per_epoch = start.last // options.epochs
            wish, target, least = (
                "--epochs",
                f"{options.epochs}, {start.last} steps",
                checkpoint.step // per_epoch + 1,
            )
        raise UsageError(
            f"step {checkpoint.step} is done already, and {wish} is {target}",
            hint=f"{wish} counts from the beginning: write {wish} {least}, or more",
        )
    program, reports = plan.program, start.reports
    options.notice(f"note: step {checkpoint.step} is done already: no step is run")
    exported: tuple[str, ...] = ()
    results: dict[str, np.ndarray] = {}
    if reports and options.wants_results:
        results = {pair.following: checkpoint.whole(pair.current) for pair in program.state}
    if reports and options.export is not None:
        exported = export_weights(options.export, plan.states, checkpoint.whole, options.forward)
    return RunResult(
        steps=0,
        first_step=checkpoint.step + 1,
        loss_name=start.loss,
        losses=(),
        predicted_bytes=program.predicted_bytes,
        moved_bytes=0,
        fetches=(),
        seconds=(),
        verified=None,
        max_error=None,
        comparisons=(),
        no_reference="",
        own_precision=(),
        door=None,
        results=results,
        arena_bytes=(0,) * len(program.workers),
        workspace_bytes=(0,) * len(program.workers),
        staging_bytes=(0,) * len(program.workers),
        on_gpus=None,
        nearly_same=0,
        profile=None,
        checkpoint=None,
        exported=exported,
        export=options.export if exported else None,
        drawn=Drawn(options.seed, (), ()),
        data_folder=None,
    )
