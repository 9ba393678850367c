"""What the data inputs are in each step: the same arrays, or a batch of a directory, read ahead.

A directory holds one batch per entry, taken in the order of their names, and from the first again after the last:

    0001.npz    arrays by input
    0001/       a folder with an array NAME.npy for each input, of which each worker reads its own part
    0001.npy    the array of the only data input, where the model has only one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np

from planner.errors import UsageError
from planner.graph.model import Graph
from planner.runtime.values.npz import read_npy
from planner.runtime.values.state import check_inputs, read_inputs, refuse_missing


def batch_files(directory: Path) -> tuple[Path, ...]:
    """The batches of a directory, in their order.

    Raises:
        UsageError: there are none.
    """
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}") from None
    found = tuple(
        entry
        for entry in entries
        if not entry.name.startswith(".") and (entry.is_dir() or entry.suffix in (".npz", ".npy"))
    )
    if not found:
        raise UsageError(f"{directory} holds no batches", hint="write one npz per step, with one array per input")
    return found


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
    others = tuple(f"{name} is state" for name in values if name not in data)
    if others:
        raise UsageError(f"{path} holds more than data", facts=others, hint="give state with --weights")
    refuse_missing(graph, {*values, *supplied}, source=str(path))
    return values


class Feed:
    """The batches of a directory, each read while the step before it runs; a context manager.

    Args:
        directory: see the top of this file.
        graph: whose data inputs it gives.
        supplied: data inputs that something else gives a value in every step.

    Raises:
        UsageError: there are no batches.
    """

    def __init__(self, directory: Path, graph: Graph, supplied: Sequence[str] = ()) -> None:
        states = {pair.current for pair in graph.state}
        self._graph = graph
        self._supplied = tuple(supplied)
        self._data = tuple(name for name in graph.inputs if name not in states)
        self._files = batch_files(directory)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: tuple[int, Future[dict[str, np.ndarray]]] | None = None

    def batch(self, step: int, *, is_last: bool = False) -> Mapping[str, np.ndarray]:
        """The arrays of a step, counted from 1; the next one's are read meanwhile, unless this is the last.

        Raises:
            UsageError: the batch cannot be read, does not fit, or lacks an input.
        """
        ahead, self._ahead = self._ahead, None
        found = ahead[1] if ahead is not None and ahead[0] == step else self._read(step)
        values = found.result()
        if not is_last:
            self._ahead = (step + 1, self._read(step + 1))
        return values

    def _read(self, step: int) -> Future[dict[str, np.ndarray]]:
        path = self._files[(step - 1) % len(self._files)]
        return self._reader.submit(read_batch, path, self._graph, self._data, self._supplied)

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.shutdown(cancel_futures=True)
