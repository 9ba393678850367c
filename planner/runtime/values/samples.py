"""Inputs made up from a seed, for a model that nobody has given any.

An element's number depends on the seed, the tensor's name and the element's place in the whole tensor, and on nothing
else: a worker draws its own tile and no more, and any number of workers draws the same whole. The rule, per input:

    - what the model says in its metadata ``tofu.inputs`` (JSON): ``{"labels": {"integers_below": 10}}``,
      ``{"learning_rate": {"value": 0.05}}``, ``{"x": {"normal": true}}`` or ``{"mask": {"booleans": true}}``;
      ``"labels": true`` beside ``integers_below`` says that other values than those, and than the one that
      ``"ignored"`` names, are mistakes
    - data in floating point: standard normal
    - data in integers: below the size of the dim that it indexes, found through ops that pass values on; below 2 if it
      is only ever cast to a boolean
    - booleans: fair coins
    - state, and constants whose values are not there, in floating point: normal with standard deviation
      1 / sqrt(fan-in), where the fan-in is the number of elements of one output unit (all dims but the first; all
      elements of a vector)
    - the same in integers: zero

The numbers: element i of a tensor has two uniform numbers u and v, the outputs 2i and 2i+1 of SplitMix64 (Steele, Lea
and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17) started from a hash of seed and
name, in 53 bits. A normal number is sqrt(-2 ln(1-u)) cos(2 pi v) (Box and Muller, 1958), an integer below n is
floor(n u).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Region, index_space
from planner.errors import ModelError, UsageError
from planner.graph.core.indexed import lookup_of
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.core.traits import carried
from planner.graph.files.protos import elem_type_of
from planner.strict_json import JsonError, Value, parse_json
from planner.walk import walk

INPUTS_NOTE: Final = "tofu.inputs"

_CHUNK_ELEMENTS: Final = 1 << 18
"""Elements that are drawn at a time; what is held beside the result is a few times that."""
_BOOL: Final = elem_type_of(DType.BOOL)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule by which the elements of a tensor are made up."""

    value: float | None = None
    """The same everywhere."""
    below: int | None = None
    """Integers from 0 up to, and without, this."""
    scale: float = 1.0
    """Else the standard deviation of normal numbers."""
    is_label: bool = False
    """Other integers than those, and than the ignored one, are mistakes."""
    ignored: int | None = None
    is_next: bool = False
    """Labels of the positions before: the values are tokens."""


class Sampler:
    """Makes up inputs of a graph, by the rule of this file.

    Args:
        graph: whose inputs they are.
        seed: of all that is drawn.

    Raises:
        ModelError: the metadata cannot be read.
    """

    def __init__(self, graph: Graph, seed: int) -> None:
        self._graph = graph
        self._seed = seed
        self._notes = _notes(graph)
        self._rules: dict[str, _Rule | None] = {}

    def check(self, names: Sequence[str]) -> None:
        """Refuses inputs that cannot be made up.

        Raises:
            UsageError: there are integers of which nothing says how large they may be; all of them are named.
        """
        tensors = [self._graph.tensors[name] for name in names if self._rule(name) is None]
        if tensors:
            raise UsageError(
                "integers cannot be made up for inputs that nothing bounds",
                facts=tuple(f"{tensor.name}: {tensor.dtype.value} {list(tensor.shape)}" for tensor in tensors),
                hint="give them with --inputs batch.npz",
            )

    def is_stated(self, name: str) -> bool:
        """Whether the model's metadata states the value of an input."""
        note = self._notes.get(name)
        return note is not None and note.value is not None

    def tile(self, name: str, region: Region) -> np.ndarray:
        """A region of a tensor, of the region's shape.

        Raises:
            UsageError: see ``check``.
        """
        rule = self._rule(name)
        if rule is None:
            self.check([name])
        assert rule is not None
        tensor = self._graph.tensors[name]
        dtype = tensor.dtype.array_dtype
        if rule.value is not None:
            return np.full(region.shape, rule.value).astype(dtype)
        tile = np.empty(region.elements, dtype)
        start = _start(f"{self._seed}:{name}")
        for first in range(0, tile.size, _CHUNK_ELEMENTS):
            places = _places(region, index_space(tensor.shape), first, min(first + _CHUNK_ELEMENTS, tile.size))
            u = _uniform(start, 2 * places)
            if rule.below is not None:
                numbers: np.ndarray = np.floor(u * rule.below)
            else:
                v = _uniform(start, 2 * places + np.uint64(1))
                numbers = rule.scale * np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)
            tile[first : first + len(places)] = numbers.astype(dtype)
        return tile.reshape(region.shape)

    def _rule(self, name: str) -> _Rule | None:
        if name not in self._rules:
            self._rules[name] = _rule_of(self._graph, self._graph.tensors[name], self._notes.get(name))
        return self._rules[name]


