"""A change of a model's batch: by a symbolic dim of its file, by following its samples, or by the zoo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from planner.errors import UsageError
from planner.features.fit.sized import Batches
from planner.features.zoo.models import build, family_of
from planner.graph.model import Graph
from planner.graph.to_onnx import write_model
from planner.options.training import TrainingOptions
from planner.planning.request import ModelSource
from planner.planning.samples import STATED, Samples, samples_by_dim, symbol_of_samples
from planner.training.batch.change import samples_of_inputs
from planner.training.doors.make import make
from planner.training.doors.read import read_step

_FIXED: Final = (
    f"{STATED} (a training graph of a symbolic batch, or a forward model with --loss and --optimizer, "
    "is read at others)"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model, as it is asked for."""

    source: ModelSource
    """How its file is read."""
    is_of_zoo: bool
    """It is a name of the zoo."""
    training: TrainingOptions | None
    """Of a forward model, or of one of gradients, how it is trained; None: the file says it."""
    batch: int | None
    """Samples of an iteration; None: as many as it has."""


def batches_of_model(wanted: Wanted) -> Batches:
    """The model, and how its batch is changed.

    Raises:
        TofuError: it cannot be read; a batch is asked for that it cannot have.
    """
    source, training, batch = wanted.source, wanted.training, wanted.batch
    if wanted.is_of_zoo:
        return _of_zoo(source, batch)
    symbol = symbol_of_samples(source.model)
    stated = dict(source.options.dim or {})
    if symbol is not None and batch is not None and stated.setdefault(symbol, batch) != batch:
        raise UsageError(f"--batch {batch}, and --dim {symbol}={stated[symbol]}", hint="write one of them")
    by_dim = samples_by_dim(replace(source, options=replace(source.options, dim=stated)), training)
    if by_dim is not None:
        return Batches(by_dim.at(by_dim.given), by_dim, "")
    if training is None:
        if batch is not None:
            raise UsageError(f"--batch {batch}: {_FIXED}", hint="write a range, or leave --batch out")
        return Batches(source, None, _FIXED)
    trained = make(source.model, training, batch)
    stated_source = _as_its_file(replace(source, make=lambda: trained.graph))
    count = 0 if trained.forward is None else samples_of_inputs(trained.forward)[0]
    if not count:
        return Batches(stated_source, None, "the model says itself how it is trained, and with which batch")

    def at(size: int) -> ModelSource:
        return replace(source, make=lambda: make(source.model, training, size).graph)

    return Batches(stated_source, Samples(batch or count, at), "")


def _of_zoo(source: ModelSource, batch: int | None) -> Batches:
    name = str(source.model)
    samples = Samples(
        family_of(name).batch_of(name) if batch is None else batch,
        lambda size: replace(source, make=lambda: build(name, batch=size)),
    )
    return Batches(_as_its_file(samples.at(samples.given)), samples, "")


def _as_its_file(source: ModelSource) -> ModelSource:
    """The graph as its file is read when its plan runs: reading makes constants of what is known."""
    make = source.make
    assert make is not None, "a file is read as it is"

    def read() -> Graph:
        with TemporaryDirectory() as folder:
            written = Path(folder) / "model.onnx"
            write_model(make(), written)
            return read_step(written, operators=source.descriptions)

    return replace(source, make=cache(read))  # a plan that is written reads it again
