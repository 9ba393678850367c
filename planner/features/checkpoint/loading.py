"""Trained weights back in the PyTorch module that was exported; PyTorch is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import UsageError
from planner.features.checkpoint.checkpoints import named
from planner.graph.reading.load import load_model
from planner.runtime.values.checkpoint import Checkpoint
from planner.runtime.values.npz import read_npz
from planner.runtime.values.safetensors import read_header, read_tile
from planner.training.parameters.exporter import exporter_of


@runtime_checkable
class Module(Protocol):
    """A PyTorch module, as far as it is needed."""

    def state_dict(self, *, keep_vars: bool) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool) -> Any: ...


def load(module: Module, source: Path, forward: Path | None) -> tuple[str, ...]:
    """See ``planner.load_into``."""
    shapes, value_of = _stored(source)
    renamed = {} if forward is None else exporter_of(load_model(forward)).renamed
    state = module.state_dict(keep_vars=True)
    own = {name: name if name in shapes else renamed.get(name, "") for name in state}
    # A tied parameter is one tensor under several names, of which the file has one.
    key_of = {id(value): own[name] for name, value in state.items() if own[name] in shapes}
    faults, loaded = [], {}
    for name, value in state.items():
        key = key_of.get(id(value))
        if key is None:
            faults += [f"{name} {list(value.shape)}: is not in it"] * value.requires_grad
            continue
        # Exporters compute matrices under names of their own in order to transpose them.
        is_transposed = key not in state and len(shapes[key]) == 2
        shape = shapes[key][::-1] if is_transposed else shapes[key]
        if shape != tuple(value.shape):
            faults.append(f"{name}: is {list(shape)} in it, and {list(value.shape)} in the module")
        else:
            array = value_of(key)
            array = array if array.dtype.kind in "biuf" else array.astype(np.float32)  # PyTorch reads no bfloat16
            loaded[name] = value.new_tensor(array.T if is_transposed else array)
    for key in shapes.keys() - key_of.values():
        is_of_optimizer = key.rpartition(".")[0] in shapes or not shapes[key]
        faults += [] if is_of_optimizer else [f"{key} {list(shapes[key])}: is not in the module"]
    if faults:
        raise UsageError(
            f"{source} does not fit the module",
            facts=tuple(sorted(faults)),
            hint="forward=MODEL.onnx tells what val_15 is; a frozen parameter has requires_grad False",
        )
    module.load_state_dict({**state, **loaded}, strict=True)
    return tuple(loaded)


def _stored(source: Path) -> tuple[dict[str, tuple[int, ...]], Callable[[str], np.ndarray]]:
    """Shapes of the tensors of a file or of the newest checkpoint of a folder, and what reads one of them."""
    if source.is_dir():
        checkpoint = Checkpoint(named(source)[-1][1])
        return {name: tensor.shape for name, tensor in checkpoint.tensors.items()}, checkpoint.whole
    if source.suffix == ".safetensors":
        header = read_header(source)
        shapes = {name: stored.shape for name, stored in header.items()}
        return shapes, lambda key: read_tile(source, header[key], Region.whole(index_space(shapes[key]))).reshape(
            shapes[key]
        )
    arrays = read_npz(source, lambda declared: declared.keys())
    return {name: array.shape for name, array in arrays.items()}, arrays.__getitem__
