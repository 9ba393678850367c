"""Weights that a user gives in a file: which formats there are, and what is read of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from planner.algebra.region import Region
from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.printable import some
from planner.runtime.values.fitting import misfit, native, unknown
from planner.runtime.values.npz import read_npz
from planner.runtime.values.safetensors import StoredTensor, read_header, read_tile
from planner.runtime.values.state import part_of


class WeightFile:
    """A file of whole tensors, npz or safetensors, as a source of tiles.

    Args:
        path: of the file; ``.safetensors`` is read as that, anything else as npz.
        graph: whose state, or constants without a value, it holds.

    Raises:
        UsageError: it cannot be read, or does not fit the model; all findings at once.
    """

    def __init__(self, path: Path, graph: Graph) -> None:
        self._path = path
        self._stored = read_header(path) if path.suffix == ".safetensors" else {}
        self._arrays: dict[str, np.ndarray] = {}
        self._graph = graph
        if path.suffix == ".safetensors":
            self._check(self._stored)
        else:
            arrays = read_npz(path, self._check)
            self._arrays = {name: native(array, graph.tensors[name]) for name, array in arrays.items()}

    def holds(self, name: str) -> bool:
        """See ``TileSource.holds``."""
        return name in self._stored or name in self._arrays

    def tile(self, name: str, region: Region) -> np.ndarray:
        """See ``TileSource.tile``."""
        if name in self._stored:
            return read_tile(self._path, self._stored[name], region)
        return part_of(self._arrays[name], region)

    def _check(self, declared: Mapping[str, StoredTensor | np.ndarray]) -> Collection[str]:
        """Refuses tensors that do not fit the model; all of them are wanted."""
        graph = self._graph
        unread = (name for name, value in graph.constants.items() if value is None)
        names = dict.fromkeys([*graph.inputs, *unread])
        findings = []
        for name, stored in declared.items():
            if name in graph.constants and graph.constants[name] is not None:
                findings.append(f"{name}: is a constant whose value the plan holds")
            elif name not in names:
                findings.append(unknown(name, name, list(names), len(findings)))
            elif isinstance(stored, StoredTensor):
                tensor = graph.tensors[name]
                if (stored.dtype, stored.shape) != (tensor.dtype, tensor.shape):
                    findings.append(
                        f"{name}: is {stored.dtype.value} {list(stored.shape)}, the input is "
                        f"{tensor.dtype.value} {list(tensor.shape)}"
                    )
            else:
                fault = misfit(stored, graph.tensors[name])
                findings.extend([f"{name}: {fault}"] if fault else [])
        fitting = sum(name in names for name in declared)
        if declared and not fitting:
            states = [*dict.fromkeys([*(pair.current for pair in graph.state), *names])]
            raise UsageError(
                f"{self._path}: 0 of {len(declared):,} names fit the model",
                facts=(f"names in the file: {some(list(declared))}", f"names in the model: {some(states)}"),
                hint="is it another model's file, or are its names another framework's?",
            )
        if findings:
            count = f"{fitting:,} of {len(declared):,} names fit"
            raise UsageError(f"{self._path} does not fit the model ({count})", facts=tuple(findings))
        return declared.keys()