def label_faults(graph: Graph, arrays: Mapping[str, np.ndarray], *, is_next: bool = False) -> dict[str, str]:
    """The fault in the values of each input that the model's metadata calls labels.

    A label that is no class picks no element of the loss: such a sample would train nothing, without a word.

    Args:
        graph: with the metadata.
        arrays: by input.
        is_next: of the labels that are tokens, one position on; else of all others.

    Raises:
        ModelError: the metadata cannot be read.
    """
    fault, classes = ("token ids are beyond the vocabulary", "ids") if is_next else ("labels are no class", "classes")
    faults = {}
    for name, rule in _notes(graph).items():
        if not rule.is_label or rule.is_next is not is_next or rule.below is None or name not in arrays:
            continue
        array = arrays[name]
        wrong = (array < 0) | (array >= rule.below)
        if rule.ignored is not None:
            wrong &= array != rule.ignored
        if wrong.any():
            beside = "" if rule.ignored is None else f" and the ignored {rule.ignored}"
            faults[name] = (
                f"{np.count_nonzero(wrong)} of {array.size} {fault}, the first of them "
                f"{array[wrong].flat[0]}: {classes} are 0 to {rule.below - 1}{beside}"
            )
    return faults


@dataclass(frozen=True, slots=True)
class Labels:
    """An input of which the model's metadata says that its values are labels."""

    name: str
    classes: int
    ignored: int | None
    """The label that counts for nothing."""
    is_next: bool
    """Each position's label is the next position's value, and the last has none."""


def stated_labels(graph: Graph) -> tuple[Labels, ...]:
    """The inputs that are labels, with what is said of them.

    Raises:
        ModelError: the metadata cannot be read.
    """
    return tuple(
        Labels(name, rule.below, rule.ignored, rule.is_next)
        for name, rule in _notes(graph).items()
        if rule.is_label and rule.below is not None and name in graph.inputs
    )


def _places(region: Region, space: Sequence[int], first: int, last: int) -> NDArray[np.uint64]:
    """The places, in the whole tensor, of a region's elements from one up to another, row by row."""
    quotient = np.arange(first, last, dtype=np.uint64)
    places = np.zeros(last - first, np.uint64)
    stride = 1
    for lo, extent, size in zip(region.lo[::-1], region.shape[::-1], space[::-1], strict=True):
        places += (quotient % np.uint64(extent) + np.uint64(lo)) * np.uint64(stride)
        quotient //= np.uint64(extent)
        stride *= size
    return places


def drawn_numbers(name: str, numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The numbers in [0, 1) that belong to a name, at some places."""
    return _uniform(_start(name), numbers)


def _start(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def _uniform(start: np.uint64, numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Outputs of SplitMix64 by their numbers, in [0, 1)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        z = start + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53, np.float64)


def _notes(graph: Graph) -> Mapping[str, _Rule]:
    """What the model's metadata says of its inputs."""
    try:
        notes = parse_json(graph.notes.get(INPUTS_NOTE, "{}")).members()
        rules = {name: _stated(note) for name, note in notes.items()}
    except JsonError as error:
        raise ModelError(f"metadata {INPUTS_NOTE!r} cannot be read: {error}") from None
    return {name: rule for name, rule in rules.items() if rule is not None}


def _stated(note: Value) -> _Rule | None:
    value, below, booleans = note.get("value"), note.get("integers_below"), note.get("booleans")
    if value is not None:
        if isinstance(value.value, bool) or not isinstance(value.value, int | float):
            raise value.fault("is no number")
        return _Rule(value=value.value)
    if below is not None:
        labels, ignored, following = note.get("labels"), note.get("ignored"), note.get("next")
        return _Rule(
            below=below.count(1),
            is_label=labels is not None and labels.flag(),
            ignored=None if ignored is None else ignored.integer(),
            is_next=following is not None and following.flag(),
        )
    return _Rule(below=2) if booleans is not None and booleans.flag() else None


def _rule_of(graph: Graph, tensor: Tensor, stated: _Rule | None) -> _Rule | None:
    if stated is not None:
        return stated
    # Not by its role: a state that is its own next state is an output, too.
    is_state = any(pair.current == tensor.name for pair in graph.state) or tensor.name in graph.constants
    if tensor.dtype.is_float:
        fan_in = tensor.elements // tensor.shape[0] if len(tensor.shape) > 1 else tensor.elements
        return _Rule(scale=1 / math.sqrt(max(1, fan_in)) if is_state else 1.0)
    if is_state:
        return _Rule(value=0)
    if tensor.dtype is DType.BOOL:
        return _Rule(below=2)
    below = index_bound(graph, tensor.name)
    return None if below is None else _Rule(below=below)


def index_bound(graph: Graph, name: str) -> int | None:
    """The size of the smallest dim that a tensor's values index somewhere.

    If they index nothing: 2 where they are cast to booleans, else None.
    """

    def reads(current: str) -> Iterator[tuple[Op, int]]:
        for op in graph.consumers[current]:
            yield from ((op, slot) for slot in op.slots(current))

    def passed_on(current: str) -> Iterator[str]:
        for op, position in reads(current):
            if position in carried(op.op_type, len(op.inputs)):
                yield from filter(None, op.outputs)

    ports = [port for current in walk([name], passed_on) for port in reads(current)]
    bounds = [size for op, position in ports if (lookup := lookup_of(graph, op, position)) for size in lookup.sizes]
    is_truth = any(op.op_type == "Cast" and op.attribute("to") == _BOOL for op, _ in ports)
    return min(bounds, default=2 if is_truth else None)
