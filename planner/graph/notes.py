"""What tofu writes into a model's metadata: the keys, and how their values are read.

Keys that begin with ``tofu.`` are carried in ``Graph.notes``, but for the structural ones: those say what ``Graph``
has fields for, so the reader consumes them and the writer writes them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from planner.errors import ModelError

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


def _parsed(metadata: Mapping[str, str], key: str) -> object:
    try:
        value: object = json.loads(metadata[key])
    except (ValueError, RecursionError):
        raise ModelError(f"metadata {key} is not JSON") from None
    return value


def without_micro_batch(name: str) -> str:
    """The name of a tensor or op without that of the micro-batch whose own it is (see ``MICRO_BATCHES``), if it is."""
    return re.sub(r"\.micro[1-9][0-9]*", "", name)


def names_of(metadata: Mapping[str, str], key: str) -> frozenset[str]:
    """The tensor names that a metadata key lists; none where it is absent.

    Raises:
        ModelError: its value is not a JSON list of strings.
    """
    if key not in metadata:
        return frozenset()
    names = _parsed(metadata, key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"metadata {key} is not a list of tensor names")
    return frozenset(names)


def pairs_of(metadata: Mapping[str, str], key: str) -> tuple[tuple[str, str], ...] | None:
    """The pairs of tensor names that a metadata key lists; None where it is absent.

    Raises:
        ModelError: its value is not a JSON list of pairs of strings.
    """
    if key not in metadata:
        return None
    pairs = _parsed(metadata, key)
    fault = ModelError(f"metadata {key} is not a list of pairs of tensor names")
    if not isinstance(pairs, list):
        raise fault
    name_pairs: list[tuple[str, str]] = []
    for pair in pairs:
        match pair:
            case [str(current), str(following)]:
                name_pairs.append((current, following))
            case _:
                raise fault
    return tuple(name_pairs)


def _table(notes: Mapping[str, str], key: str, fault: ModelError) -> Mapping[str, object]:
    """A note that is a JSON object; empty where it is absent."""
    table = _parsed(notes, key) if key in notes else {}
    if not isinstance(table, dict):
        raise fault
    return table


def external_of(notes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Where values that were not loaded lie, by tensor name; empty where the note is absent.

    Raises:
        ModelError: its value is not of that form.
    """
    fault = ModelError(f"metadata {EXTERNAL} is not a table of locations")
    locations: dict[str, dict[str, str]] = {}
    for name, entry in _table(notes, EXTERNAL, fault).items():
        if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
            raise fault
        locations[name] = {str(key): str(value) for key, value in entry.items()}
    return locations


def data_folder_note(notes: Mapping[str, str]) -> tuple[str, ...]:
    """The data folder as a note has it: twice, and the model there with its digest, which older notes lack; or ().

    Raises:
        ModelError: its value is not of that form.
    """
    if DATA_FOLDER not in notes:
        return ()
    match _parsed(notes, DATA_FOLDER):
        case [str(near), str(far)]:
            return near, far
        case [str(near), str(far), str(model), str(sha256)]:
            return near, far, model, sha256
    raise ModelError(f"metadata {DATA_FOLDER} is not a folder, twice")


def evidence_of(notes: Mapping[str, str]) -> dict[str, tuple[tuple[str, ...], str]]:
    """By next state, the kinds of evidence for its pair and the same in words; empty where nothing was inferred.

    Raises:
        ModelError: the note is not of that form.
    """
    fault = ModelError(f"metadata {EVIDENCE} is not a table of reasons")
    evidence: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, entry in _table(notes, EVIDENCE, fault).items():
        match entry:
            case [list(kinds), str(why)] if all(isinstance(kind, str) for kind in kinds):
                evidence[name] = (tuple(kinds), why)
            case _:
                raise fault
    return evidence
