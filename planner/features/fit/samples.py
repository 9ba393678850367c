"""A change of a model's batch: by a symbolic dim of its file, by `tofu grad`, which made it, or by the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.api.made_of import made_of
from planner.errors import UsageError
from planner.features.fit.sized import Batches
from planner.features.zoo.models import build, family_of
from planner.planning.request import ModelSource
from planner.planning.samples import STATED, Samples, samples_by_dim, symbol_of_samples
from planner.training.batch.change import samples_of_inputs
from planner.training.doors.make import make


def batches_of_model(source: ModelSource, batch: int | None) -> Batches:
    """The model at any batch: by the zoo, by a symbolic dim, or by ``tofu grad``, which made it.

    Args:
        source: how the model is read.
        batch: samples of an iteration; None: as many as it has.

    Raises:
        TofuError: it cannot be read; a batch is asked for that it cannot have.
    """
    if source.make is not None:
        return _of_zoo(source, batch)
    symbol = symbol_of_samples(source.model)
    stated = dict(source.options.dim or {})
    if symbol is not None and batch is not None and stated.setdefault(symbol, batch) != batch:
        raise UsageError(f"--batch {batch}, and --dim {symbol}={stated[symbol]}", hint="write one of them")
    by_dim = samples_by_dim(_with_dim(source, stated))
    if by_dim is not None:
        return Batches(by_dim.at(by_dim.given), by_dim, "")
    remade, why_fixed = _by_grad(source)
    if remade is None:
        if batch is not None:
            raise UsageError(f"--batch {batch}: {why_fixed}", hint="write a range, or leave --batch out")
        return Batches(source, None, why_fixed)
    if batch is None:
        return Batches(source, remade, "")
    return Batches(remade.at(batch), replace(remade, given=batch), "")


def _by_grad(source: ModelSource) -> tuple[Samples | None, str]:
    """The training graph as `tofu grad` makes it with another batch; or None, and why it cannot."""
    origin, why = made_of(source.model)
    if origin is None:
        return None, f"{STATED}, and {why}"
    forward, training = origin.forward, origin.options
    by_dim = samples_by_dim(_with_dim(replace(source, model=forward), training.dim or {}), training)
    if by_dim is not None:
        return Samples(by_dim.given, lambda size: by_dim.at(size).as_its_file()), ""
    whole = make(forward, training, origin.batch).forward
    count = 0 if whole is None else samples_of_inputs(whole)[0]
    if not count:
        return None, f"{STATED}, and {forward} has no samples"

    def at(size: int) -> ModelSource:
        return replace(source, make=lambda: make(forward, training, size).graph).as_its_file()

    return Samples(count, at), ""


def _with_dim(source: ModelSource, dim: Mapping[str, int]) -> ModelSource:
    return replace(source, options=replace(source.options, dim=dim))


def _of_zoo(source: ModelSource, batch: int | None) -> Batches:
    name = str(source.model)
    samples = Samples(
        family_of(name).batch_of(name) if batch is None else batch,
        lambda size: replace(source, make=lambda: build(name, batch=size)),
    )
    return Batches(samples.at(samples.given).as_its_file(), samples, "")
