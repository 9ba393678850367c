"""The door for a file: forward model, flat step, training information, generated artifacts, gradients only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Graph, StatePair
from planner.graph.files.protos import dtype_of
from planner.graph.folding.foreign import Operators
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.load import load_model
from planner.training.doors.artifacts import (
    OPTIMIZER_MODEL,
    TRAINING_MODEL,
    Stated,
    is_artifact,
    read_gradients,
    read_optimizer,
)
from planner.training.doors.inputs import hold, weights_among_inputs
from planner.training.doors.needed import LeftOut, read_needed
from planner.training.doors.training_info import is_training_model, read_training_info
from planner.training.parameters.exporter import Exporter, exporter_of


@dataclass(frozen=True, slots=True)
class Opened:
    """The contents of a door's file."""

    graph: Graph
    """Without state where an optimizer has yet to be put behind it, or a loss."""
    gradients: tuple[tuple[str, str], ...] | None = None
    """(parameter, gradient) where the file says which belong together."""
    optimizer: Stated | None = None
    """What an optimizer model beside it says."""
    running: tuple[StatePair, ...] = ()
    """Further state beside the parameters, which no optimizer looks at, and the outputs that replace it."""
    held: tuple[str, ...] = ()
    """Weights that the file has among its inputs, and the graph among its constants."""
    left_out: tuple[LeftOut, ...] = ()
    """Outputs of the file that the graph does not have, for they could not be read."""
    exporter: Exporter = field(default_factory=Exporter)
    """What the file of a forward model says of the program that wrote it."""
    fixed_floats: tuple[tuple[str, str], ...] = ()
    """Inputs of floats with dims that became constants (``--value``), with what the file says that they are."""


def open_training(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, str] | None = None,
    state_pairs: Sequence[tuple[str, str]] | None = None,
    operators: Operators | None = None,
    weights: Sequence[str] | None = None,
    loss_output: str | None = None,
) -> Opened:
    """Read a model of any form.

    Args:
        path: an ONNX file, or a folder of artifacts (training_model.onnx, optimizer_model.onnx).
        dims: sizes of symbolic dims, see ``read_model``.
        values: of inputs, see ``read_model``.
        state_pairs: see ``read_model``.
        operators: see ``read_model``.
        weights: of a model that a loss is put behind, patterns of inputs that are weights, beside those that are so
            for certain (see ``weights_among_inputs``); None: inputs stay inputs, and every output is read.
        loss_output: the output that the loss looks at; outputs beside it that cannot be read are left out. None: any.

    Raises:
        ModelError, UnsupportedError, UsageError: see ``read_model``, ``read_training_info`` and ``read_gradients``.
    """
    file = file_of(Path(path))
    model = load_model(file)
    try:
        if is_training_model(model):
            _no_options(file, dims, values, state_pairs if model.training_info else None)
            return Opened(read_training_info(model, state_pairs))
        if is_artifact(model):
            _no_options(file, dims, values, state_pairs)
            read = read_gradients(model)
            beside = file.parent / OPTIMIZER_MODEL
            return Opened(read.graph, read.pairs, read_optimizer(beside) if beside.is_file() else None, read.running)
        exporter = exporter_of(model)

        def graph() -> Graph:
            return graph_from_proto(
                model, dims=dims, values=values, state_pairs=state_pairs, name=file.stem, operators=operators
            )

        fixed = _fixed_floats(model, values or {})
        if weights is None:
            return Opened(graph(), exporter=exporter, fixed_floats=fixed)
        held = weights_among_inputs(model, weights)
        # The weights of a graph with state are inputs, as in every step: only patterns of the user make them constants.
        if held and (weights or not _is_step(graph)):
            hold(model, held)
        else:
            held = ()
        needed, left_out = read_needed(model, graph, loss_output)
        return Opened(needed, held=held, left_out=left_out, exporter=exporter, fixed_floats=fixed)
    except ModelError as error:
        named = error.what if error.what.startswith(str(file)) else f"{file}: {error.what}"
        raise type(error)(named, facts=error.facts, hint=error.hint) from error


def _fixed_floats(model: ModelProto, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    inputs = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype, dims = dtype_of(kind.elem_type), kind.shape.dim
        if value.name in values and dims and dtype is not None and dtype.is_float:
            sizes = ", ".join(dim.dim_param or str(dim.dim_value) for dim in dims)
            inputs.append((value.name, f"{dtype.value} [{sizes}]"))
    return tuple(inputs)


def file_of(path: Path) -> Path:
    """The file that is read of a path, which may be a folder of artifacts."""
    return path / TRAINING_MODEL if path.is_dir() and (path / TRAINING_MODEL).is_file() else path


def _is_step(read: Callable[[], Graph]) -> bool:
    """Whether a model has state as it stands: then its weights are inputs as those of every step."""
    try:
        return bool(read().state)
    except ModelError:
        return False


def read_step(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, str] | None = None,
    state_pairs: Sequence[tuple[str, str]] | None = None,
    operators: Operators | None = None,
) -> Graph:
    """The graph of a file, to be planned: a training step, or a forward model as it is.

    Raises:
        ModelError, UnsupportedError, UsageError: see ``open_training``.
    """
    return open_training(path, dims=dims, values=values, state_pairs=state_pairs, operators=operators).graph


def _no_options(
    file: Path,
    dims: Mapping[str, int] | None,
    values: Mapping[str, str] | None,
    state_pairs: Sequence[tuple[str, str]] | None,
) -> None:
    if dims:
        raise UsageError(f"{file}: --dim is not taken for a model that says how it is trained")
    if values:
        raise UsageError(f"{file}: --value is not taken for a model that says how it is trained")
    if state_pairs is not None:
        raise UsageError(f"{file}: it says itself what its state is")
