"""The choice of the engine that runs a plan: the one place that knows all of them.

Where each worker's tensors are, and who starts it:

    local       threads of a supervised child           process/
    processes   a supervised child for each worker      process/
    mpi         a rank for each worker                  mpi/
                threads of this very process            core/, where a plan is in memory

each on CPUs, or on GPUs by what ``gpu/`` hands to it: another child, another place for a rank's worker to compute. What
an engine does not need is not imported: a run on CPUs loads nothing that computes on GPUs, one without ranks no
messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import UsageError
from planner.options.running import RunOptions
from planner.runtime.engine.core.interface import Engine, InProcessEngine
from planner.runtime.engine.core.transport import Transport
from planner.runtime.engine.gpu.untried import refuse_untried
from planner.runtime.engine.mpi.world import World
from planner.runtime.engine.process.child_process import COMMAND, command_of
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.values.given import digest_of_given

GPU_COMMAND: Final = command_of("planner.runtime.engine.gpu.child")
"""What a supervisor starts where workers have GPUs."""


@contextlib.contextmanager
def joined_ranks(engine: str, patience_seconds: float, notice: Callable[[str], None]) -> Iterator[World | None]:
    """The ranks that were launched with this process, where the engine has any; None elsewhere.

    Args:
        engine: its name.
        patience_seconds: how long a worker may wait for another.
        notice: told for whom a long wait is.

    Raises:
        UsageError: it has ranks, and there are none.
    """
    if engine != "mpi":
        yield None
        return
    from planner.runtime.engine.mpi.mpi_channel import joined

    with joined(patience_seconds, notice) as world:
        yield world


def agreed(world: World, directory: Path, options: RunOptions) -> int:
    """The worker of this rank, once all ranks have found that they have the same plan and were asked the same.

    Args:
        world: the ranks.
        directory: the plan's folder, as this rank sees it.
        options: how it is run.

    Raises:
        UsageError: they are too few or too many, or have not the same.
        ModelError: the plan cannot be read.
    """
    from planner.runtime.engine.mpi.meeting import agree

    options.progress("meeting the other ranks")
    agree(world, directory, _equal_on_all(options))
    return world.worker


def check_choice(options: RunOptions, world: World | None) -> None:
    """Refuses engines and devices that do not go together, whatever the plan.

    Raises:
        UsageError: they do not.
    """
    refuse_untried(options.engine, options.device)
    if options.engine == "mpi" and world is None:
        raise UsageError("--engine mpi: no ranks", hint="call planner.api.run, which joins them")
    if options.device == "cpu" and options.device_map is not None:
        raise UsageError("GPUs are named for workers that compute on the CPU", hint="write --device cuda:N,N,...")


def started(
    plan: LoadedPlan, options: RunOptions, world: World | None = None, transport: Transport | None = None
) -> Engine:
    """A plan's workers, started as asked.

    Args:
        plan: which; worker models that are in memory only run in this process.
        options: how.
        world: the ranks, where the engine has any.
        transport: in place of the usual one; only in this process.

    Raises:
        UsageError: the plan is not in a folder, and other processes are to read it; or a GPU cannot be used.
        ModelError: the programs do not fit together, or a session cannot be made.
        WorkerError: a worker did not start.
    """
    # The GPU of each worker; () where nobody says: what there is, only the workers' process may ask.
    device_map = None if options.device == "cpu" else tuple(options.device_map or ())
    if world is not None:
        return _rank_of(plan, options, world, device_map)
    for option in (f"--device {options.device}", f"--engine {options.engine}"):
        if not plan.paths and option not in ("--device cpu", "--engine local"):
            raise UsageError(f"{option}: the plan is not in a folder")
    if plan.paths and transport is None:
        return SupervisedEngine(
            plan.paths,
            plan.program.workers,
            plan.program.state,
            is_apart=options.engine == "processes",
            device_map=device_map,
            libraries=tuple(options.custom_ops),
            patience_seconds=options.patience,
            progress=options.progress,
            command=COMMAND if device_map is None else GPU_COMMAND,
        )
    options.progress("making sessions")
    return InProcessEngine(plan.models, plan.program.state, transport=transport, libraries=tuple(options.custom_ops))


def _equal_on_all(options: RunOptions) -> dict[str, str]:
    """What all ranks must have been asked alike, since they go through the steps together."""
    return {
        "--steps": str(options.steps or 1),
        "--epochs": str(options.epochs),
        "--shuffle": str(options.shuffle),
        "--seed": str(options.seed),
        "--lr": "a function" if callable(options.lr) else str(np.asarray(options.lr).tolist()),
        "--verify": str(options.verify),
        "--checkpoint-every": str(options.checkpoint_every),
        "--checkpoint-dir": str(options.checkpoint_dir is not None),
        "--resume": str(options.resume),
        "--measure": str(options.profile),
        "--allow-nan": str(options.allow_nan),
        "-o": str(options.wants_results),
        "--weights random": str(options.random_weights),
        "--metric": str(options.metric),
        "--eval-inputs": digest_of_given(options.eval_inputs),
        "--inputs": digest_of_given(options.inputs if isinstance(options.inputs, Path) else None),
        "--weights": digest_of_given(options.weights),
        "--data-dir": digest_of_given(options.data_dir),
    }


def _rank_of(plan: LoadedPlan, options: RunOptions, world: World, device_map: tuple[int, ...] | None) -> Engine:
    """This rank's worker, and the ranks of the others."""
    from planner.runtime.engine.mpi.message_engine import MessageEngine

    make_backend = None
    if device_map is not None:
        from planner.runtime.engine.gpu.cuda_messages import gpu_of_rank

        make_backend = gpu_of_rank(world, device_map, tuple(options.custom_ops))
    return MessageEngine(
        plan.models[0],
        plan.program.workers,
        world,
        plan.program.state,
        make_backend=make_backend,
        libraries=tuple(options.custom_ops),
        note=options.note,
        progress=options.progress,
    )
