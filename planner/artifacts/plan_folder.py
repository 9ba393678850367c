"""The folder of a plan: which files it has, and that they belong together.

    plan.json       the plan
    manifest.json   the sha256 of every other file; the model's inputs, outputs and state pairs; where its data lie,
                    and the file that was planned
    model.onnx      the model that was planned, as it was ingested; weights that were external data still are
    topology.yaml   the user's topology, if the plan is for one that does not ship with tofu
    profile.yaml    the device profile that its times are by, if there is one
    worker0.onnx    what each worker runs; not there after `tofu plan --no-models`, until `tofu build` makes them
    ...
    measured.json   what `tofu run --measure` measured last, if it ever did; not in the manifest
    report.html     what `tofu report` wrote; not in the manifest

A folder is written beside its name and then renamed, so it is there as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Protocol

from planner.artifacts.making import USUAL, Making, Reading
from planner.artifacts.place import MANIFEST, PLAN, require_plan
from planner.artifacts.plan import Plan, digest
from planner.artifacts.source_file import SourceFile
from planner.errors import ModelError, TofuError, UsageError
from planner.graph.core.model import StatePair
from planner.graph.files.data_folder import DataFolder
from planner.records import Kind, Sha256, plain_record, reader
from planner.regular_file import digest_of, read_regular
from planner.strict_json import JsonError, Value, read_json
from planner.whole import try_folder, whole_file, whole_folder

MODEL = "model.onnx"
TOPOLOGY = "topology.yaml"
PROFILE = "profile.yaml"
MEASURED = "measured.json"
REPORT = "report.html"
SCHEMA_VERSION = 1
_HAS_MODELS = "has_models"
_PLANNED = (PLAN, MODEL, TOPOLOGY, PROFILE)
_FILES = re.compile("|".join(map(re.escape, (*_PLANNED, MANIFEST, MEASURED, REPORT))) + r"|worker[0-9]+\.onnx")
_OTHER_PLACE = "choose another folder with -o, or move that one away"


def worker_file(worker: int) -> str:
    """The name of a worker's model."""
    return f"worker{worker}.onnx"


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """A folder whose files were found to belong together."""

    path: Path
    plan: Plan
    inputs: tuple[str, ...]
    """Data and state of the model, in its order."""
    outputs: tuple[str, ...]
    """Results and next states of the model, in its order."""
    state: tuple[StatePair, ...]
    data_record: tuple[str, ...] = ()
    """What is said of the folder of the model's external data (``DataFolder.recorded``); () if it has none."""
    source: SourceFile | None = None
    """The file that was planned; None if it is not recorded."""
    making: Making = USUAL
    """The settings of the plan's program."""
    has_models: bool = True
    """Whether the workers' models are there; else they can be made (``tofu build``)."""
    topology: Path | None = None
    """The user's topology file, as it was; None: a topology that ships, or none."""
    profile: Path | None = None
    """The device profile that the plan's times are by; None: by speeds of the topology."""
    reading: Reading = field(default_factory=Reading)
    """The options with which ``source`` was read."""

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def worker(self, worker: int) -> Path:
        return self.path / worker_file(worker)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a plan folder's manifest."""

    schema_version: ClassVar = SCHEMA_VERSION
    told: ClassVar = "files inputs outputs state data_folder? source? reading? making? has_models?"

    files: Mapping[str, Sha256]
    """The digest of each file."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[Annotated[tuple[str, str], Kind(noun="pair of a state and its next value")], ...]
    """Inputs that come back as outputs."""
    data_folder: tuple[str, str, str, str] | None
    """The folder of the model's external data (``DataFolder.recorded``)."""
    source: Annotated[tuple[str, str, str], Kind(noun="file with its digest")] | None
    """The file that was planned (``SourceFile.recorded``)."""
    reading: Reading = field(default_factory=Reading)
    making: Making = USUAL
    has_models: bool = True
    """There after --no-models."""


