"""Notes of tofu in a model's metadata: the keys, and how their values are read.

Keys that begin with ``tofu.`` are carried in ``Graph.notes``, but for the structural ones: those say what ``Graph``
has fields for, so the reader consumes them and the writer writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from planner.errors import ModelError
from planner.records import reader
from planner.strict_json import JsonError, Value, parse_json

_T = TypeVar("_T")
PREFIX: Final = "tofu."
STATE: Final = "tofu.state"
"""``[["W", "W.next"], ...]``: states and what replaces them."""
FOLDED: Final = "tofu.folded"
"""Names of the initializers that are no parameters: ``Graph.folded``."""
UNLOADED: Final = "tofu.unloaded"
"""Names of the inputs that stand for constants whose value was not loaded."""
UNLOADED_INITIAL: Final = "tofu.unloaded_initial"
"""Names of the inputs that have a first value somewhere, which was not loaded."""
EVIDENCE: Final = "tofu.state_evidence"
"""Why outputs replace inputs, where that was inferred: ``{"W2": [["shape", "dataflow"], "in words"]}``; a note."""
LEFT: Final = "tofu.state_left"
"""``[["u", "u_out"], ...]``: inputs and outputs that may be states and next states, and were not paired; a note."""
EXTERNAL: Final = "tofu.external"
"""Where values that were not loaded lie: ``{"W": {"location": ..., "offset": ..., "length": ...}}``; a note. A file's
initializers say the same, and what they say counts."""
DATA_FOLDER: Final = "tofu.data_folder"
"""``["../model", "/home/me/model", "m.onnx", "9f86…"]``: the folder of those files, from the file's own and as a whole
path, and the model there that names them, with its digest; a note, and not simply believed (``data_folder.py``)."""
VALUES: Final = "tofu.values"
"""Inputs that were given a value before the model was planned: ``{"sr": "16000"}``; a note."""
MICRO_BATCHES: Final = "tofu.micro_batches"
"""How many of them make a step; what each has of its own is named ``NAME.micro1``, ``NAME.micro2``, ...; a note."""
TRAINING: Final = "tofu.training"
"""No key, but the input of a training step that says whether it trains; where it is false, the model infers."""

_STRUCTURAL: Final = frozenset({STATE, FOLDED, UNLOADED, UNLOADED_INITIAL})


def is_structural(key: str) -> bool:
    """Whether a metadata key says what ``Graph`` has a field for."""
    return key in _STRUCTURAL


def note_value(notes: Mapping[str, str], key: str, read: Callable[[Value], _T], absent: _T, noun: str) -> _T:
    """The value of a key in metadata.

    Args:
        notes: the metadata.
        key: of the metadata.
        read: makes it of JSON; its JsonError is not shown.
        absent: what stands for a key that is not there.
        noun: what it is, for errors: "a list of tensor names".

    Raises:
        ModelError: it is something else.
    """
    if key not in notes:
        return absent
    try:
        value = parse_json(notes[key])
    except JsonError:
        raise ModelError(f"metadata {key} is not JSON") from None
    try:
        return read(value)
    except JsonError:
        raise ModelError(f"metadata {key} is not {noun}") from None


def without_micro_batch(name: str) -> str:
    """The name of a tensor or op without that of the micro-batch whose own it is (see ``MICRO_BATCHES``), if it is."""
    return re.sub(r"\.micro[1-9][0-9]*", "", name)


def names_of(metadata: Mapping[str, str], key: str) -> frozenset[str]:
    """The tensor names that a metadata key lists; none where it is absent.

    Raises:
        ModelError: its value is not a JSON list of strings.
    """
    names: tuple[str, ...] = note_value(metadata, key, reader(tuple[str, ...]), (), "a list of tensor names")
    return frozenset(names)


def pairs_of(metadata: Mapping[str, str], key: str) -> tuple[tuple[str, str], ...] | None:
    """The pairs of tensor names that a metadata key lists; None where it is absent.

    Raises:
        ModelError: its value is not a JSON list of pairs of strings.
    """
    read: Callable[[Value], tuple[tuple[str, str], ...] | None] = reader(tuple[tuple[str, str], ...])
    return note_value(metadata, key, read, None, "a list of pairs of tensor names")


def external_of(notes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The places of values that were not loaded, by tensor name; empty where the note is absent.

    Raises:
        ModelError: its value is not of that form.
    """
    return note_value(notes, EXTERNAL, reader(dict[str, dict[str, str]]), {}, "a table of locations")


def data_folder_note(notes: Mapping[str, str]) -> tuple[str, ...]:
    """The data folder as a note has it: twice, and the model there with its digest, which older notes lack; or ().

    Raises:
        ModelError: its value is not of that form.
    """
    return note_value(notes, DATA_FOLDER, _data_folder, (), "a folder, twice")


def _data_folder(record: Value) -> tuple[str, ...]:
    if len(record.texts()) not in (2, 4):
        raise record.fault("is neither two texts nor four")
    return record.texts()


def evidence_of(notes: Mapping[str, str]) -> dict[str, tuple[tuple[str, ...], str]]:
    """The kinds of evidence for the pair of each next state, and the same in words; empty where nothing was inferred.

    Raises:
        ModelError: the note is not of that form.
    """
    read = reader(dict[str, tuple[tuple[str, ...], str]])
    return note_value(notes, EVIDENCE, read, {}, "a table of reasons")
