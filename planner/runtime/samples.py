"""Inputs made up from a seed, for a model that nobody has given any.

A tensor's numbers depend on the seed and on its name alone, not on the number of workers nor on the order in which
tensors are drawn. The rule, per input:

    - what the model says in its metadata ``tofu.inputs`` (JSON): ``{"labels": {"integers_below": 10}}``, or
      ``{"learning_rate": {"value": 0.05}}``
    - data in floating point: standard normal
    - data in integers: below the size of the dim that it indexes, found through ops that pass values on; below 2 if it
      is only ever cast to a boolean
    - booleans: fair coins
    - state in floating point without a first value: normal with standard deviation 1 / sqrt(fan-in), where the fan-in
      is the number of elements of one output unit (all dims but the first; all elements of a vector)
    - state in integers without a first value: zero
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.errors import ModelError, UsageError
from planner.graph.model import DType, Graph, Op, Tensor
from planner.graph.protos import elem_type_of, numpy_dtype

INPUTS_NOTE: Final = "tofu.inputs"

_BOOL: Final = elem_type_of(DType.BOOL)
_PASSES_ON: Final = {
    "Cast": (0,),
    "Concat": None,
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "Identity": (0,),
    "Reshape": (0,),
    "Slice": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}
"""Ops whose results are elements of these inputs (None: of all)."""


def sample(graph: Graph, names: Sequence[str], seed: int) -> dict[str, np.ndarray]:
    """Values for inputs, by the rule of this file.

    Raises:
        UsageError: there are integers of which nothing says how large they may be; all of them are named.
        ModelError: the metadata cannot be read.
    """
    notes = _notes(graph)
    values: dict[str, np.ndarray] = {}
    unknown: list[str] = []
    for name in names:
        tensor = graph.tensors[name]
        value = _draw(graph, tensor, notes.get(name, {}), seed)
        if value is None:
            unknown.append(f"{name}: {tensor.dtype.value} {list(tensor.shape)}")
        else:
            values[name] = value
    if unknown:
        raise UsageError(
            "integers cannot be made up for inputs that nothing bounds",
            facts=tuple(unknown),
            hint="give them with --inputs batch.npz",
        )
    return values


def _notes(graph: Graph) -> Mapping[str, Mapping[str, Any]]:
    text = graph.notes.get(INPUTS_NOTE, "{}")
    try:
        notes = json.loads(text)
    except ValueError as error:
        raise ModelError(f"metadata {INPUTS_NOTE!r} is no JSON: {error}") from None
    if not isinstance(notes, dict) or not all(isinstance(entry, dict) for entry in notes.values()):
        raise ModelError(f"metadata {INPUTS_NOTE!r} is no object of objects")
    return notes


def _draw(graph: Graph, tensor: Tensor, note: Mapping[str, Any], seed: int) -> np.ndarray | None:
    dtype = numpy_dtype(tensor.dtype)
    digest = hashlib.sha256(f"{seed}:{tensor.name}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:16], "little"))
    if "value" in note:
        return np.full(tensor.shape, note["value"]).astype(dtype)
    if "integers_below" in note:
        return np.asarray(generator.integers(0, int(note["integers_below"]), tensor.shape)).astype(dtype)
    # Not by its role: a state that is its own next state is an output, too.
    is_state = any(pair.current == tensor.name for pair in graph.state)
    if tensor.dtype.is_float:
        fan_in = tensor.elements // tensor.shape[0] if len(tensor.shape) > 1 else tensor.elements
        scale = 1 / math.sqrt(max(1, fan_in)) if is_state else 1.0
        return np.asarray(scale * generator.standard_normal(tensor.shape)).astype(dtype)
    if is_state:
        return np.zeros(tensor.shape, dtype)
    if tensor.dtype is DType.BOOL:
        return np.asarray(generator.integers(0, 2, tensor.shape)).astype(dtype)
    below = index_bound(graph, tensor.name)
    return None if below is None else np.asarray(generator.integers(0, below, tensor.shape)).astype(dtype)


def index_bound(graph: Graph, name: str) -> int | None:
    """The size of the smallest dim that a tensor's values index somewhere.

    If they index nothing: 2 where they are cast to booleans, else None.
    """
    bounds: list[int] = []
    is_truth = False
    seen = {name}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for op in graph.consumers[current]:
            for position, read in enumerate(op.inputs):
                if read != current:
                    continue
                bound = _indexed(graph, op, position)
                if bound is not None:
                    bounds.append(bound)
                is_truth |= op.op_type == "Cast" and op.attribute("to") == _BOOL
                if op.op_type in _PASSES_ON:
                    passing = _PASSES_ON[op.op_type]
                    if passing is None or position in passing:
                        new = [made for made in op.outputs if made and made not in seen]
                        seen.update(new)
                        waiting.extend(new)
    return min(bounds, default=2 if is_truth else None)


def _indexed(graph: Graph, op: Op, position: int) -> int | None:
    if position == 0 and op.op_type == "OneHot":
        depth = graph.constants.get(op.inputs[1])
        return None if depth is None else int(depth.ravel()[0])
    if position != 1:
        return None
    shape = graph.tensors[op.inputs[0]].shape
    if op.op_type in ("Gather", "GatherElements", "ScatterElements"):
        axis = op.attribute("axis", 0)
        assert isinstance(axis, int)
        return shape[axis]
    if op.op_type in ("GatherND", "ScatterND"):
        batch = op.attribute("batch_dims", 0)
        assert isinstance(batch, int)
        depth_of_index = graph.tensors[op.inputs[1]].shape[-1]
        return min(shape[batch : batch + depth_of_index], default=None)
    if op.op_type in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        return shape[1]
    return None
