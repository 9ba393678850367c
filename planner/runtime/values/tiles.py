"""Tiles of workers, cut from whole arrays and put together again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import DifferenceError
from planner.graph.core.model import DType
from planner.runtime.engine.core.interface import Engine
from planner.runtime.values.state import part_of

_LAST_BITS: Final = 64.0
"""Units of the last place of a tensor's largest element: what sums of the same terms in another order may differ by."""


def load_tiles(engine: Engine, values: Mapping[str, np.ndarray], names: Collection[str] | None = None) -> None:
    """Fills loaded buffers, all or those of some tensors, with their regions of whole values."""
    engine.fill(lambda name, region: part_of(values[name], region), names)


def hand_out_tiles(engine: Engine, values: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    """Fills the loaded buffers of some tensors on all workers from whole values, which are where the engine reports.

    Args:
        engine: between iterations; of several ranks, all call this.
        values: whole values by name; empty where the engine does not report.
        names: of the tensors.
    """
    engine.hand_out(lambda name, region: part_of(values[name], region), names)


def gather_tiles(
    engine: Engine,
    names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    nearly_same: list[str] | None = None,
) -> dict[str, np.ndarray]:
    """Whole results from the collected tiles, where the engine reports; nothing elsewhere.

    Where several workers hold an element, the first one's is taken, and the others' must have the same bits.

    Args:
        engine: after an iteration.
        names: the tensors that are wanted.
        shapes: of those tensors.
        nearly_same: gets the places where floating-point numbers differ in the last bits, which is right on GPUs:
            atomic additions come in any order; None: they are differences, as on CPUs.

    Raises:
        DifferenceError: two workers hold different values of an element.
    """
    findings: list[str] = []
    wholes: dict[str, np.ndarray] = {}
    for group in engine.collect(names):
        if not engine.reports:
            continue
        for tensor in group:
            tiles = [
                (worker, engine.programs[worker].buffers[name].region, engine.array(worker, name))
                for worker, name in engine.tiles.get(tensor, ())
            ]
            wholes[tensor] = _join(tensor, tiles, shapes[tensor], findings, nearly_same)
    if findings:
        raise DifferenceError("workers that hold the same elements differ", facts=tuple(findings))
    return wholes


def _join(
    name: str,
    tiles: Sequence[tuple[int, Region, np.ndarray]],
    shape: tuple[int, ...],
    findings: list[str],
    nearly_same: list[str] | None,
) -> np.ndarray:
    space = index_space(shape)
    frame = Region.whole(space)
    assert tiles, f"no worker collects {name!r}"
    target = np.empty(space, tiles[0][2].dtype)
    placed: list[tuple[int, Region]] = []
    covered = 0
    for worker, region, held in tiles:
        array = held.reshape(region.shape)
        missing: tuple[Region, ...] = (region,)
        # The first holder's elements count: a later tile is compared where it overlaps them, and fills in the rest.
        for holder, before in placed:
            common = region.intersect(before)
            if common.is_empty:
                continue
            first, second = target[common.within(frame)], array[common.within(region)]
            if not _same_bits(second, first):
                is_near = nearly_same is not None and _differ_in_last_bits(first, second)
                where = nearly_same if is_near and nearly_same is not None else findings
                where.append(f"{name} {common}: workers {holder} and {worker}")
            missing = tuple(piece for part in missing for piece in part.subtract(before))
        for part in missing:
            target[part.within(frame)] = array[part.within(region)]
            covered += part.elements
        if missing:
            placed.append((worker, region))
    assert covered == target.size, f"the collected tiles of {name!r} leave {target.size - covered} elements open"
    return target.reshape(shape)


def _differ_in_last_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether floating-point numbers are as near as sums of the same terms in another order are."""
    if not DType(first.dtype.name).is_float:
        return False
    exact, peer = first.astype(np.float64), second.astype(np.float64)
    limit = _LAST_BITS * float(np.spacing(np.ones((), first.dtype))) * np.max(np.abs(exact), initial=0.0)
    return bool(np.all((np.abs(exact - peer) <= limit) | (np.isnan(exact) & np.isnan(peer)) | (exact == peer)))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool(np.array_equal(a.view(bits), b.view(bits)))
