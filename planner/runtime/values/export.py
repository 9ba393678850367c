"""Whole weights after a run: as a safetensors or npz file, or back in the forward model that they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Tensor
from planner.graph.files.protos import elem_type_of
from planner.graph.reading.load import load_model
from planner.printable import some
from planner.runtime.values.results import write_arrays, write_bytes
from planner.runtime.values.safetensors import write_safetensors
from planner.whole import try_file

_WHICH: Final = "--forward is the model that tofu grad was given; -o to .safetensors needs none"
_SHOWN: Final = 8
"""Names in a line."""


def export_weights(
    path: Path, state: Mapping[str, Tensor], value_of: Callable[[str], np.ndarray], forward: Path | None = None
) -> tuple[str, ...]:
    """Writes states, whole; returns the names of those that were written.

    Args:
        path: ``.safetensors`` or ``.npz``: every state; ``.onnx``: ``forward`` with the initializers that are states
            replaced.
        state: by name.
        value_of: the whole value of a state.
        forward: the forward model, for ``.onnx``.

    Raises:
        UsageError, ModelError: see ``check_export``; also a file that cannot be written.
    """
    if path.suffix == ".safetensors":
        write_safetensors(path, state, value_of)
        return tuple(state)
    if path.suffix == ".npz":
        write_arrays(path, {name: value_of(name) for name in state})
        return tuple(state)
    model = check_export(path, state, forward)
    written = []
    for initializer in model.graph.initializer:
        tensor = state.get(initializer.name)
        if tensor is not None:
            value = np.ascontiguousarray(value_of(initializer.name)).reshape(tensor.shape)
            initializer.CopyFrom(numpy_helper.from_array(value, initializer.name))
            written.append(initializer.name)
    try:
        content = model.SerializeToString(deterministic=True)
    except ValueError as error:  # more than 2 GiB
        raise ModelError(f"{path} would not fit an ONNX file: {error}", hint="export to .safetensors") from None
    write_bytes(path, content)
    return tuple(written)


def try_export(path: Path, forward: Path | None) -> None:
    """Refuses, before anything is read, a file to which nothing could be exported.

    Raises:
        UsageError: another kind of file, no forward model, or no place to write to.
    """
    if path.suffix not in (".safetensors", ".npz", ".onnx"):
        is_torch = path.suffix in (".pt", ".pth")
        hint = "write .safetensors, which planner.load_into loads into a PyTorch module" if is_torch else ""
        raise UsageError(f"{path} is neither .safetensors, .npz nor .onnx", hint=hint)
    if path.suffix == ".onnx" and forward is None:
        raise UsageError(f"{path}: into which model?", hint="name the forward model with --forward")
    try_file(path)


def check_export(path: Path, state: Mapping[str, Tensor], forward: Path | None = None) -> ModelProto:
    """Refuses, before a run, what could not be exported after it.

    Args:
        path: see ``export_weights``.
        state: by name.
        forward: the forward model, for ``.onnx``.

    Returns:
        That model; an empty one for other files.

    Raises:
        UsageError: see ``try_export``; or a place from which the rest of the forward model's external data would not be
            found.
        ModelError: the forward model cannot be read, or shares no weight with the state.
    """
    try_export(path, forward)
    if path.suffix != ".onnx" or forward is None:
        return ModelProto()
    model = load_model(forward)
    untrained = []
    for initializer in model.graph.initializer:
        tensor = state.get(initializer.name)
        if tensor is None:
            untrained.append(initializer)
        elif (tuple(initializer.dims), initializer.data_type) != (tensor.shape, elem_type_of(tensor.dtype)):
            raise ModelError(
                f"{forward}: initializer {initializer.name!r} is {list(initializer.dims)}, "
                f"the state of that name is {tensor.dtype.value} {list(tensor.shape)}",
                hint=_WHICH,
            )
    if len(untrained) == len(model.graph.initializer):
        held = [initializer.name for initializer in untrained]
        raise ModelError(
            f"{forward} has no initializer that is a state of the plan",
            facts=(
                f"states of the plan: {some(sorted(state), _SHOWN)}",
                f"initializers of the model: {some(held, _SHOWN)}",
            ),
            hint=_WHICH,
        )
    external = [entry.name for entry in untrained if entry.data_location == TensorProto.EXTERNAL]
    if external and path.resolve().parent != forward.resolve().parent:
        raise UsageError(
            f"{forward} has external data that is not trained", facts=tuple(external),
            hint="export into the folder of that model, or to .safetensors",
        )  # fmt: skip
    return model
