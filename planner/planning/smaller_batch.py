"""The effect of a smaller batch if a model does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import InfeasibleError, TofuError
from planner.planning.limit.refusal import with_batch
from planner.planning.samples import STATED, Growth, samples_by_dim
from planner.planning.session import Session


@contextmanager
def saying_what_batch_fits(session: Session) -> Iterator[None]:
    """Adds to a refusal of a limit on memory what a smaller batch would do.

    Args:
        session: that refuses.

    Raises:
        InfeasibleError: what was refused.
    """
    try:
        yield
    except InfeasibleError as error:
        if error.lacking_bytes <= 0:
            raise
        raise with_batch(error, _what_batch_fits(session, error.lacking_bytes)) from None


def _what_batch_fits(session: Session, lacking_bytes: int) -> str:
    """The largest batch that is not too much for every plan, in words; or why the batch cannot be changed.

    The model is read at half of its batch: what every plan takes at least grows by the same amount with each sample.
    Where the batch as it is may fit, and no plan was found, a batch is named with which plans take less by what lacked.

    Args:
        session: that refuses.
        lacking_bytes: what the worker lacks that lacks the most.
    """
    request, less = session.request, "a smaller batch takes less"
    if request.source.make is not None:
        return less
    samples = samples_by_dim(request.source)
    if samples is None:
        return f"{less}, but {STATED}"
    given, half = samples.given, samples.given // 2
    if not half:
        return "the batch is 1 already"
    request.options.progress(f"what every plan takes at least at a batch of {half}")
    try:
        plans = session.every_plan(samples.at(half).read()), session.every_plan(session.whole)
    except TofuError as error:
        return f"{less}, but at {half} the model cannot be planned: {error.what}"
    workers = request.target.workers
    at_half, at_given = (one.at_moments(workers) for one in plans)
    if len(at_half) != len(at_given):
        return f"{less}, but at {half} the model has other ops"
    room, least = sum(request.limits or ()), int(at_given.max(initial=0))
    is_ruled_out = least > room
    growth = Growth(half, at_half, given, at_given)
    largest = growth.largest(range(1, given), room if is_ruled_out else least - lacking_bytes * workers)
    there = f"on {workers} workers" if workers > 1 else "on one worker"
    if is_ruled_out:
        return f"{there} no batch above {largest:,} fits" if largest else f"no batch fits {there}"
    return f"{there} a batch of about {largest:,} might fit" if largest else less
