"""Weights that a file has among its inputs: they become constants, as those of any forward model.

PyTorch's ``keep_initializers_as_inputs`` lists every weight as an input with a default value, ``export_params=False``
as one without; others write all weights as inputs. Which inputs those are is said by patterns, or inferred.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from onnx import ModelProto, TensorProto, ValueInfoProto

from planner.errors import UsageError, did_you_mean
from planner.graph.core.notes import STATE, UNLOADED, names_of
from planner.graph.files.protos import dtype_of, elem_type_name
from planner.training.parameters.names import is_parameter_name, words_of

_FIRST_WITH_DEFAULTS: Final = 4
"""From this IR version on, an initializer that is an input is a default value; before, all had to be listed."""
_SURE: Final = frozenset({"bias", "biases", "embedding", "embeddings", "kernel", "weight", "weights"})
"""Last words of a module's path that no data is named by."""


def weights_among_inputs(model: ModelProto, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """The inputs of a forward model that are weights, in the file's order.

    - What a pattern fits, if it is of floats.
    - Where all initializers are inputs as well, and a matrix is among them: all of them.
    - Otherwise inputs of floats with a default value that are named as parameters; and those without one whose name is
      a module's path that ends in weight, bias, kernel or embedding.

    Args:
        model: as the file has it.
        patterns: of names (``*``, ``?``).

    Raises:
        UsageError: a pattern that fits no input of floats.
    """
    values = {value.name: value for value in model.graph.input}
    defaults = {tensor.name: tensor for tensor in model.graph.initializer}
    if model.ir_version < _FIRST_WITH_DEFAULTS:
        values = {name: value for name, value in values.items() if name not in defaults}
    _check(patterns, values)
    chosen = {
        name
        for name, value in values.items()
        if _is_float(value) and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if any(entry.key == STATE for entry in model.metadata_props):
        return tuple(chosen)
    overridable = defaults.keys() & values.keys()
    is_whole = overridable == defaults.keys() and any(_is_matrix(tensor) for tensor in defaults.values())
    for name, value in values.items():
        if name in defaults:
            is_weight = is_whole or (_is_float(value) and is_parameter_name(name))
        else:
            is_weight = _is_float(value) and _is_path_of_a_weight(name)
        if is_weight:
            chosen.add(name)
    return tuple(name for name in values if name in chosen)


def hold(model: ModelProto, names: Sequence[str]) -> None:
    """Make inputs constants: of their default value, or of one that is not known."""
    wanted = frozenset(names)
    defaults = {tensor.name for tensor in model.graph.initializer}
    unloaded = sorted(wanted - defaults)
    inputs = [value for value in model.graph.input if value.name not in wanted & defaults]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    if not unloaded:
        return
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    metadata[UNLOADED] = json.dumps(sorted({*names_of(metadata, UNLOADED), *unloaded}))
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)


def _check(patterns: Sequence[str], values: dict[str, ValueInfoProto]) -> None:
    floats = [name for name, value in values.items() if _is_float(value)]
    facts: list[str] = []
    hints: list[str] = []
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in floats):
            continue
        matches = [name for name in values if fnmatchcase(name, pattern)]
        kind = elem_type_name(values[matches[0]].type.tensor_type.elem_type) if matches else ""
        facts.append(f"--params {pattern!r} fits {f'{matches[0]!r}, of {kind}' if matches else 'nothing'}")
        hints.append(did_you_mean(pattern, floats))
    if facts:
        hint = " ".join(dict.fromkeys(filter(None, hints))) or f"inputs of floats: {', '.join(floats[:8]) or 'none'}"
        raise UsageError("patterns that fit no input that could be a weight", facts=tuple(facts), hint=hint)


def _is_float(value: ValueInfoProto) -> bool:
    dtype = dtype_of(value.type.tensor_type.elem_type)
    return dtype is not None and dtype.is_float


def _is_matrix(tensor: TensorProto) -> bool:
    dtype = dtype_of(tensor.data_type)
    return dtype is not None and dtype.is_float and len(tensor.dims) >= 2


def _is_path_of_a_weight(name: str) -> bool:
    return bool(re.search(r"[./]", name)) and not words_of(name).isdisjoint(_SURE)