class Ends(Protocol):
    """The inputs and outputs of a model: a graph has it, and a program."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    @property
    def state(self) -> tuple[StatePair, ...]: ...


def try_place(directory: Path, *, force: bool = False) -> None:
    """Refuses, before a plan is made, a place where it could not be written.

    Args:
        directory: the folder that the plan would be.
        force: it may be a plan's folder, which is replaced. One that holds anything else never is.

    Raises:
        UsageError: something is there, or nothing can be written there.
    """
    if os.path.lexists(directory):
        if not force:
            raise UsageError(f"{directory} exists", hint="choose another folder with -o, or replace it with --force")
        if directory.is_symlink() or not directory.is_dir() or not (directory / MANIFEST).is_file():
            raise UsageError(f"{directory} is no plan's folder, and is not replaced", hint=_OTHER_PLACE)
        strangers = tuple(sorted(entry.name for entry in directory.iterdir() if not _FILES.fullmatch(entry.name)))
        if strangers:
            raise UsageError(
                f"{directory} holds more than a plan, and is not replaced", facts=strangers, hint=_OTHER_PLACE
            )
    try_folder(directory, is_replaced=True)


def write_folder(
    directory: Path,
    files: Iterable[tuple[str, bytes]],
    ends: Ends,
    data_folder: DataFolder | None = None,
    source: SourceFile | None = None,
    *,
    reading: Reading | None = None,
    making: Making = USUAL,
    has_models: bool = True,
    force: bool = False,
) -> None:
    """Writes a plan's files and their manifest.

    Args:
        directory: see ``try_place``.
        files: names and contents, without the manifest; each is written before the next is asked for.
        ends: what the plan's model takes and makes.
        data_folder: where the model's external data lie; None if it has none.
        source: the file that was planned; None: it is not recorded.
        reading: how; None: as it is.
        making: how the program is made.
        has_models: the workers' models are among the files.
        force: a plan that is there is replaced.

    Raises:
        UsageError: the folder exists, or cannot be written.
    """
    try_place(directory, force=force)
    digests = {}
    with whole_folder(directory) as folder:
        for name, content in files:
            digests[name] = digest(content)
            (folder / name).write_bytes(content)
        manifest = Manifest(
            files=dict(sorted(digests.items())),
            inputs=ends.inputs,
            outputs=ends.outputs,
            state=tuple((pair.current, pair.following) for pair in ends.state),
            data_folder=None if data_folder is None else data_folder.recorded(directory),
            source=None if source is None else source.recorded(directory),
            reading=Reading() if reading is None else reading,
            making=making,
            has_models=has_models,
        )
        (folder / MANIFEST).write_bytes(_manifest_text(plain_record(manifest)))


def add_models(folder: PlanFolder, models: Iterable[tuple[str, bytes]]) -> None:
    """Writes the workers' models into a plan's folder, which is then as if it had been written with them.

    The manifest is replaced last: until then the folder is that of a plan without models.

    Args:
        folder: of the plan.
        models: names and contents; each is written before the next is asked for.

    Raises:
        UsageError: they cannot be written.
    """
    manifest = json.loads(read_regular(folder.path / MANIFEST))
    digests = {name: manifest["files"][name] for name in _PLANNED if name in manifest["files"]}
    without = {**manifest, "files": dict(sorted(digests.items())), _HAS_MODELS: False}
    if folder.has_models:
        with whole_file(folder.path / MANIFEST) as stream:
            stream.write(_manifest_text(without))
    for name, content in models:
        digests[name] = digest(content)
        with whole_file(folder.path / name) as stream:
            stream.write(content)
    del without[_HAS_MODELS]
    with whole_file(folder.path / MANIFEST) as stream:
        stream.write(_manifest_text({**without, "files": dict(sorted(digests.items()))}))


def lacks_models(directory: Path) -> bool:
    """Whether a folder says that it holds a plan without models; what is wrong with it is for who opens it to say."""
    try:
        stated = read_json(directory / MANIFEST).get(_HAS_MODELS)
        return stated is not None and not stated.flag()
    except (JsonError, OSError, TofuError):
        return False


def _manifest_text(manifest: Mapping[str, object]) -> bytes:
    return (json.dumps(manifest, indent=1) + "\n").encode()


def open_folder(directory: Path | None, *, with_models: bool = True, as_planned: bool = True) -> PlanFolder:
    """Reads a plan's folder and checks every file's digest.

    Args:
        directory: the folder; None: the newest in the working directory.
        with_models: the workers' models are looked at, if they are there.
        as_planned: they are the very files that were planned; else somebody may have changed them since.

    Raises:
        UsageError: it is no plan's folder.
        ModelError: files are missing, or are not those of this plan; all of them at once.
    """
    directory = require_plan(directory)
    manifest_file = directory / MANIFEST
    try:
        manifest = read_json(manifest_file)
        manifest.require_version(SCHEMA_VERSION)
        stated = reader(Manifest, {tuple[str, str, str, str]: _data_record})(manifest)
        source = None if stated.source is None else SourceFile.stated(stated.source, directory)
    except JsonError as error:
        raise ModelError(f"{manifest_file} cannot be read: {error}", hint="plan the model again") from None
    expected, has_models = stated.files, stated.has_models
    looked_at = [name for name in expected if with_models or name in _PLANNED]
    faults = {name: f"{name} is not in the manifest" for name in (PLAN, MODEL) if name not in expected}
    for name in looked_at:
        faults[name] = _fault(directory, name, expected[name] if as_planned or name in _PLANNED else None)
    if at_fault := [name for name, fault in faults.items() if fault]:
        # Workers' models follow from the plan; nothing gives the plan itself again.
        anew = f"make the workers' models anew: tofu build {shlex.quote(str(directory))} --force"
        raise ModelError(
            f"{directory}: the plan's files do not belong together",
            facts=tuple(faults[name] for name in at_fault),
            hint="plan the model again with `tofu plan`" if set(at_fault) & set(_PLANNED) else anew,
        )
    plan = Plan.from_json(read_regular(directory / PLAN), str(directory / PLAN))
    model_count = sum(1 for name in expected if name not in _PLANNED)
    # Their number first: a plan may state any number of workers.
    if model_count != (plan.workers if has_models else 0) or any(
        worker_file(worker) not in expected for worker in range(model_count)
    ):
        raise ModelError(
            f"{directory}: the plan is for {plan.workers} workers, and not these are there",
            facts=tuple(sorted(expected)),
            hint="plan the model again with `tofu plan`",
        )
    state = tuple(StatePair(*pair) for pair in stated.state)
    data_record = stated.data_folder or ()
    topology, profile = (directory / name if name in expected else None for name in (TOPOLOGY, PROFILE))
    ends = stated.inputs, stated.outputs, state
    ends, models = (stated.inputs, stated.outputs, state), (stated.making, has_models)
    return PlanFolder(directory, plan, *ends, data_record, source, *models, topology, profile, stated.reading)


def _data_record(stated: Value) -> tuple[str, ...]:
    record = stated.texts()
    if len(record) not in (0, 2, 4):
        raise stated.fault("is not a folder, twice, and a model with its digest")
    return record


def _fault(directory: Path, name: str, wanted: str | None) -> str:
    """What is wrong with a file of the folder; "" for nothing. Of one that may have changed no digest is wanted."""
    if Path(name).name != name or name == MANIFEST:
        return f"{name} is outside of the folder"
    file = directory / name
    if not file.is_file():
        return f"{name} is missing"
    try:
        is_as_planned = wanted is None or digest_of(file) == wanted
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    return "" if is_as_planned else f"{name} is not the file that was planned: its digest differs"
