"""The feed: data inputs of each step, if they change: a batch of a directory or of a file's rows, read ahead.

Once through all batches is an epoch; then it begins again. Their order is that in which they lie, or is decided by the
number of the epoch and a seed alone: so whoever goes on at a step reads what it would have read. A directory holds one
batch per entry, in the order of their names:

    0001.npz    arrays by input
    0001/       a folder with an array NAME.npy for each input, of which each worker reads its own part
    0001.npy    the array of the only data input, where the model has only one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.runtime.values.npz import read_npy
from planner.runtime.values.samples import drawn_numbers
from planner.runtime.values.state import check_inputs, data_inputs, read_inputs, refuse_missing


def batch_files(directory: Path) -> tuple[Path, ...]:
    """The batches of a directory, in their order.

    Raises:
        UsageError: there are none.
    """
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}") from None
    batches = tuple(
        entry
        for entry in entries
        if not entry.name.startswith(".") and (entry.is_dir() or entry.suffix in (".npz", ".npy"))
    )
    if not batches:
        raise UsageError(f"{directory} holds no batches", hint="write one npz per step, with one array per input")
    return batches


def read_batch(path: Path, graph: Graph, data: Sequence[str], supplied: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """One batch.

    Args:
        path: a file or folder, see the top of this file.
        graph: whose inputs it gives.
        data: the inputs that are data.
        supplied: those that have a value in every step already.

    Raises:
        UsageError: it cannot be read, does not fit, or lacks inputs; all findings at once.
    """
    if path.is_dir():
        arrays = {file.stem: read_npy(file) for file in sorted(path.glob("*.npy"))}
        values = check_inputs(graph, arrays, source=str(path))
    elif path.suffix == ".npy":
        unnamed = [name for name in data if graph.initial.get(name) is None]
        if len(unnamed) != 1:
            raise UsageError(
                f"{path} names no input", facts=tuple(unnamed), hint="write an npz with one array per input"
            )
        values = check_inputs(graph, {unnamed[0]: read_npy(path)}, source=str(path))
    else:
        values = read_inputs(graph, path)
    states = tuple(f"{name} is state" for name in values if name not in data)
    if states:
        raise UsageError(f"{path} holds more than data", facts=states, hint="give state with --weights")
    refuse_missing(graph, {*values, *supplied}, source=str(path))
    return values


class Batches(Protocol):
    """The source of batches."""

    @property
    def items(self) -> int:
        """The number of items that batches are made of: rows or files."""

    @property
    def per_batch(self) -> int:
        """The number of items of a batch; what is left over is in none."""

    def read(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """The batch of the items in some places, by input."""

    def origin(self, places: np.ndarray, name: str, place: Sequence[int]) -> str:
        """The place of an element of a batch's input: its place in an array of a file, or its file; "": no place."""

    def note(self, *, is_shuffled: bool) -> str:
        """The note for the user; "" if nothing."""


class BatchFolder:
    """The batches of a directory (``Batches``).

    Args:
        directory: see the top of this file.
        graph: whose data inputs it gives.
        supplied: data inputs that something else gives a value in every step.

    Raises:
        UsageError: there are no batches.
    """

    per_batch = 1

    def __init__(self, directory: Path, graph: Graph, supplied: Sequence[str] = ()) -> None:
        self._graph = graph
        self._supplied = tuple(supplied)
        self._data = data_inputs(graph)
        self._files = batch_files(directory)

    @property
    def items(self) -> int:
        """See ``Batches``."""
        return len(self._files)

    def read(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """See ``Batches``."""
        return read_batch(self._files[int(places[0])], self._graph, self._data, self._supplied)

    def origin(self, places: np.ndarray, name: str, place: Sequence[int]) -> str:
        """See ``Batches``."""
        return f"{list(place)} of {self._files[int(places[0])]}"

    def note(self, *, is_shuffled: bool) -> str:
        """See ``Batches``: there is nothing to say."""
        return ""


class Feed:
    """Batches, each read while the step before it runs; a context manager.

    Args:
        batches: where they come from.
        shuffle: the seed of their order, another one in each epoch; None: as they lie.
    """

    def __init__(self, batches: Batches, shuffle: int | None = None) -> None:
        self.batches = batches
        self.shuffle = shuffle
        self.per_epoch = batches.items // batches.per_batch
        """Steps in an epoch."""
        self._order: tuple[int, np.ndarray] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._reading: dict[int, Future[dict[str, np.ndarray]]] = {}
        """By step, what is read or being read: the batch that was asked for last, and the one after it."""

    def epoch(self, step: int) -> int:
        """The epoch of a step; both are counted from 1."""
        return (step - 1) // self.per_epoch + 1

    def batch(self, step: int, *, is_last: bool = False) -> Mapping[str, np.ndarray]:
        """The arrays of a step, counted from 1; the next one's are read meanwhile, unless this is the last.

        Asked again for the same step, it reads nothing again.

        Raises:
            UsageError: the batch cannot be read, does not fit, or lacks an input.
        """
        wanted = (step,) if is_last else (step, step + 1)
        self._reading = {number: self._reading.get(number) or self._read(number) for number in wanted}
        return self._reading[step].result()

    def origin(self, step: int, name: str, place: Sequence[int]) -> str:
        """The place of an element of a step's batch in the source of the batches; "" where that has no name.

        Args:
            step: counted from 1.
            name: of the input.
            place: in the batch.
        """
        return self.batches.origin(self._places(step), name, place)

    def _read(self, step: int) -> Future[dict[str, np.ndarray]]:
        return self._reader.submit(self.batches.read, self._places(step))

    def _places(self, step: int) -> np.ndarray:
        """The places of the items of a step's batch."""
        epoch, size = self.epoch(step), self.batches.per_batch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, order_of(self.batches.items, self.shuffle, epoch)
        first = (step - 1) % self.per_epoch * size
        return self._order[1][first : first + size]

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.shutdown(cancel_futures=True)


def order_of(count: int, shuffle: int | None, epoch: int) -> np.ndarray:
    """The order of so many items in an epoch: the same on every machine, and with every release of NumPy.

    Each item draws a number from the seed and the epoch (see ``samples.py``), and they are sorted by it.
    """
    if shuffle is None:
        return np.arange(count)
    return np.argsort(drawn_numbers(f"{shuffle}:epoch {epoch}", np.arange(count, dtype=np.uint64)), kind="stable")
