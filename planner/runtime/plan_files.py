"""A plan as it lies in a directory: the worker models, the whole model, and the manifest that binds them together.

    manifest.json   {"schema_version": 1,
                     "files": {"plan.json": "<sha256, hex>", "model.onnx": ..., "worker0.onnx": ...},
                     "inputs": [...], "outputs": [...], "state": [["W", "W_next"], ...]}
    plan.json       the decision; the runtime does not read it
    model.onnx      the whole model as it was planned, with its initial values
    worker0.onnx …  what each worker does

The manifest may say more; the runtime reads no other key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from onnx import ModelProto

from planner.errors import ModelError, UsageError
from planner.graph.from_onnx import read_model
from planner.graph.model import Graph, StatePair
from planner.program import Program
from planner.worker_model import WorkerModel, read_worker_model

SCHEMA_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
WHOLE: Final = "model.onnx"


@dataclass(frozen=True)
class LoadedPlan:
    """All that a run needs."""

    graph: Graph
    """The whole model, with the plan's state pairs."""
    program: Program
    models: tuple[WorkerModel, ...]
    paths: tuple[Path, ...] = ()
    """Files of the worker models, in order; () if they exist in memory only."""


def worker_file(worker: int) -> str:
    """The name of a worker model's file."""
    return f"worker{worker}.onnx"


def digest_of(path: Path) -> str:
    """A file's sha256, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_of(directory: Path, files: Sequence[str], program: Program) -> dict[str, Any]:
    """What the manifest of files in a directory has to say at least.

    Args:
        directory: where the files lie, all of them written.
        files: their names, without the manifest's.
        program: the partitioned program.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "files": {name: digest_of(directory / name) for name in sorted(files)},
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "state": [[pair.current, pair.following] for pair in program.state],
    }


def load_plan(directory: Path) -> LoadedPlan:
    """Reads a plan and checks that its files belong together.

    Raises:
        UsageError: it is no directory that ``tofu plan`` wrote, or a file was changed afterwards.
        ModelError: a model in it cannot be read.
    """
    manifest = _manifest(directory)
    files: Mapping[str, str] = manifest["files"]
    count = sum(name.startswith("worker") and name.endswith(".onnx") for name in files)
    wanted = [WHOLE, *(worker_file(worker) for worker in range(count))]
    findings = [f"{name} is not in the manifest" for name in wanted if name not in files]
    for name, digest in files.items():
        path = directory / name
        if not path.is_file():
            findings.append(f"{name} is missing")
        elif digest_of(path) != digest.removeprefix("sha256:"):
            findings.append(f"{name} is not the file that was planned: its digest differs")
    if findings or not count:
        raise UsageError(
            f"{directory}: the plan's files do not belong together",
            facts=tuple(findings) or ("there is no worker model",),
            hint="plan the model again with `tofu plan`",
        )
    paths = tuple(directory / worker_file(worker) for worker in range(count))
    models = tuple(_worker_model(path) for path in paths)
    state = tuple(StatePair(current, following) for current, following in manifest["state"])
    # The plan's state, and not what the reader would find: the workers' tiles are tied by it.
    graph = replace(read_model(directory / WHOLE), state=state)
    program = Program(
        tuple(model.program for model in models), tuple(manifest["inputs"]), tuple(manifest["outputs"]), state
    )
    return LoadedPlan(graph, program, models, paths)


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{directory} holds no plan: {MANIFEST} cannot be read ({error.strerror})",
            hint="write one with `tofu plan`",
        ) from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}", hint="plan the model again") from None
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema version {version}; this tofu reads {SCHEMA_VERSION}", hint="plan the model again"
        )
    absent = [key for key in ("files", "inputs", "outputs", "state") if key not in manifest]
    if absent:
        raise UsageError(f"{path} lacks {', '.join(absent)}", hint="plan the model again")
    names = [name for name in manifest["files"] if Path(name).name != name or name == MANIFEST]
    if names:
        raise UsageError(f"{path} names files outside of its directory", facts=tuple(names))
    found: dict[str, Any] = manifest
    return found


def _worker_model(path: Path) -> WorkerModel:
    try:
        return read_worker_model(ModelProto.FromString(path.read_bytes()))
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model") from None
