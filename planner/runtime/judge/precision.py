"""Precision of a graph's outputs, before any is compared: how precise they can be, and what is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ml_dtypes
import numpy as np

from planner.graph.core.dependence import computed_from
from planner.graph.core.model import DType, Graph

_BFLOAT16_EPS: Final = 2.0**-7


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def fed_strange(graph: Graph, values: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The outputs that are computed from an input with an element that is not finite, or from a constant with NaN.

    Constants may be infinite: masks of attention are.
    """
    strange = {name for name in graph.inputs if is_float(values[name]) and not np.isfinite(_wide(values[name])).all()}
    for name, value in graph.constants.items():
        if value is not None and is_float(value) and np.isnan(_wide(value)).any():
            strange.add(name)
    return computed_from(graph, strange).intersection(graph.outputs)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def coarsest_eps(graph: Graph) -> dict[str, float]:
    """The largest epsilon of any floating-point tensor that each floating-point output is computed from.

    A model that casts to float16 on the way has a float16's digits in its float32 outputs. Constants do not count: what
    is computed from them does.
    """
    largest: dict[str, float] = {}
    for name in graph.inputs:
        largest[name] = own_eps(graph, name)
    for op in graph.ops:
        before = max((largest.get(name, 0.0) for name in op.inputs), default=0.0)
        for name in op.outputs:
            if name:
                largest[name] = max(before, own_eps(graph, name))
    return {
        name: largest.get(name) or own_eps(graph, name) for name in graph.outputs if graph.tensors[name].dtype.is_float
    }


def own_eps(graph: Graph, name: str) -> float:
    """The epsilon of a tensor's dtype; 0 where it is no floating-point one."""
    dtype = graph.tensors[name].dtype
    return eps_of(dtype.value) if dtype.is_float else 0.0


def eps_of(dtype: str) -> float:
    """The epsilon of a floating-point dtype; of 8-bit dtypes that of bfloat16, for 64 of their own exceed any error."""
    return min(_BFLOAT16_EPS, float(ml_dtypes.finfo(DType(dtype).array_dtype).eps))  # type: ignore[no-untyped-call]
