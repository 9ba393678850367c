"""A data set in one file: arrays with more rows than a batch has, of which each step takes a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.runtime.values.npz import read_npz
from planner.runtime.values.state import check_inputs, read_inputs


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows to be gone through in batches (``feed.Batches``)."""

    source: str
    items: int
    """How many rows there are."""
    per_batch: int
    arrays: Mapping[str, np.ndarray]
    """By input, with the rows along the first dim."""

    def read(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """See ``feed.Batches``."""
        return {name: array[places] for name, array in self.arrays.items()}

    def origin(self, places: np.ndarray, name: str, place: Sequence[int]) -> str:
        """See ``feed.Batches``: what is the same in every batch has no row."""
        return f"{[int(places[place[0]]), *place[1:]]} of {self.source}" if name in self.arrays else ""

    def note(self, *, is_shuffled: bool) -> str:
        """See ``feed.Batches``."""
        count, extra = divmod(self.items, self.per_batch)
        batches = f"{count:,} batch{'' if count == 1 else 'es'} of {self.per_batch:,}"
        if not extra:
            return f"{self.source} has {self.items:,} rows: {batches} an epoch"
        note = f"{extra:,} row{' is' if extra == 1 else 's are'} left out of each" + (", others in each" * is_shuffled)
        return f"{self.source} has {self.items:,} rows: {batches} an epoch; {note}"


@dataclass(frozen=True, slots=True, eq=False)
class OneBatch:
    """A batch that is all there is (``feed.Batches``)."""

    arrays: Mapping[str, np.ndarray]
    items: int = 1
    per_batch: int = 1

    def read(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """See ``feed.Batches``."""
        return dict(self.arrays)

    def origin(self, places: np.ndarray, name: str, place: Sequence[int]) -> str:
        """See ``feed.Batches``: the place in the batch is all there is to say."""
        return ""

    def note(self, *, is_shuffled: bool) -> str:
        """See ``feed.Batches``: there is nothing to say."""
        return ""


def read_arrays(
    graph: Graph, inputs: Path | Mapping[str, np.ndarray], *, source: str
) -> tuple[dict[str, np.ndarray], Rows | None]:
    """Arrays that are the same in every step, by input; and those that are gone through in batches, if there are any.

    Args:
        graph: whose inputs they are.
        inputs: an npz file, or arrays by name (see ``state.check_inputs``).
        source: how to name them.

    Raises:
        UsageError: they cannot be read or do not fit, or not all of them have as many rows; all findings at once.
    """
    declared: dict[str, np.ndarray] = {}
    if isinstance(inputs, Path):

        def none(arrays: Mapping[str, np.ndarray]) -> Collection[str]:
            declared.update(arrays)
            return ()

        read_npz(inputs, none)
    else:
        declared.update({name: np.asarray(array) for name, array in inputs.items()})
    long = _long(graph, declared, source)
    tensors = {
        name: replace(graph.tensors[name], shape=(rows, *graph.tensors[name].shape[1:])) for name, rows in long.items()
    }
    longer = replace(graph, tensors={**graph.tensors, **tensors}) if long else graph
    values = read_inputs(longer, inputs) if isinstance(inputs, Path) else check_inputs(longer, inputs, source=source)
    if not long:
        return values, None
    rows, batch = next((rows, graph.tensors[name].shape[0]) for name, rows in long.items())
    fixed = {name: array for name, array in values.items() if name not in long}
    return fixed, Rows(source, rows, batch, {name: values[name] for name in long})


def _long(graph: Graph, declared: Mapping[str, np.ndarray], source: str) -> dict[str, int]:
    """The rows of every data input that has more than a batch.

    Raises:
        UsageError: not all inputs of that batch have as many.
    """
    states = {pair.current for pair in graph.state}
    shapes = {
        name: array.shape
        for key, array in declared.items()
        if (name := key if key in graph.inputs else key.removeprefix("in_")) in graph.inputs and name not in states
    }
    counts = {
        name: shape[0]
        for name, shape in shapes.items()
        if shape and len(shape) == len(graph.tensors[name].shape) and shape[1:] == graph.tensors[name].shape[1:]
    }
    # A model that takes no rows takes none of these either.
    long = {name: rows for name, rows in counts.items() if rows > graph.tensors[name].shape[0] > 0}
    if not long:
        return {}
    batches = {graph.tensors[name].shape[0] for name in long}
    beside = {name: rows for name, rows in counts.items() if name in long or graph.tensors[name].shape[0] in batches}
    if len(batches) > 1 or len(set(beside.values())) > 1:
        raise UsageError(
            f"{source} has more rows than a batch, and not as many of every input",
            facts=tuple(
                f"{name}: {rows:,} rows, {graph.tensors[name].shape[0]:,} in a batch" for name, rows in beside.items()
            ),
            hint="give each input of the batch as many rows",
        )
    return long
