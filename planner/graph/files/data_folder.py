"""The folder of a model's external data: how a file records it, and when such a record is followed.

Values lie in files of the folder of the model that names them. A training graph or a plan may be written elsewhere than
that model. It then records the folder twice, as the way there from its own folder and as an absolute path, so that it
is found when all is moved together and when the graph alone is; and beside it the model's file name and digest.

A record is anybody's word: one that says "/etc" would have the system's files read as weights, and their elements come
out as results. So it is followed where the folder lies in the record's own, as external data may, or where the model's
file is there, with the digest that is recorded, and names the files itself. Else the user has to say the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from onnx import ModelProto

from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.core.notes import DATA_FOLDER, data_folder_note
from planner.graph.files.external import ExternalValue, external_values
from planner.regular_file import digest_of, read_regular


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder of external data, and the model in it that names them."""

    path: Path
    model: str = ""
    """Name of the model's file in the folder; "" where none is known, and then the record proves nothing."""
    sha256: str = ""
    """The digest of that file."""

    def recorded(self, base: Path) -> tuple[str, str, str, str]:
        """The record of it in a file in the folder ``base``."""
        absolute = self.path.resolve()
        return os.path.relpath(absolute, base.resolve()), str(absolute), self.model, self.sha256


@dataclass(frozen=True, slots=True)
class Followed:
    """The folders of a record: those that may be read unasked, and those that may not."""

    folders: tuple[Path, ...] = ()
    """Folders that may be read, the likeliest first."""
    refused: tuple[str, ...] = ()
    """Other folders, each with why it may not be read, in words."""


def data_folder_of(graph: Graph, file: Path) -> DataFolder | None:
    """The folder in which a graph's external data lie; None if it holds all its values.

    Args:
        graph: as it was read, or made of what was.
        file: that was read.

    Raises:
        ModelError: what the graph's notes say does not hold.
    """
    values = external_values(graph).values()
    if not values:
        return None
    record = data_folder_note(graph.notes)
    folders = followed(file.parent, record, values).folders
    folder = chosen_folder(folders, values) if folders else file.parent
    if folder.resolve() == file.parent.resolve():
        return DataFolder(folder, file.name, digest_of(file))
    return DataFolder(folder, *record[2:])


def followed(base: Path, record: Sequence[str], values: Iterable[ExternalValue]) -> Followed:
    """The folders of a record that may be read unasked.

    Args:
        base: the folder of the file that holds the record.
        record: what ``DataFolder.recorded`` returned, perhaps without the model; () where there is none.
        values: that are wanted from there.

    Raises:
        ModelError: no folder can have such a name.
    """
    if not record:
        return Followed()
    near, far, model, sha256 = [*record, "", ""][:4]
    for name in (near, far):
        if "\0" in name or not _is_encodable(name):
            raise ModelError(f"no folder of external data can be named {name!r}")
    wanted = {value.location for value in values}
    folders: list[Path] = []
    refused: list[str] = []
    for folder in dict.fromkeys((base / near, base / far)):
        if folder.resolve().is_relative_to(base.resolve()) or _names(folder, model, sha256, wanted):
            folders.append(folder)
        else:
            lacking = f"no file {model!r} with the digest that is recorded" if model else "no model that is recorded"
            refused.append(f"recorded as their folder: {str(folder)!r}, where {lacking} names them")
    return Followed(tuple(folders), tuple(refused))


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _names(folder: Path, model: str, sha256: str, wanted: Collection[str]) -> bool:
    """Whether a model in a folder is the one of a digest, and has external data at all these locations."""
    if not model or Path(model).name != model or "\0" in model or not _is_encodable(model):
        return False
    try:
        if digest_of(folder / model) != sha256:
            return False
        return set(_locations(ModelProto.FromString(read_regular(folder / model)))) >= set(wanted)
    except (OSError, DecodeError):
        return False


def _locations(model: ModelProto) -> Iterator[str]:
    graphs = [model.graph, *(graph for info in model.training_info for graph in (info.initialization, info.algorithm))]
    for graph in graphs:
        for tensor in graph.initializer:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def chosen_folder(folders: Sequence[Path], values: Iterable[ExternalValue]) -> Path:
    """The first folder that has every file; the first of all where none has."""
    locations = {value.location for value in values}
    for folder in folders:
        if all(os.path.lexists(folder / location) for location in locations):
            return folder
    return folders[0]


def without_data_folder(graph: Graph) -> Graph:
    """The graph without a note of where its external data lie."""
    return replace(graph, notes={key: value for key, value in graph.notes.items() if key != DATA_FOLDER})


def note_data_folder(model: ModelProto, folder: DataFolder | None, base: Path) -> None:
    """Has a model say where its external data lie, in the place of what it says.

    Args:
        model: is changed.
        folder: of the data; None: it has none.
        base: the folder that the model will be written to.
    """
    entries = [entry for entry in model.metadata_props if entry.key != DATA_FOLDER]
    del model.metadata_props[:]
    model.metadata_props.extend(entries)
    if folder is not None:
        model.metadata_props.add(key=DATA_FOLDER, value=json.dumps(folder.recorded(base)))
