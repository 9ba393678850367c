"""Inputs that a call from Python gives as arrays; those of several steps become a folder, which a run reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.runtime.values.results import write_arrays

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
"""By name of an input."""
AnyInputs: TypeAlias = str | os.PathLike[str] | Arrays | Iterable[Arrays]
"""A file or a folder, as the command line takes it; arrays; or the arrays of one step after the other."""


@contextmanager
def inputs_of(inputs: AnyInputs | None, wanted: int | None) -> Iterator[tuple[Path | Arrays | None, int | None]]:
    """The source of a run's inputs, for as long as it takes, and the number of its iterations.

    Args:
        inputs: as they were given; None: none were.
        wanted: how many iterations. Of arrays of one after the other no more are taken; None: all.

    Raises:
        UsageError: there is no step, or one is no mapping from names to arrays.
    """
    if inputs is None or isinstance(inputs, Mapping):
        yield None if inputs is None else _arrays(inputs, "inputs"), wanted
        return
    if isinstance(inputs, str | os.PathLike):
        yield Path(inputs), wanted
        return
    with tempfile.TemporaryDirectory(prefix="tofu-") as folder:
        where = Path(folder)
        count = 0
        for count, batch in enumerate(islice(inputs, wanted), start=1):
            write_arrays(where / f"{count:09}.npz", _arrays(batch, f"inputs: step {count}"))
        if not count:
            raise UsageError("inputs: there is no step", hint="give the arrays of one step at least")
        yield where, count if wanted is None else wanted


def _arrays(arrays: object, where: str) -> dict[str, NDArray[Any]]:
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise UsageError(f"{where}: is a {type(arrays).__name__}", hint="give a mapping from names of inputs to arrays")
    return {name: np.asarray(array) for name, array in arrays.items()}
