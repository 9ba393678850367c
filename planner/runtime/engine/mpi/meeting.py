"""The meeting of ranks: a check before anything is loaded that they are as many as workers, and have the same."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from planner import __version__
from planner.artifacts.place import MANIFEST, PLAN
from planner.artifacts.plan import Plan, digest
from planner.errors import UsageError
from planner.runtime.engine.mpi.ranks import check_equal, check_hosts, check_size, ranks_of
from planner.runtime.engine.mpi.world import World
from planner.strict_json import JsonError, read_json


def agree(world: World, directory: Path, options: Mapping[str, str]) -> None:
    """Gives every worker of a plan a rank, or refuses the ranks; on rank 0, which speaks for all.

    Args:
        world: the ranks.
        directory: the plan's folder, as this rank sees it.
        options: those that must be the same on all ranks.

    Raises:
        UsageError: they are too few or too many, lie on the hosts otherwise than the plan's cuts, or have not the same
            plan, versions or options; or there is no plan.
        ModelError: the plan cannot be read.
    """
    content = _content(directory / PLAN)
    plan = Plan.from_json(content, str(directory / PLAN))
    statement = {**_versions(), **_digests(directory), **options}
    world.meet()
    statements = world.gather(statement, "to read the plan")
    if statements is not None:
        check_size(world.size, plan.workers, str(directory))
        check_equal(statements, world.hosts)
        check_hosts(world.hosts, plan.cuts, str(directory))
    world.spread(None, "to compare what the ranks have")
    world.ranks = ranks_of(None if plan.estimate is None else plan.estimate.devices, plan.workers)


def agree_on_start(world: World, step: int, seed: int) -> None:
    """All ranks are ready, and begin with the same step.

    Raises:
        UsageError: some see another checkpoint.
    """
    pairs = world.gather((step, seed), "to load its part")
    if pairs is not None and any(tuple(pair) != (step, seed) for pair in pairs):
        raise UsageError(
            "--resume: the ranks see different checkpoints",
            facts=tuple(f"rank {rank} on {world.hosts[rank]}: step {pair[0] - 1}" for rank, pair in enumerate(pairs)),
            hint="--checkpoint-dir must be one folder that all machines share",
        )
    world.spread(None, "to load its part")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise UsageError(f"{path.parent} holds no plan", hint="write one with `tofu plan`") from None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "tofu": __version__}
    for name in ("onnxruntime", "onnxruntime-gpu", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def _digests(directory: Path) -> dict[str, str]:
    """Of the plan, and of every file of its folder as the manifest states it; loading compares that with the file."""
    try:
        files = read_json(directory / MANIFEST)["files"].members()
        stated = {name: value.text() for name, value in files.items()}
    except JsonError:
        stated = {}  # loading says what is wrong with it
    return {**stated, PLAN: digest(_content(directory / PLAN))}
