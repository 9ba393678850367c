"""Checkpoints: the state after a step, as the workers' tiles.

    DIR/step-00000010/
        worker0.npz       the tiles that worker 0 owns, by number; a tile that several own is the first one's
        ...
        manifest.json     written last: step, seed, digests of the model and of every file, which region of which state
                          each tile is, their types and shapes; how many rows or files were gone through, in which
                          order; the learning rates; and a digest of all that

A checkpoint is written beside its name, synced and then renamed, so it is there as a whole or not at all. It belongs to
a model and not to a plan: a run on another number of workers, or by another plan, takes each of its tiles from the
regions that the stored tiles have in common with it, as a fetch does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from planner.algebra.region import Region
from planner.artifacts.plan import digest
from planner.artifacts.program import WorkerProgram
from planner.errors import ModelError
from planner.graph.core.model import DType, Graph, Shape, StatePair, Tensor
from planner.records import Positive, Sha256, plain_record, reader
from planner.regular_file import digest_of
from planner.runtime.engine.core.interface import Engine
from planner.runtime.values.feed import Feed
from planner.runtime.values.npz import read_npz
from planner.runtime.values.results import write_arrays
from planner.strict_json import JsonError, Value, read_json
from planner.whole import whole_folder

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StoredTile:
    """A tile of a checkpoint."""

    told: ClassVar = "file key region=corners"

    file: str
    key: str
    """The name in the file."""
    region: Region

    @property
    def corners(self) -> tuple[int, ...]:
        """The low corner of its region, then the high one."""
        return *self.region.lo, *self.region.hi


@dataclass(frozen=True, slots=True)
class Passed:
    """The data that a run was going through, batch by batch, when a checkpoint was written."""

    told: ClassVar = "items per_batch shuffle?"

    items: Positive
    """Rows, or files."""
    per_batch: Positive
    shuffle: int | None
    """The seed of their order; None: as they lie."""

    @classmethod
    def of(cls, feed: Feed) -> Passed:
        """The position in a feed."""
        return cls(feed.batches.items, feed.batches.per_batch, feed.shuffle)


@dataclass(frozen=True, slots=True)
class StateForm:
    """The dtype and shape of a state."""

    dtype: DType
    shape: Shape


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """The contents of a checkpoint's manifest, beside its own digest."""

    schema_version: ClassVar = SCHEMA_VERSION
    told: ClassVar = "step seed model_digest data? lr? files tensors tiles"

    step: int
    """The number of steps so far."""
    seed: int
    """The seed of the values that were made up."""
    model_digest: str
    data: Passed | None
    """None: nothing was gone through in batches."""
    files: Mapping[str, Sha256]
    """The digest of each file."""
    tiles: Mapping[str, tuple[StoredTile, ...]]
    """The tiles of each state."""
    tensors: Mapping[str, StateForm] = field(default_factory=dict)
    """The type and shape of each state; manifests of earlier versions have none."""
    lr: str | None = None
    """The learning rates as ``--lr`` writes them; "": a function's or a list's; None: the model's own."""


