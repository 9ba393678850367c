"""From whole arrays to the workers' tiles, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import DifferenceError
from planner.program import Buffer
from planner.runtime.engine import Engine


def load_tiles(engine: Engine, values: Mapping[str, np.ndarray]) -> None:
    """Fills every loaded buffer with its region of the tensor's value."""
    for program in engine.programs:
        for name in program.loaded:
            buffer = program.buffers[name]
            np.copyto(engine.array(program.worker, name), tile_of(values[buffer.tensor], buffer))


def tile_of(value: np.ndarray, buffer: Buffer) -> np.ndarray:
    """The part of a whole array that a buffer holds, in the buffer's shape."""
    space = index_space(value.shape)
    return value.reshape(space)[buffer.region.within(Region.whole(space))].reshape(buffer.shape)


def gather_tiles(engine: Engine, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Whole results from the collected tiles.

    Where several workers hold an element, the first one's is taken, and the others' must have the same bits.

    Args:
        engine: after an iteration.
        names: the tensors that are wanted.
        shapes: of those tensors.

    Raises:
        DifferenceError: two workers hold different values of an element.
    """
    tiles: dict[str, list[tuple[int, Buffer, np.ndarray]]] = {name: [] for name in names}
    for program in engine.programs:
        for name in program.collected:
            buffer = program.buffers[name]
            if buffer.tensor in tiles:
                array = engine.array(program.worker, name).reshape(buffer.region.shape)
                tiles[buffer.tensor].append((program.worker, buffer, array))
    findings: list[str] = []
    wholes = {name: _join(name, tiles[name], shapes[name], findings) for name in names}
    if findings:
        raise DifferenceError("workers that hold the same elements differ", facts=tuple(findings))
    return wholes


def _join(
    name: str, tiles: Sequence[tuple[int, Buffer, np.ndarray]], shape: tuple[int, ...], findings: list[str]
) -> np.ndarray:
    space = index_space(shape)
    frame = Region.whole(space)
    assert tiles, f"no worker collects {name!r}"
    whole = np.empty(space, tiles[0][2].dtype)
    placed: list[tuple[int, Region]] = []
    covered = 0
    for worker, buffer, array in tiles:
        region = buffer.region
        missing: tuple[Region, ...] = (region,)
        for other, before in placed:
            common = region.intersect(before)
            if common.is_empty:
                continue
            if not _same_bits(array[common.within(region)], whole[common.within(frame)]):
                findings.append(f"{name} {common}: workers {other} and {worker}")
            missing = tuple(rest for part in missing for rest in part.subtract(before))
        for part in missing:
            whole[part.within(frame)] = array[part.within(region)]
            covered += part.elements
        if missing:
            placed.append((worker, region))
    assert covered == whole.size, f"the collected tiles of {name!r} leave {whole.size - covered} elements open"
    return whole.reshape(shape)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool(np.array_equal(a.view(bits), b.view(bits)))
