"""The values that a run starts from: given, from the model, or made up; tile by tile."""

from __future__ import annotations

import difflib
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import UsageError
from planner.graph.external import external_values
from planner.graph.model import Graph, Tensor
from planner.graph.protos import numpy_dtype
from planner.graph.wellformed import listed
from planner.runtime.external import ExternalData
from planner.runtime.safetensors import map_tensor, read_header
from planner.runtime.samples import Sampler

_IN: Final = "in_"
_OUT: Final = "out_"
_NO_NPZ: Final = (ValueError, EOFError, NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises, besides OSError, of a file that is no npz or is damaged."""


class TileSource(Protocol):
    """Something that has values of some tensors."""

    def holds(self, name: str) -> bool:
        """True if it has this tensor."""

    def tile(self, name: str, region: Region) -> np.ndarray:
        """A region of a tensor that it has, of the region's shape."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a run has made up."""

    seed: int
    weights: tuple[Tensor, ...]
    """States and constants."""
    inputs: tuple[Tensor, ...]
    """Data."""

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.weights)


class Values:
    """A value for every input of a graph, data and state, before the first step.

    What is asked first answers: what the caller gives, a checkpoint or a file of weights, what the model holds
    (``Graph.initial``), what it has in files beside it, and for the rest what ``samples.py`` makes up. Constants that
    the model does not hold have values here, too.

    Args:
        graph: the whole model.
        given: arrays by name, as ``check_inputs`` returns them.
        sources: checkpoints and files of weights, the first that has a tensor decides.
        seed: of what is made up.
        data_folders: where the files of the model may be, the likeliest first.
        random_weights: make up what lies in such files, and open none.

    Raises:
        UsageError: something cannot be made up (see ``Sampler.check``).
        ModelError: what lies in files cannot be read (see ``ExternalData``).
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, np.ndarray] | None = None,
        *,
        sources: tuple[TileSource, ...] = (),
        seed: int = 0,
        data_folders: Sequence[Path] = (),
        random_weights: bool = False,
    ) -> None:
        self._graph = graph
        self._arrays = {name: value for name, value in graph.initial.items() if value is not None}
        self._given = dict(given or {})
        self._sources = sources
        self._sampler = Sampler(graph, seed)
        self.absent = tuple(name for name, value in graph.constants.items() if value is None)
        """Constants that the model does not hold."""
        lacking = [name for name in (*graph.inputs, *self.absent) if not self._has(name)]
        external = ExternalData(graph, () if random_weights else lacking, data_folders)
        lacking = [name for name in lacking if not external.holds(name)]
        self.data_folder = external.folder if any(map(external.holds, (*graph.inputs, *self.absent))) else None
        """The folder whose files are read; None if none are."""
        self._sources = (*sources, external)
        self._sampler.check(lacking)
        weights = {*self.absent, *(pair.current for pair in graph.state)}
        made_up = [name for name in lacking if not self._sampler.is_stated(name)]
        self.drawn = Drawn(
            seed,
            tuple(graph.tensors[name] for name in made_up if name in weights),
            tuple(graph.tensors[name] for name in made_up if name not in weights),
        )
        """What is made up."""

    def tile(self, name: str, region: Region) -> np.ndarray:
        """A region of a tensor, of the region's shape.

        Raises:
            ModelError: it lies in a file that cannot be read any more.
        """
        if name not in self._given:
            for source in self._sources:
                if source.holds(name):
                    return source.tile(name, region)
        array = self._given.get(name, self._arrays.get(name))
        if array is None:
            return self._sampler.tile(name, region)
        return part_of(array, region)

    def whole(self, name: str) -> np.ndarray:
        """All of a tensor.

        Raises:
            ModelError: see ``tile``.
        """
        shape = self._graph.tensors[name].shape
        return self.tile(name, Region.whole(shape)).reshape(shape)

    def _has(self, name: str) -> bool:
        return name in self._given or name in self._arrays or any(source.holds(name) for source in self._sources)


def part_of(array: np.ndarray, region: Region) -> np.ndarray:
    """A region of a whole array."""
    space = index_space(array.shape)
    return array.reshape(space)[region.within(Region.whole(space))]


def starting_values(
    graph: Graph, inputs: str | Path | Mapping[str, np.ndarray] | None = None, *, seed: int = 0
) -> dict[str, np.ndarray]:
    """A whole value for every input of the graph, data and state, before the first step.

    Args:
        graph: the whole model.
        inputs: an npz file, or arrays by name; see ``check_inputs``. What it gives comes first, then what the model
            gives (``Graph.initial``), then what ``samples.py`` makes up.
        seed: of what is made up.

    Raises:
        UsageError: the file cannot be read, or arrays do not fit; all findings at once.
    """
    values = Values(graph, given_inputs(graph, inputs), seed=seed)
    return {name: values.whole(name) for name in graph.inputs}


def given_inputs(graph: Graph, inputs: str | Path | Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """The arrays that somebody gives, by input.

    Raises:
        UsageError: the file cannot be read, or arrays do not fit; all findings at once.
    """
    if isinstance(inputs, str | Path):
        return check_inputs(graph, read_npz(Path(inputs)), source=str(inputs))
    return check_inputs(graph, inputs or {}, source="inputs")


def refuse_missing(graph: Graph, given: Collection[str], *, source: str) -> None:
    """Refuses data that lacks an input.

    Args:
        graph: whose inputs they are.
        given: the inputs that have a value: of this data, or for the whole run.
        source: how to name the data.

    Raises:
        UsageError: there are inputs that are no state, have no value in the model and are not given: all of them.
    """
    states = {pair.current for pair in graph.state}
    sampler, external = Sampler(graph, 0), external_values(graph)
    missing = [
        graph.tensors[name]
        for name in graph.inputs
        if name not in states and name not in given and not sampler.is_stated(name) and name not in external
        if graph.initial.get(name) is None
    ]
    if missing:
        raise UsageError(
            f"{source} lacks inputs of the model",
            facts=listed([f"{tensor.name}: {tensor.dtype.value} {list(tensor.shape)}" for tensor in missing]),
            hint="add these arrays; without --inputs, all data is drawn",
        )


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
        self._arrays = {} if path.suffix == ".safetensors" else read_npz(path)
        known = [*graph.inputs, *(name for name, value in graph.constants.items() if value is None)]
        findings = []
        for name in (*self._stored, *self._arrays):
            if name in graph.constants and graph.constants[name] is not None:
                findings.append(f"{name}: is a constant whose value the plan holds")
            elif name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                findings.append(f"{name}: no input has this name" + (f"; did you mean {near[0]}?" if near else ""))
            elif name in self._stored:
                stored, tensor = self._stored[name], graph.tensors[name]
                if (stored.dtype, stored.shape) != (tensor.dtype, tensor.shape):
                    findings.append(
                        f"{name}: is {stored.dtype.value} {list(stored.shape)}, the input is "
                        f"{tensor.dtype.value} {list(tensor.shape)}"
                    )
            else:
                fault, self._arrays[name] = _fit(self._arrays[name], graph.tensors[name])
                findings.extend([f"{name}: {fault}"] if fault else [])
        if findings:
            raise UsageError(f"{path} does not fit the model", facts=tuple(findings))

    def holds(self, name: str) -> bool:
        """See ``TileSource.holds``."""
        return name in self._stored or name in self._arrays

    def tile(self, name: str, region: Region) -> np.ndarray:
        """See ``TileSource.tile``."""
        array = map_tensor(self._path, self._stored[name]) if name in self._stored else self._arrays[name]
        return part_of(array, region)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Raises:
        UsageError: there is none, it is something else, or it holds pickled objects, which are never loaded.
    """
    hint = "write it with numpy.savez"
    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except (OSError, *_NO_NPZ) as error:
        if isinstance(error, OSError) and error.strerror:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        raise UsageError(f"{path} is not an npz file", hint=hint) from None
    if isinstance(loaded, np.ndarray):
        raise UsageError(f"{path} holds one array", hint="write an npz with one array per input")
    arrays: dict[str, np.ndarray] = {}
    damaged: list[str] = []
    with loaded as file:
        for name in file.files:
            try:
                arrays[name] = file[name]
            except (OSError, *_NO_NPZ):
                damaged.append(f"{name}: is damaged, or holds Python objects, which are never loaded")
    if damaged:
        raise UsageError(f"{path} holds what cannot be read", facts=tuple(damaged), hint=hint)
    return arrays