def write_checkpoint(
    directory: Path,
    step: int,
    seed: int,
    model_digest: str,
    programs: Sequence[WorkerProgram],
    state: Sequence[StatePair],
    tensors: Mapping[str, Tensor],
    tile_of: Callable[[int, str], np.ndarray],
    engine: Engine | None = None,
    data: Passed | None = None,
    lr: str | None = None,
) -> Path:
    """Writes the state after a step; returns where.

    Several ranks call it together: each writes the files of its workers, and rank 0 renames the folder when all have.

    Args:
        directory: of all checkpoints of a run; made if it is not there.
        step: how many steps have been done.
        seed: of what was made up.
        model_digest: of the model that was planned.
        programs: of all workers.
        state: which states there are.
        tensors: those states, by name.
        tile_of: the memory of a worker's collected buffer, by worker and name.
        engine: of each process that has the tiles of some workers alone; None: all are here.
        data: what is gone through in batches; None: nothing is.
        lr: see ``CheckpointManifest``.

    Raises:
        UsageError: it cannot be written.
    """
    target = directory / f"step-{step:08}"
    shares = _shares(programs, state)
    own_workers = [program.worker for program in (programs if engine is None else engine.local_programs)]
    if engine is not None and not engine.reports:
        folder = Path(engine.spread(None, "to begin a checkpoint"))
        engine.gather(_write_shares(folder, own_workers, shares, tile_of), "to write a checkpoint")
        return target
    with whole_folder(target) as folder:
        # The other ranks write into the temporary folder, whose name only this rank knows.
        if engine is not None:
            engine.spread(str(folder.resolve()), "to begin a checkpoint")
        files = _write_shares(folder, own_workers, shares, tile_of)
        if engine is not None:
            for written in engine.gather(files, "to write its tiles"):
                files |= written
        tiles: dict[str, tuple[StoredTile, ...]] = {pair.current: () for pair in state}
        for worker, share in shares.items():
            for key, (current, _, region) in enumerate(share):
                tiles[current] += (StoredTile(_file_of(worker), str(key), region),)
        digests = {name: files[name] for name in map(_file_of, shares) if name in files}
        forms = {name: StateForm(tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        manifest = plain_record(CheckpointManifest(step, seed, model_digest, data, digests, tiles, forms, lr))
        manifest["digest"] = _digest(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return target


def _shares(programs: Sequence[WorkerProgram], state: Sequence[StatePair]) -> dict[int, list[tuple[str, str, Region]]]:
    """Which tiles each worker writes: state, buffer and region; of a tile that several own, the first one."""
    current = {pair.following: pair.current for pair in state}
    owned: set[tuple[str, Region]] = set()
    shares: dict[int, list[tuple[str, str, Region]]] = {program.worker: [] for program in programs}
    for program in programs:
        for name in program.collected:
            buffer = program.buffers[name]
            if buffer.tensor in current and (buffer.tensor, buffer.region) not in owned:
                owned.add((buffer.tensor, buffer.region))
                shares[program.worker].append((current[buffer.tensor], name, buffer.region))
    return shares


def _write_shares(
    folder: Path,
    workers: Sequence[int],
    shares: Mapping[int, Sequence[tuple[str, str, Region]]],
    tile_of: Callable[[int, str], np.ndarray],
) -> dict[str, str]:
    """Writes the files of workers that have tiles to write; their names and digests."""
    digests: dict[str, str] = {}
    for worker in workers:
        arrays = {str(key): _plain(tile_of(worker, name)) for key, (_, name, _) in enumerate(shares[worker])}
        if arrays:
            file = folder / _file_of(worker)
            write_arrays(file, arrays)
            digests[file.name] = digest_of(file)
    return digests


def _file_of(worker: int) -> str:
    return f"worker{worker}.npz"


class Checkpoint:
    """A checkpoint that was read, as a source of tiles (``state.TileSource``).

    Args:
        path: its folder.
        graph: of the model that is to go on; None: it is read for its own sake.
        model_digest: of that model; "" if it has none.

    Raises:
        ModelError: it is no checkpoint, files are damaged, or it is another model's.
    """

    def __init__(self, path: Path, graph: Graph | None = None, model_digest: str = "") -> None:
        self._path = path
        self._read: dict[str, Mapping[str, np.ndarray]] = {}
        try:
            content = read_json(path / MANIFEST)
            content.require_version(SCHEMA_VERSION)
            manifest = reader(CheckpointManifest, {DType: _dtype, Region: _region})(content)
            digest_stated = content.get("digest")  # earlier manifests have none
            is_changed = digest_stated is not None and digest_stated.text() != _digest(content.value)
        except JsonError as error:
            raise ModelError(f"{path} is no checkpoint that can be read: {error}") from None
        self.step, self.seed, self.data, self.lr = manifest.step, manifest.seed, manifest.data, manifest.lr
        self.model_digest, self._tiles = manifest.model_digest, manifest.tiles
        own = {name: Tensor(name, form.shape, form.dtype) for name, form in manifest.tensors.items()}
        if graph is not None and self.model_digest != model_digest:
            whose = self.model_digest or "unnamed"
            raise ModelError(f"{path} is a checkpoint of another model", facts=(f"its model is {whose}",))
        if graph is None and not own:
            raise ModelError(
                f"{path} does not say of what types and shapes its states are: an earlier tofu wrote it",
                hint="go on from it by `tofu run --resume`, which knows the model; -o there needs no step",
            )
        self.tensors: Mapping[str, Tensor] = own
        """The states, by name."""
        if graph is not None:
            self.tensors = {pair.current: graph.tensors[pair.current] for pair in graph.state}
        self._check(manifest.files, is_changed)

    def holds(self, name: str) -> bool:
        """See ``TileSource.holds``."""
        return name in self._tiles

    def tile(self, name: str, region: Region) -> np.ndarray:
        """See ``TileSource.tile``."""
        dtype = self.tensors[name].dtype.array_dtype
        for stored in self._tiles[name]:
            if stored.region == region:
                return self._array(stored, dtype)
        array = np.empty(region.shape, dtype)
        for stored in self._tiles[name]:
            common = region.intersect(stored.region)
            if not common.is_empty:
                array[common.within(region)] = self._array(stored, dtype)[common.within(stored.region)]
        return array

    def whole(self, name: str) -> np.ndarray:
        """All of a tensor that it has."""
        shape = self.tensors[name].shape
        return self.tile(name, Region.whole(shape)).reshape(shape)

    def _array(self, stored: StoredTile, dtype: np.dtype[Any]) -> np.ndarray:
        if stored.file not in self._read:
            self._read = {stored.file: self._arrays(stored.file)}  # one file at a time
        return self._read[stored.file][stored.key].view(dtype).reshape(stored.region.shape)

    def _arrays(self, file: str) -> dict[str, np.ndarray]:
        """The tiles of a file, which are as large as their regions."""
        sizes = {
            tile.key: tile.region.elements * self.tensors[name].dtype.item_bytes
            for name in self._tiles.keys() & self.tensors.keys()
            for tile in self._tiles[name]
            if tile.file == file
        }

        def wanted(declared: Mapping[str, np.ndarray]) -> Collection[str]:
            wrong = [key for key, size in sizes.items() if key not in declared or declared[key].nbytes != size]
            if wrong:
                raise ModelError(f"{self._path / file} does not hold the tiles that its manifest names")
            return sizes.keys()

        return read_npz(self._path / file, wanted)

    def _check(self, files: Mapping[str, str], is_changed: bool) -> None:
        faults = [f"{MANIFEST} is not the file that was written: its digest differs"] if is_changed else []
        for name, stated in files.items():
            path = self._path / name
            if Path(name).name != name or not path.is_file():
                faults.append(f"{name} is missing")
            elif digest_of(path) != stated:
                faults.append(f"{name} is not the file that was written: its digest differs")
        wanted = self.tensors.keys()
        faults += [f"state {name!r} is not in it" for name in sorted(wanted - self._tiles.keys())]
        for name in sorted(wanted & self._tiles.keys()):
            if not _covers(self._tiles[name], self.tensors[name], files):
                faults.append(f"state {name!r} is not covered by its tiles")
        if faults:
            raise ModelError(f"{self._path} cannot be resumed from", facts=tuple(faults))


def _covers(tiles: Sequence[StoredTile], tensor: Tensor, files: Mapping[str, str]) -> bool:
    frame = Region.whole(tensor.shape)
    missing: tuple[Region, ...] = (frame,)
    for tile in tiles:
        if tile.file not in files or tile.region.rank != frame.rank or not frame.contains(tile.region):
            return False
        missing = tuple(piece for part in missing for piece in part.subtract(tile.region))
    return not missing


def _digest(manifest: Mapping[str, Any]) -> str:
    """The sha256 of a manifest's members, but for the digest."""
    members = {key: value for key, value in manifest.items() if key != "digest"}
    return digest(json.dumps(members, sort_keys=True).encode())


def _region(corners: Value) -> Region:
    ends = corners.counts()
    if len(ends) % 2:
        raise corners.fault("is no box: a low corner, then a high one")
    return Region(ends[: len(ends) // 2], ends[len(ends) // 2 :])


def _dtype(name: Value) -> DType:
    if name.text() not in {dtype.value for dtype in DType}:
        raise name.fault(f"is {name.text()!r}, and no type")
    return DType(name.text())


def _plain(array: np.ndarray) -> np.ndarray:
    """The bits as a type that npy files have a name for: bfloat16 as 16-bit integers."""
    return array if array.dtype.kind in "biuf" else array.view(np.uint16)
