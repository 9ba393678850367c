"""Inputs that are given a value before anything is planned: they become constants, and what they decide is decided."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from planner.errors import UsageError, did_you_mean
from planner.graph.core.model import DType, Tensor
from planner.graph.core.notes import VALUES, note_value
from planner.records import reader

_SHOWN: Final = 8
_FLAGS: Final = {"true": 1, "false": 0, "1": 1, "0": 0}


def fixed_inputs(stated: Mapping[str, str], inputs: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The arrays of inputs whose values are stated.

    Args:
        stated: by input, one number that all elements have, or one for each in C order, with commas between them.
            Booleans are ``true`` and ``false``.
        inputs: those of the model.

    Raises:
        UsageError: no such input, or what is stated is no number of its dtype, or not as many as it has elements: all
            findings.
    """
    arrays: dict[str, np.ndarray] = {}
    # All inputs are looked at before the error, so that one run names every fault.
    faults: list[str] = []
    hints: list[str] = []
    for name, text in stated.items():
        if name not in inputs:
            names = ", ".join(list(inputs)[:_SHOWN]) + (" ..." if len(inputs) > _SHOWN else "")
            faults.append(f"{name!r} is no input; the model's inputs: {names or 'none'}")
            hints.append(did_you_mean(name, inputs))
            continue
        tensor = inputs[name]
        parts = [part.strip() for part in text.split(",")]
        numbers = [_number(part, tensor.dtype) for part in parts]
        wrong = [part for part, number in zip(parts, numbers, strict=True) if number is None]
        if wrong:
            faults.append(f"{name!r}: {wrong[0]!r} is no {tensor.dtype.value}")
        elif len(numbers) not in (1, tensor.elements):
            faults.append(f"{name!r}: {len(numbers)} numbers for {tensor.elements} elements of {list(tensor.shape)}")
        else:
            array = np.array(numbers).astype(tensor.dtype.array_dtype)
            arrays[name] = np.broadcast_to(array[0], tensor.shape) if len(array) == 1 else array.reshape(tensor.shape)
    if faults:
        raise UsageError(
            "--value: inputs cannot be given the values that are stated",
            facts=tuple(faults),
            hint=" ".join(filter(None, hints)),
        )
    return arrays


def _number(text: str, dtype: DType) -> int | float | None:
    """The number that a text is in a dtype; None if it is none."""
    if dtype is DType.BOOL:
        return _FLAGS.get(text.lower())
    try:
        number = float(text) if dtype.is_float else int(text)
        with np.errstate(over="ignore"):
            held = np.array(number).astype(dtype.array_dtype)
    except (ValueError, OverflowError, TypeError):
        return None
    is_same = np.isinf(held.astype(np.float64)) == math.isinf(number) if dtype.is_float else int(held) == number
    return number if is_same and number == number else None  # not a number is no value


def values_of(notes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The inputs that were fixed, and at what, as a note has them; () where it is absent.

    Raises:
        ModelError: the note is not of that form.
    """
    table: dict[str, str] = note_value(notes, VALUES, reader(dict[str, str]), {}, "a table of texts")
    return tuple(sorted(table.items()))


def note_of(pairs: Iterable[tuple[str, str]]) -> str:
    """The note that ``values_of`` reads."""
    return json.dumps(dict(pairs), sort_keys=True)