def check_inputs(graph: Graph, arrays: Mapping[str, np.ndarray], *, source: str) -> dict[str, np.ndarray]:
    """Arrays by input name, in this machine's byte order.

    A key is an input's name, or its name after ``in_``; keys that begin with ``out_`` and are no input's name are
    left alone, so that a file of expected results may be given as it is.

    Raises:
        UsageError: keys that are no input, keys that are one input twice, wrong shapes or dtypes.
    """
    found: dict[str, np.ndarray] = {}
    findings: list[str] = []
    for key, array in arrays.items():
        name = key if key in graph.inputs else key.removeprefix(_IN)
        if name not in graph.inputs:
            if not key.startswith(_OUT):
                near = difflib.get_close_matches(name, graph.inputs, n=1)
                findings.append(f"{key}: no input has this name" + (f"; did you mean {near[0]}?" if near else ""))
            continue
        if name in found:
            findings.append(f"{key}: input {name} is given twice")
        fault, value = _fit(np.asarray(array), graph.tensors[name])
        findings.extend([f"{key}: {fault}"] if fault else [])
        found[name] = value
    if findings:
        raise UsageError(f"{source} does not fit the model", facts=tuple(findings))
    return found


def _fit(array: np.ndarray, tensor: Tensor) -> tuple[str, np.ndarray]:
    if array.dtype == np.dtype(f"V{tensor.dtype.item_bytes}") != numpy_dtype(tensor.dtype):
        array = array.view(numpy_dtype(tensor.dtype))  # npz has no name for bfloat16, and for what is narrower
    if array.dtype.name != tensor.dtype.value:
        return f"is of {array.dtype.name}, the input is of {tensor.dtype.value}", array
    if array.shape != tensor.shape:
        return f"has the shape {list(array.shape)}, the input has {list(tensor.shape)}", array
    native: np.ndarray = array.astype(numpy_dtype(tensor.dtype), copy=False)
    return "", native
