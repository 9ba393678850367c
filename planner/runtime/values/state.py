"""The values that a run starts from: given, from the model, or made up; tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import UsageError
from planner.graph.core.model import Graph, Role, Tensor
from planner.graph.files.data_folder import Followed
from planner.graph.files.external import external_values
from planner.graph.reading.values import values_of
from planner.graph.step.state_warnings import left_over
from planner.printable import some
from planner.runtime.values.external import ExternalData
from planner.runtime.values.fitting import conversion, misfit, native, row_fault, unknown
from planner.runtime.values.indices import index_faults
from planner.runtime.values.npz import read_npz
from planner.runtime.values.samples import Sampler, label_faults

_IN: Final = "in_"
_OUT: Final = "out_"
_VOCABULARY: Final = "an index counts the table's rows from 0: were words numbered by another vocabulary?"
_NAMED: Final = 8
"""How many inputs a hint names."""


class TileSource(Protocol):
    """A source of values of some tensors."""

    def holds(self, name: str) -> bool:
        """True if it has this tensor."""

    def tile(self, name: str, region: Region) -> np.ndarray:
        """A region of a tensor that it has, of the region's shape."""


@dataclass(frozen=True, slots=True)
class DrawnWeights:
    """The number of weights that a run has made up."""

    tensors: int
    bytes: int
    seed: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The values that a run has made up."""

    told: ClassVar = "weights=counted_weights inputs=names_of_inputs"

    seed: int
    weights: tuple[Tensor, ...]
    """States and constants."""
    inputs: tuple[Tensor, ...]
    """Data."""

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.weights)

    @property
    def counted_weights(self) -> DrawnWeights:
        """States and constants."""
        return DrawnWeights(len(self.weights), self.weight_bytes, self.seed)

    @property
    def names_of_inputs(self) -> tuple[str, ...]:
        """Data."""
        return tuple(tensor.name for tensor in self.inputs)


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
        data: where the files of the model may be.
        random_weights: make up what lies in such files, and open none.

    Raises:
        UsageError: something cannot be made up (see ``Sampler.check``).
        ModelError: what lies in files cannot be read (see ``ExternalData``).
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        sources: tuple[TileSource, ...] = (),
        seed: int = 0,
        data: Followed | None = None,
        random_weights: bool = False,
    ) -> None:
        self._graph = graph
        self._arrays = {name: value for name, value in graph.initial.items() if value is not None}
        self._inputs = dict(inputs or {})
        self._sources = sources
        self._sampler = Sampler(graph, seed)
        self.absent = tuple(name for name, value in graph.constants.items() if value is None)
        """Constants that the model does not hold."""
        lacking = [name for name in (*graph.inputs, *self.absent) if not self._has(name)]
        external = ExternalData(graph, () if random_weights else lacking, data or Followed())
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
        if name not in self._inputs:
            for source in self._sources:
                if source.holds(name):
                    return source.tile(name, region)
        array = self._inputs.get(name, self._arrays.get(name))
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
        return name in self._inputs or name in self._arrays or any(source.holds(name) for source in self._sources)


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
        return read_inputs(graph, Path(inputs))
    return check_inputs(graph, inputs or {}, source="inputs")


def refuse_missing(graph: Graph, names: Collection[str], *, source: str) -> None:
    """Refuses data that lacks an input.

    Args:
        graph: whose inputs they are.
        names: the inputs that have a value: of this data, or for the whole run.
        source: how to name the data.

    Raises:
        UsageError: there are inputs that are no state, have no value in the model and are not given: all of them.
    """
    sampler, external = Sampler(graph, 0), external_values(graph)
    missing = [
        graph.tensors[name]
        for name in data_inputs(graph)
        if name not in names and not sampler.is_stated(name) and name not in external
        if graph.initial.get(name) is None
    ]
    if missing:
        following = dict(left_over(graph))
        facts = [f"{tensor.name}: {tensor.dtype.value} {list(tensor.shape)}" for tensor in missing]
        for number, tensor in enumerate(missing):
            if tensor.name in following:
                line = f"'{tensor.name}: {following[tensor.name]}'"
                facts[number] += f"; if it is a state, plan again with {line} and the other pairs in --state"
        raise UsageError(
            f"{source} lacks inputs of the model",
            facts=tuple(facts),
            hint="add these arrays; without --inputs, all data is drawn",
        )


def data_inputs(graph: Graph) -> list[str]:
    """The inputs that are no state."""
    states = {pair.current for pair in graph.state}
    return [name for name in graph.inputs if name not in states]


def not_finite(
    graph: Graph, value_of: Callable[[str], np.ndarray], origin_of: Callable[[str, Sequence[int]], str]
) -> tuple[str, ...]:
    """A line for each data input of floats that holds numbers which are not finite: how many, and the first place.

    Args:
        graph: whose inputs they are.
        value_of: gives an input's value.
        origin_of: of an input and a place in it, the place in the file that it was taken from; "": it is the same.
    """
    lines = []
    for name in data_inputs(graph):
        if not graph.tensors[name].dtype.is_float:
            continue
        places = np.argwhere(~np.isfinite(value_of(name)))
        if len(places):
            count, of = len(places), graph.tensors[name].elements
            place = places[0].tolist()
            where = origin_of(name, place) or str(place)
            lines.append(f"input {name!r}: {count:,} of {of:,} numbers are not finite, first at {where}")
    return tuple(lines)


def read_inputs(graph: Graph, path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, by input; nothing is read of what does not fit.

    Raises:
        UsageError: see ``given_inputs``.
    """

    def wanted(declared: Mapping[str, np.ndarray]) -> Collection[str]:
        return _inputs_meant(graph, declared, str(path)).values()

    return check_inputs(graph, read_npz(path, wanted), source=str(path))


