"""The unpartitioned model in the stock runtime: what the split run is held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.runtime.engine.core.sessions import SessionMaker, bind, carried, cores

_MOST_CONSTANT_BYTES: Final = 2**30
"""A file holds no more than 2 GiB, ops included."""
_LARGE_CONSTANT_BYTES: Final = 2**16


class WholeModel:
    """One session for all of a graph, on all cores.

    Args:
        graph: with all its constants.
        libraries: of custom operators.

    Raises:
        ModelError: a constant's value is not there, or the stock runtime refuses the model.
    """

    def __init__(self, graph: Graph, libraries: Sequence[Path] = ()) -> None:
        require_constants(graph)
        self._graph = graph
        self._names = tuple(name for name in graph.outputs if name in graph.producer)
        self._beside = _beside(graph)
        constants = {name: None if name in self._beside else value for name, value in graph.constants.items()}
        computed = replace(graph, initial={}, outputs=self._names, notes={}, state=(), constants=constants)
        maker = SessionMaker(cores(), libraries=libraries)
        with self._refusing("load"):
            self._session = maker.session(carried(to_model(computed)), is_judge=True) if self._names else None

    def step(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs of one step.

        Args:
            values: of every input, data and state.

        Raises:
            ModelError: the stock runtime cannot compute it.
        """
        outputs = passed_on(self._graph, values)
        if self._session is not None:
            tensors = self._graph.tensors
            outputs |= {name: np.empty(tensors[name].shape, tensors[name].dtype.array_dtype) for name in self._names}
            read = {name: values[name] for name in self._graph.inputs} | self._beside
            operands = {name: (np.asarray(value, order="C"), tensors[name].dtype) for name, value in read.items()}
            results = {name: (outputs[name], tensors[name].dtype) for name in self._names}
            binding = bind(self._session, operands, results)
            with self._refusing("compute"):
                self._session.run_with_iobinding(binding)
        return {name: outputs[name] for name in self._graph.outputs}

    @contextmanager
    def _refusing(self, doing: str) -> Iterator[None]:
        """What the stock runtime raises, of many types without a common one, is said of the model."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            facts = tuple(f"{type(error).__name__}: {error}".splitlines())
            raise ModelError(f"the stock runtime cannot {doing} model {self._graph.name!r}", facts=facts) from error


def _beside(graph: Graph) -> dict[str, np.ndarray]:
    """The constants that are given to the session in each step, where they are too many for an ONNX file."""
    held = {name: value for name, value in graph.constants.items() if value is not None}
    if sum(value.nbytes for value in held.values()) <= _MOST_CONSTANT_BYTES:
        return {}
    return {name: value for name, value in held.items() if value.nbytes >= _LARGE_CONSTANT_BYTES}


def require_constants(graph: Graph) -> None:
    """Refuses a graph that cannot be computed for want of values.

    Raises:
        ModelError: constants are external data, which is not loaded.
    """
    absent = tuple(name for name, value in graph.constants.items() if value is None)
    if absent:
        raise ModelError(
            "the model cannot be run: constants are external data, which is not loaded",
            facts=absent,
            hint="store the model with its data inside",
        )


def passed_on(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs that no op makes: inputs and constants that are handed through."""
    outputs: dict[str, np.ndarray] = {}
    for name in graph.outputs:
        if name in graph.inputs:
            outputs[name] = values[name]
        elif name in graph.constants:
            constant = graph.constants[name]
            assert constant is not None, f"constant {name!r} was not loaded"
            outputs[name] = constant
    return outputs
