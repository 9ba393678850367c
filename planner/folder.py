"""The folder of a plan: which files it has, and that they belong together.

    plan.json       the plan
    manifest.json   the sha256 of every other file; the model's inputs, outputs and state pairs; where its data lie
    model.onnx      the model that was planned, as it was ingested; weights that were external data still are
    worker0.onnx    what each worker runs
    ...

A folder is written beside its name and then renamed, so it is there as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import ModelError, UsageError
from planner.graph.external import record, resolved
from planner.graph.model import StatePair
from planner.json_form import Row, fault_in
from planner.plan import Plan, digest
from planner.program import Program
from planner.whole import whole_folder

PLAN = "plan.json"
MANIFEST = "manifest.json"
MODEL = "model.onnx"
SCHEMA_VERSION = 1
_FORM = {
    "schema_version": int,
    "files": {str: str},
    "inputs": [str],
    "outputs": [str],
    "state": [Row((str, str))],
}


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
    data_folders: tuple[Path, ...] = ()
    """Where the model's external data may lie, the likeliest first; () if it has none."""

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def worker(self, worker: int) -> Path:
        return self.path / worker_file(worker)


def refuse_existing(directory: Path) -> None:
    """Refuses to write where something is.

    Raises:
        UsageError: the folder exists.
    """
    if directory.exists() or directory.is_symlink():
        raise UsageError(f"{directory} exists", hint="choose another folder with --out, or remove it")


def write_folder(
    directory: Path, files: Mapping[str, bytes], program: Program, data_folder: Path | None = None
) -> None:
    """Writes a plan's files and their manifest.

    Args:
        directory: must not exist.
        files: content by file name, without the manifest.
        program: the partitioned program of the plan.
        data_folder: where the model's external data lie; None if it has none.

    Raises:
        UsageError: the folder exists, or cannot be written.
    """
    refuse_existing(directory)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "files": {name: digest(content) for name, content in sorted(files.items())},
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "state": [[pair.current, pair.following] for pair in program.state],
        **({} if data_folder is None else {"data_folder": record(data_folder, directory)}),
    }
    complete = {**files, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}
    with whole_folder(directory) as folder:
        for name, content in complete.items():
            (folder / name).write_bytes(content)


def open_folder(directory: Path) -> PlanFolder:
    """Reads a plan's folder and checks every file's digest.

    Raises:
        UsageError: it is no plan's folder.
        ModelError: files are missing, or are not those of this plan; all of them at once.
    """
    manifest_file = directory / MANIFEST
    if not manifest_file.is_file():
        raise UsageError(f"{directory} holds no plan", hint="write one with `tofu plan`")
    try:
        manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ModelError(f"{manifest_file} cannot be read: it is not JSON", hint="plan the model again") from None
    version = manifest.get("schema_version", SCHEMA_VERSION) if isinstance(manifest, dict) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise ModelError(f"{manifest_file} has schema version {version}; this tofu reads {SCHEMA_VERSION}")
    fault = fault_in(manifest, _FORM) or fault_in(manifest.get("data_folder", []), [str], "data_folder")
    if fault:
        raise ModelError(f"{manifest_file} cannot be read: {fault}", hint="plan the model again")
    expected: dict[str, str] = manifest["files"]
    inputs, outputs = tuple(manifest["inputs"]), tuple(manifest["outputs"])
    state = tuple(StatePair(current, following) for current, following in manifest["state"])
    data_folders = resolved(directory, manifest.get("data_folder", []))
    faults = [_fault(directory, name, wanted) for name, wanted in expected.items()]
    faults.extend(f"{name} is not in the manifest" for name in (PLAN, MODEL) if name not in expected)
    if any(faults):
        raise ModelError(
            f"{directory}: the plan's files do not belong together",
            facts=tuple(filter(None, faults)),
            hint="plan the model again with `tofu plan`",
        )
    plan = Plan.from_json((directory / PLAN).read_text(encoding="utf-8"))
    absent = [worker_file(worker) for worker in range(plan.workers) if worker_file(worker) not in expected]
    if absent:
        raise ModelError(f"{directory} lacks {', '.join(absent)}", hint="plan the model again")
    return PlanFolder(directory, plan, inputs, outputs, state, data_folders)


def _fault(directory: Path, name: str, wanted: str) -> str:
    if Path(name).name != name or name == MANIFEST:
        return f"{name} is outside of the folder"
    file = directory / name
    if not file.is_file():
        return f"{name} is missing"
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    return "" if found == wanted else f"{name} is not the file that was planned: its digest differs"


def newest_folder(where: Path) -> Path:
    """The plan folder in a directory that was written last.

    Raises:
        UsageError: there is none.
    """
    found = [manifest.parent for manifest in where.glob(f"*/{MANIFEST}") if (manifest.parent / PLAN).is_file()]
    if not found:
        raise UsageError("there is no plan in this directory", hint="name the plan's folder, or run `tofu plan` first")
    return max(found, key=lambda folder: ((folder / MANIFEST).stat().st_mtime, folder.name))
