"""The unpartitioned model in the stock runtime: what the split run is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.errors import ModelError
from planner.graph.model import Graph
from planner.graph.protos import elem_type_of, numpy_dtype
from planner.graph.to_onnx import to_model
from planner.runtime.sessions import SessionMaker, cores


class WholeModel:
    """One session for all of a graph, on all cores.

    Args:
        graph: with all its constants.

    Raises:
        ModelError: a constant's value is not there, or the stock runtime refuses the model.
    """

    def __init__(self, graph: Graph) -> None:
        require_constants(graph)
        self._graph = graph
        self._made = tuple(name for name in graph.outputs if name in graph.producer)
        computed = replace(graph, initial={}, outputs=self._made, notes={}, state=())
        maker = SessionMaker(cores())
        try:
            self._session = maker.session(to_model(computed)) if self._made else None
        except Exception as error:
            raise ModelError(
                f"the stock runtime cannot load model {graph.name!r}: {type(error).__name__}: {error}"
            ) from error

    def step(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs of one step.

        Args:
            values: of every input, data and state.
        """
        outputs = passed_on(self._graph, values)
        if self._session is not None:
            binding = self._session.io_binding()
            arrays = {name: np.ascontiguousarray(values[name]) for name in self._graph.inputs}
            for name, array in arrays.items():
                kind = elem_type_of(self._graph.tensors[name].dtype)
                binding.bind_input(name, "cpu", 0, kind, list(self._graph.tensors[name].shape), array.ctypes.data)
            for name in self._made:
                tensor = self._graph.tensors[name]
                made = np.empty(tensor.shape, numpy_dtype(tensor.dtype))
                binding.bind_output(name, "cpu", 0, elem_type_of(tensor.dtype), list(tensor.shape), made.ctypes.data)
                outputs[name] = made
            self._session.run_with_iobinding(binding)
        return {name: outputs[name] for name in self._graph.outputs}


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