def check_inputs(graph: Graph, arrays: Mapping[str, np.ndarray], *, source: str) -> dict[str, np.ndarray]:
    """Arrays by input name, in this machine's byte order.

    A key is an input's name, or its name after ``in_``; keys that begin with ``out_`` and are no input's name are
    left alone, so that a file of expected results may be given as it is.

    Raises:
        UsageError: keys that are no input, keys that are one input twice, wrong shapes or dtypes, labels that are no
            class, indices beyond the tables that they index.
    """
    named = _inputs_meant(graph, arrays, source)
    values = {name: native(np.asarray(arrays[key]), graph.tensors[name]) for name, key in named.items()}
    for faults_by_input, hint in (
        (label_faults(graph, values), "a label that counts for nothing: tofu grad --ignore-index LABEL"),
        (index_faults(graph, values), _VOCABULARY),
        (label_faults(graph, values, is_next=True), _VOCABULARY),
    ):
        faults = tuple(f"{named[name]}: {fault}" for name, fault in faults_by_input.items())
        if faults:
            raise UsageError(f"{source} does not fit the model", facts=faults, hint=hint)
    return values


def _inputs_meant(graph: Graph, arrays: Mapping[str, np.ndarray], source: str) -> dict[str, str]:
    """By input, the key of its array; see ``check_inputs``. The arrays may have no memory."""
    keys: dict[str, str] = {}
    findings: list[str] = []
    about_names = about_types = about_rows = ""
    fixed = dict(values_of(graph.notes))
    for key, array in arrays.items():
        name = key if key in graph.inputs else key.removeprefix(_IN)
        if name not in graph.inputs:
            if name in fixed:
                findings.append(f"{key}: fixed at {fixed[name]} when the model was planned (--value); leave it out")
            elif not key.startswith(_OUT):
                about_names = f"the data inputs are: {some(data_inputs(graph), _NAMED)}"
                findings.append(unknown(key, name, graph.inputs, len(findings)))
            continue
        if name in keys:
            findings.append(f"{key}: input {name} is given twice")
        fault, rows, remedy = misfit(np.asarray(array), graph.tensors[name]), "", ""
        if graph.roles[name] is Role.DATA:
            rows, remedy = row_fault(np.asarray(array).shape, graph.tensors[name].shape)
        fault = rows if rows and fault.startswith("has ") else fault
        findings.extend([f"{key}: {fault}"] if fault else [])
        about_types = about_types or conversion(key, np.asarray(array), graph.tensors[name])
        about_rows = about_rows or remedy
        keys[name] = key
    if findings:
        hint = "; ".join(filter(None, (about_names, about_rows, about_types)))
        raise UsageError(f"{source} does not fit the model", facts=tuple(findings), hint=hint)
    return keys
