"""The values that a run starts from: given, from the model, or made up."""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import UsageError
from planner.graph.model import DType, Graph, Tensor
from planner.graph.protos import numpy_dtype
from planner.runtime.samples import sample

_IN: Final = "in_"
_OUT: Final = "out_"


def starting_values(
    graph: Graph, inputs: str | Path | Mapping[str, np.ndarray] | None = None, *, seed: int = 0
) -> dict[str, np.ndarray]:
    """A value for every input of the graph, data and state, before the first step.

    Args:
        graph: the whole model.
        inputs: an npz file, or arrays by name; see ``check_inputs``. What it gives comes first, then what the model
            gives (``Graph.initial``), then what ``samples.py`` makes up.
        seed: of what is made up.

    Raises:
        UsageError: the file cannot be read, or arrays do not fit; all findings at once.
    """
    if isinstance(inputs, str | Path):
        given = check_inputs(graph, read_npz(Path(inputs)), source=str(inputs))
    else:
        given = check_inputs(graph, inputs or {}, source="inputs")
    values = {name: value for name, value in graph.initial.items() if value is not None} | given
    values |= sample(graph, [name for name in graph.inputs if name not in values], seed)
    return {name: values[name] for name in graph.inputs}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Raises:
        UsageError: it is none, or it holds pickled objects, which are never loaded.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UsageError(f"{path} holds one array", hint="write an npz with one array per input")
        with loaded as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UsageError(f"{path} cannot be read as npz: {error}", hint="write it with numpy.savez") from None


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
    if tensor.dtype is DType.BFLOAT16 and array.dtype == np.dtype("V2"):
        array = array.view(numpy_dtype(DType.BFLOAT16))  # npz has no name for bfloat16
    if array.dtype.name != tensor.dtype.value:
        return f"is of {array.dtype.name}, the input is of {tensor.dtype.value}", array
    if array.shape != tensor.shape:
        return f"has the shape {list(array.shape)}, the input has {list(tensor.shape)}", array
    native: np.ndarray = array.astype(numpy_dtype(tensor.dtype), copy=False)
    return "", native
