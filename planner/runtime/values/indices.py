"""Indices among the inputs: whether what is given for them lies within the tables that they index.

An index that no row has is refused by the worker that looks it up, in the middle of a step, and by no worker on a GPU.
So it is found before, wherever an input is an index by itself or through what only changes its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from planner.graph.core.indexed import lookup_of
from planner.graph.core.model import Graph, Op
from planner.graph.core.traits import COPYING, REARRANGING, REPEATING
from planner.walk import walk

_OF_OTHER_SHAPE: Final = COPYING | REARRANGING | REPEATING
"""Ops whose results are all the elements of input 0, whatever the others say."""


def index_faults(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The fault in the values of each input that holds indices.

    Args:
        graph: whose inputs they are.
        arrays: by input, of the tensors' dtypes.
    """
    faults = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "iu" or not array.size:
            continue
        rows, op = min(_tables(graph, name), key=lambda table: table[0], default=(None, None))
        if rows is None or op is None:
            continue
        wrong = (array < -rows) | (array >= rows)
        if wrong.any():
            faults[name] = (
                f"{np.count_nonzero(wrong)} of {array.size} indices are beyond the table, the first of them "
                f"{array[wrong].flat[0]}: op {op.name!r} ({op.op_type}) takes 0 to {rows - 1}"
            )
    return faults


def _tables(graph: Graph, name: str) -> Iterator[tuple[int, Op]]:
    """The sizes that an input's values index, and the ops that do so."""

    def laid_out(current: str) -> Iterator[str]:
        for op in graph.consumers[current]:
            if op.op_type == "Concat" or (op.op_type in _OF_OTHER_SHAPE and op.inputs[0] == current):
                # A cast to another kind of numbers, or to narrower ones, may change them.
                yield from (output for output in op.outputs if output and _holds(graph, output, current))

    for current in walk([name], laid_out):
        for op in graph.consumers[current]:
            for lookup in (lookup_of(graph, op, slot) for slot in op.slots(current)):
                # Places in several dims are no rows of one.
                if lookup is not None and not lookup.is_by_class and len(lookup.sizes) == 1:
                    yield lookup.sizes[0], op


def _holds(graph: Graph, output: str, source: str) -> bool:
    kinds = (graph.tensors[output].dtype.array_dtype, graph.tensors[source].dtype.array_dtype)
    return all(kind.kind in "iu" for kind in kinds) and kinds[0].itemsize >= kinds[1].itemsize
