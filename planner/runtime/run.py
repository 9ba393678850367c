"""Running a plan: prepared, executed step by step, judged."""

from __future__ import annotations

import contextlib
from pathlib import Path

from planner.options.running import RunOptions
from planner.runtime.already_done import already_done
from planner.runtime.engine.core.transport import Transport
from planner.runtime.engine.mpi.world import World
from planner.runtime.execute import Iterations
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.prepare import References, prepared, read_start
from planner.runtime.run_report import RunResult


def run_with(
    plan: str | Path | LoadedPlan,
    options: RunOptions,
    *,
    world: World | None = None,
    references: References = lambda plan: {},
    transport: Transport | None = None,
) -> RunResult:
    """Runs a plan's workers and counts what they move.

    With verification each step is judged alone: the split run, the whole model and its float64 twin start it from the
    same state, which is the whole model's. Without, the split run goes on from its own next state.

    Args:
        plan: a folder that ``tofu plan`` wrote, or a plan that is loaded already. Worker models that are in memory
            only run in this process, others in a supervised child.
        options: how it is run; of the plan's folder they say nothing here.
        world: the ranks, of the engine ``mpi``.
        references: the operators that ONNX does not define in NumPy, to verify the loaded plan by.
        transport: in place of the usual one; only where the workers run in this process.

    Raises:
        UsageError: the plan or the options cannot be used, inputs are missing, or the folder of checkpoints holds some
            that are not gone on from, or is another run's.
        ModelError: weights cannot be read, the programs do not fit together, the whole model cannot be run, or a
            checkpoint is another model's or damaged.
        WorkerError: a worker failed; it is named.
        DifferenceError: a fetch moved other bytes than predicted, or workers that hold the same elements differ.
    """
    with contextlib.ExitStack() as stack:
        start = read_start(plan, options, stack, world, references)
        if start.checkpoint is not None and start.first > start.last:
            return already_done(start, start.checkpoint)
        iterations = Iterations(prepared(start, transport, stack))
        stack.callback(iterations.close)
        return iterations.go()
