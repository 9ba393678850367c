"""A model that is read, held against its file by data that is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.artifacts.source_file import SourceFile
from planner.errors import TofuError
from planner.graph.files.data_folder import Followed, data_folder_of
from planner.graph.reading.from_onnx import read_model
from planner.runtime.judge.door import DoorVerdict, ReadGraph, check_door
from planner.runtime.values.state import Values


def held_against_file(
    model: Path, dims: Mapping[str, int] | None = None, values: Mapping[str, str] | None = None
) -> DoorVerdict:
    """Whether a forward model or a flat step, as it is read, computes what the stock runtime makes of its file.

    Args:
        model: an ONNX file.
        dims: sizes of symbolic dims, as it is read with.
        values: of inputs that become constants, as it is read with.
    """
    source = SourceFile.of(model)
    if source is None:
        return DoorVerdict(model.name, not_done="it is no file of one model")
    content, why = source.content()
    if why:
        return DoorVerdict(model.name, not_done=why)
    try:
        graph = read_model(model, dims=dims, values=values, state_pairs=())
        folder = data_folder_of(graph, model)
        held = Values(graph, {}, data=Followed() if folder is None else Followed((folder.path,)))
        constants = {**graph.constants, **{name: held.whole(name) for name in held.absent}}
        inputs = {name: held.whole(name) for name in graph.inputs}
    except (TofuError, OSError) as error:
        return DoorVerdict(model.name, not_done=str(error).splitlines()[0].removeprefix(f"{model}: "))
    return check_door(model.name, content, ReadGraph(replace(graph, constants=constants), inputs, held.whole))
