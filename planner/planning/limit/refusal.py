"""The refusal of a model that fits with no plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.artifacts.asked import ByWorker
from planner.cost.residence import Residence
from planner.errors import InfeasibleError
from planner.graph.step.purposes import Purpose
from planner.partition.occupancy import occupancy, tightest
from planner.partition.workspace import ELEMENTWISE
from planner.planning.limit.trial import Trial
from planner.units import binary

_SHOWN_TENSORS = 5
_MOST_TIMES_WORKERS = 64
"""A refusal suggests at most 64 times as many workers as there are: what each worker holds does not shrink for ever."""


def does_not_fit(leanest: Trial, limits: Sequence[int]) -> InfeasibleError:
    """The refusal with the largest tensors of the plan that lacks the least, and the remedies.

    Args:
        leanest: the plan.
        limits: the memory there is, one entry for each worker, in any order: who needs more has the larger.
    """
    program, graph = leanest.partitioned.program, leanest.decided.graph
    by_worker = limits if isinstance(limits, ByWorker) else ()
    least = Residence(graph, leanest.decided.ops, by_worker).least(ELEMENTWISE).tolist()
    peaks = program.peak_bytes
    worker, limit = tightest(peaks, limits)
    usage = occupancy(program, graph, worker)
    workers = len(peaks)
    facts = [f"of worker {worker}, at its fullest: {_listing(usage.amounts(usage.fullest))}"]
    fullest = max(range(len(least)), key=least.__getitem__)
    bound = -(-least[fullest] // workers)
    of = "every plan that computes the same again" if graph.copies else "every plan"
    facts.append(f"{of} takes {binary(bound)} at least on some worker, at {graph.ops[fullest].name}")
    largest = usage.at(usage.fullest)[:_SHOWN_TENSORS]
    facts += [f"{held.buffer} ({held.purpose.value}): {binary(held.size_bytes)}" for held in largest]
    enough = max(peaks)
    about = -(-workers * peaks[worker] // max(1, limit))
    remedy = "no number of workers would"
    if about <= _MOST_TIMES_WORKERS * workers:
        remedy = f"so might about {about} workers"
    return InfeasibleError(
        f"no plan was found that fits: worker {worker} needs {binary(peaks[worker])} at least, and has {binary(limit)}",
        facts=tuple(facts),
        hint=f"{binary(enough)} for each of the {workers} workers would do (--memory {enough}B); {remedy}",
        lacking_bytes=peaks[worker] - limit,
    )


def cannot_fit(
    bytes_by_tensor: Mapping[str, int], meant: Mapping[str, Purpose], op: str, limits: Sequence[int]
) -> InfeasibleError:
    """The refusal of less memory than every plan takes.

    Args:
        bytes_by_tensor: by tensor, what lies on all workers together at the fullest moment.
        meant: what the memory of tensors is taken for.
        op: that runs at that moment.
        limits: the memory there is, one entry for each worker, in any order.
    """
    workers, total = len(limits), sum(bytes_by_tensor.values())
    sums: dict[Purpose, int] = {}
    for name, size in bytes_by_tensor.items():
        sums[meant[name]] = sums.get(meant[name], 0) + size
    largest = sorted(bytes_by_tensor.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN_TENSORS]
    room = f"each of the {workers} has {binary(limits[0])}"
    if len(set(limits)) > 1:
        room = f"the {workers} workers have {binary(sum(limits))} in all"
    elif workers == 1:
        room = f"it has {binary(limits[0])}"
    enough = -(-total // workers)
    return InfeasibleError(
        f"no plan fits: every plan takes {binary(enough)} at least on some worker, and {room}",
        facts=(
            f"of {binary(total)} on all workers together, while {op} runs: {_listing(sums)}",
            *(f"{name} ({meant[name].value}): {binary(size)}" for name, size in largest),
        ),
        hint=f"no fewer than {-(-total // max(limits)):,} workers can hold it",
        lacking_bytes=enough - sum(limits) // workers,
    )


def _listing(amounts: Mapping[Purpose, int]) -> str:
    ordered = sorted(amounts.items(), key=lambda item: -item[1])
    return ", ".join(f"{binary(size)} {purpose.value}" for purpose, size in ordered)


def with_activations_again(refused: InfeasibleError, least: int, limits: Sequence[int]) -> InfeasibleError:
    """A refusal that says what plans take at least that compute activations again.

    Args:
        refused: of plans that keep them all.
        least: bytes on all workers together.
        limits: the memory there is, one entry for each worker, in any order.
    """
    share = -(-least // len(limits))
    would = "would do, if a plan comes near to that" if least <= sum(limits) else "is too much as well"
    again = f"with activations computed again every plan takes {binary(share)} at least, which {would}"
    hint = "write --recompute auto" if least <= sum(limits) else refused.hint
    return InfeasibleError(refused.what, facts=(*refused.facts, again), hint=hint, lacking_bytes=refused.lacking_bytes)


def with_batch(refused: InfeasibleError, batch: str) -> InfeasibleError:
    """A refusal that says what a smaller batch would do.

    Args:
        refused: a plan.
        batch: what it would do, in words.
    """
    hint = f"{refused.hint}; {batch}"
    return InfeasibleError(refused.what, facts=refused.facts, hint=hint, lacking_bytes=refused.lacking_bytes)
