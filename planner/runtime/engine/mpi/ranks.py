"""The assignment of workers to ranks, and checks that all ranks agree before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby
from operator import mul
from typing import Final, TypeAlias

from planner.errors import UsageError

Statement: TypeAlias = Mapping[str, str]
"""What a rank has, by what it is: versions, digests of files, options."""

_SHOWN: Final = 12
"""Digits of a digest in a message."""


def ranks_of(devices: Sequence[int] | None, workers: int) -> tuple[int, ...]:
    """The rank of each worker: the number of its device, where the plan is for a topology; else its own.

    Devices are numbered along the topology's levels, and a launcher numbers ranks host by host, so that workers between
    which much moves are on one host.
    """
    if devices is not None and sorted(devices) == list(range(workers)):
        return tuple(devices)
    return tuple(range(workers))


def check_size(size: int, workers: int, directory: str) -> None:
    """Refuses ranks that are not as many as the workers of the plan.

    Raises:
        UsageError: with the line that starts as many.
    """
    if size != workers:
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        needed = "1 worker" if workers == 1 else f"{workers} workers"
        raise UsageError(
            f"--engine mpi: {directory} is a plan for {needed}, and there {'is' if size == 1 else 'are'} {ranks}",
            hint=f"launch one for each worker: {launch_line(workers, directory)}",
        )


def launch_line(workers: int, directory: str, per_host: int | None = None) -> str:
    """The command that is right."""
    option = "" if per_host is None or per_host == workers else f" -ppn {per_host}"
    return f"mpiexec -n {workers}{option} tofu run {directory} --engine mpi"


def check_hosts(hosts: Sequence[str], cuts: Sequence[int], directory: str) -> None:
    """Refuses ranks that lie on the hosts otherwise than the plan's cuts do.

    Each host must have ranks that follow each other, and as many as there are workers within one of the plan's cuts:
    cuts of 2, 2, 3 make groups of 12, 6, 3 or 1. The outermost cuts, over which the least moves, are then between
    hosts.

    Args:
        hosts: by rank.
        cuts: the plan's, outermost first.
        directory: the plan's folder, for the line that is right.

    Raises:
        UsageError: with the line that is right.
    """
    runs = [(host, len(list(ranks))) for host, ranks in groupby(hosts)]
    host_count = len({host for host, _ in runs})
    if host_count == 1:
        return
    groups = [1, *accumulate(reversed(cuts), mul)]
    faults = []
    if len(runs) > host_count:
        faults.append("ranks of one host do not follow each other")
    counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
    if len(set(counts.values())) > 1 or next(iter(counts.values())) not in groups:
        faults.append(f"groups that lie within the plan's cuts are of {', '.join(map(str, groups))} workers")
    if not faults:
        return
    shown = tuple(f"{host}: {'rank' if size == 1 else 'ranks in a row'} {size}" for host, size in runs)
    fitting = [group for group in groups if group * host_count >= len(hosts)] or [len(hosts)]
    raise UsageError(
        "--engine mpi: the ranks lie on the hosts otherwise than the plan's cuts",
        facts=(*faults, *shown),
        hint=f"write {launch_line(len(hosts), directory, fitting[0])}",
    )


def check_equal(statements: Sequence[Statement], hosts: Sequence[str]) -> None:
    """Refuses ranks that have other things than rank 0.

    Raises:
        UsageError: with all findings.
    """
    faults = []
    first = statements[0]
    for rank, statement in enumerate(statements):
        for name in sorted({*first, *statement}):
            mine, rank_value = first.get(name, "none"), statement.get(name, "none")
            if mine != rank_value:
                faults.append(f"rank {rank} on {hosts[rank]}: {name} {rank_value[:_SHOWN]}; rank 0: {mine[:_SHOWN]}")
    if faults:
        raise UsageError(
            "--engine mpi: the ranks do not have the same",
            facts=tuple(faults),
            hint="give all ranks one plan, one tofu and the same options",
        )
