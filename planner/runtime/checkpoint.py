"""Checkpoints: the state after a step, as the workers' tiles.

    DIR/step-00000010/
        worker0.npz       the tiles that worker 0 owns, by number; a tile that several own is the first one's
        ...
        manifest.json     written last: step, seed, digests of the model and of every file, and which region of which
                          state each tile is

A checkpoint is written beside its name, synced and then renamed, so it is there as a whole or not at all. It belongs to
a model and not to a plan: a run on another number of workers, or by another plan, takes each of its tiles from the
regions that the stored tiles have in common with it, as a fetch does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.algebra.region import Region
from planner.errors import ModelError, UsageError
from planner.graph.model import Graph, StatePair, Tensor
from planner.graph.protos import numpy_dtype
from planner.program import WorkerProgram
from planner.runtime.results import write_arrays
from planner.whole import whole_folder

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = 1
_NAME: Final = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True)
class StoredTile:
    """A tile of a checkpoint."""

    file: str
    key: str
    """Its name in the file."""
    region: Region


def write_checkpoint(
    directory: Path,
    step: int,
    seed: int,
    model_digest: str,
    programs: Sequence[WorkerProgram],
    state: Sequence[StatePair],
    tile_of: Callable[[int, str], np.ndarray],
) -> Path:
    """Writes the state after a step; returns where.

    Args:
        directory: of all checkpoints of a run; made if it is not there.
        step: how many steps have been done.
        seed: of what was made up.
        model_digest: of the model that was planned.
        programs: of all workers.
        state: which states there are.
        tile_of: the memory of a worker's collected buffer, by worker and name.

    Raises:
        UsageError: it cannot be written.
    """
    target = directory / f"step-{step:08}"
    tiles: dict[str, list[dict[str, Any]]] = {pair.current: [] for pair in state}
    owned: dict[str, set[Region]] = {pair.current: set() for pair in state}
    with whole_folder(target) as folder:
        files: dict[str, str] = {}
        for program in programs:
            arrays: dict[str, np.ndarray] = {}
            file = f"worker{program.worker}.npz"
            for pair in state:
                buffer = program.buffers.get(pair.following)
                if buffer is None or buffer.region in owned[pair.current]:
                    continue
                owned[pair.current].add(buffer.region)
                key = str(len(arrays))
                arrays[key] = _plain(tile_of(program.worker, pair.following))
                corners = [*buffer.region.lo, *buffer.region.hi]
                tiles[pair.current].append({"file": file, "key": key, "region": corners})
            if arrays:
                write_arrays(folder / file, arrays)
                files[file] = _digest(folder / file)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "step": step,
            "seed": seed,
            "model_digest": model_digest,
            "files": files,
            "tiles": tiles,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return target


def newest_checkpoint(directory: Path) -> Path:
    """The checkpoint of the latest step.

    Raises:
        UsageError: there is none.
    """
    found = [
        (int(match[1]), entry)
        for entry in (directory.iterdir() if directory.is_dir() else ())
        if (match := _NAME.fullmatch(entry.name)) and (entry / MANIFEST).is_file()
    ]
    if not found:
        raise UsageError(f"{directory} holds no checkpoint to resume from", hint="leave --resume out to begin anew")
    return max(found)[1]


class Checkpoint:
    """A checkpoint that was read, as a source of tiles (``state.TileSource``).

    Args:
        path: its folder.
        graph: of the model that is to go on.
        model_digest: of that model; "" if it has none.

    Raises:
        ModelError: it is no checkpoint, files are damaged, or it is another model's.
    """

    def __init__(self, path: Path, graph: Graph, model_digest: str) -> None:
        self._path = path
        self._graph = graph
        self._read: dict[str, Mapping[str, np.ndarray]] = {}
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if manifest["schema_version"] != SCHEMA_VERSION:
                raise ModelError(
                    f"{path} has schema version {manifest['schema_version']}; this tofu reads {SCHEMA_VERSION}"
                )
            self.step = int(manifest["step"])
            self.seed = int(manifest["seed"])
            stored = str(manifest["model_digest"])
            files = {str(name): str(digest) for name, digest in manifest["files"].items()}
            self._tiles = {
                str(name): tuple(_stored(entry) for entry in entries) for name, entries in manifest["tiles"].items()
            }
        except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelError(f"{path} is no checkpoint that can be read: {error}") from None
        if stored != model_digest:
            raise ModelError(f"{path} is a checkpoint of another model", facts=(f"its model is {stored or 'unnamed'}",))
        self._check(files)

    def holds(self, name: str) -> bool:
        """See ``TileSource.holds``."""
        return name in self._tiles

    def tile(self, name: str, region: Region) -> np.ndarray:
        """See ``TileSource.tile``."""
        dtype = numpy_dtype(self._graph.tensors[name].dtype)
        for stored in self._tiles[name]:
            if stored.region == region:
                return self._array(stored, dtype)
        found = np.empty(region.shape, dtype)
        for stored in self._tiles[name]:
            common = region.intersect(stored.region)
            if not common.is_empty:
                found[common.within(region)] = self._array(stored, dtype)[common.within(stored.region)]
        return found

    def _array(self, stored: StoredTile, dtype: np.dtype[Any]) -> np.ndarray:
        if stored.file not in self._read:
            with np.load(self._path / stored.file, allow_pickle=False) as arrays:
                self._read = {stored.file: {key: arrays[key] for key in arrays.files}}  # one file at a time
        return self._read[stored.file][stored.key].view(dtype).reshape(stored.region.shape)

    def _check(self, files: Mapping[str, str]) -> None:
        faults = []
        for name, digest in files.items():
            path = self._path / name
            if Path(name).name != name or not path.is_file():
                faults.append(f"{name} is missing")
            elif _digest(path) != digest:
                faults.append(f"{name} is not the file that was written: its digest differs")
        wanted = {pair.current for pair in self._graph.state}
        faults += [f"state {name!r} is not in it" for name in sorted(wanted - self._tiles.keys())]
        for name in sorted(wanted & self._tiles.keys()):
            if not _covers(self._tiles[name], self._graph.tensors[name], files):
                faults.append(f"state {name!r} is not covered by its tiles")
        if faults:
            raise ModelError(f"{self._path} cannot be resumed from", facts=tuple(faults))


def _covers(tiles: Sequence[StoredTile], tensor: Tensor, files: Mapping[str, str]) -> bool:
    whole = Region.whole(tensor.shape)
    missing: tuple[Region, ...] = (whole,)
    for tile in tiles:
        if tile.file not in files or tile.region.rank != whole.rank or not whole.contains(tile.region):
            return False
        missing = tuple(rest for part in missing for rest in part.subtract(tile.region))
    return not missing


def _stored(entry: Mapping[str, Any]) -> StoredTile:
    corners = [int(corner) for corner in entry["region"]]
    rank = len(corners) // 2
    return StoredTile(str(entry["file"]), str(entry["key"]), Region(tuple(corners[:rank]), tuple(corners[rank:])))


def _plain(array: np.ndarray) -> np.ndarray:
    """The bits as a type that npy files have a name for: bfloat16 as 16-bit integers."""
    return array if array.dtype.kind in "biuf" else array.view(np.uint16)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
