"""Devices of several kinds: how cuts are laid on them, and in which proportions they are to divide.

Tofu (section 9) leaves devices of different speed and memory to others. Here a cut may divide in proportion to what its
groups have: of operations in a second, of bytes of their memory in a second, or of memory. So that one proportion is
right at a cut whatever the cuts outside it, each group of an outer cut has as many devices of each kind as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from planner.algebra.tiling import MOST_SHARES, coordinates, least_shares
from planner.graph.core.model import DType
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Device, DeviceGraph, Machine

_NEAR: Final = 0.01
"""A proportion in small numbers stands for one that differs by no more than this share."""


def is_laid_by_kinds(machine: Machine) -> bool:
    """Whether one cut is to part its devices by their speeds.

    They differ, in a proportion that is right at that cut, and are all equally near: else links say what cuts part.
    """
    if not has_several_speeds(machine):
        return False
    between = Interconnect(machine).seconds_per_byte
    apart = between[~np.eye(len(between), dtype=bool)]
    laid = laid_on_kinds(machine)
    ways = tuple(count for count in (laid.outer, laid.mixed, laid.inner) if count > 1)
    placed = [machine.devices[device] for device in laid.devices]
    return bool(np.ptp(apart) <= _NEAR * apart.mean()) and shares_by_cut(placed, ways) != ()


def has_several_speeds(machine: Machine) -> bool:
    """Whether its devices differ in speed, so that it matters which of them computes what."""
    return isinstance(machine, DeviceGraph) and len({device.speed for device in machine.devices}) > 1


@dataclass(frozen=True, slots=True)
class LaidOnKinds:
    """The layout of cuts on devices of several kinds."""

    outer: int
    """Equal groups, each with devices of all kinds."""
    mixed: int
    """Into what the one cut divides that parts devices of different kinds."""
    inner: int
    """Equal devices in each of its groups."""
    devices: tuple[int, ...]
    """Of each worker."""


def laid_on_kinds(machine: Machine) -> LaidOnKinds:
    """The layout of cuts on the devices of a machine that has several kinds, by speed.

    Equal groups are made, as many as can be, each with devices of all kinds, and one cut divides each of them. With as
    many devices of each kind that cut comes first, so that it parts equal devices from others.
    """
    by_kind: dict[Device, list[int]] = {}
    for number, device in enumerate(machine.devices):
        by_kind.setdefault(device.speed, []).append(number)
    members = list(by_kind.values())
    groups = gcd(*map(len, members))
    inner = machine.device_count // groups
    if inner == len(members):
        return LaidOnKinds(1, inner, groups, tuple(device for kind in members for device in kind))
    sizes = [len(kind) // groups for kind in members]
    devices = tuple(
        device
        for group in range(groups)
        for kind, size in zip(members, sizes, strict=True)
        for device in kind[group * size : (group + 1) * size]
    )
    return LaidOnKinds(groups, inner, 1, devices)


def shares_by_cut(devices: Sequence[Device], cuts: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The proportions of speed, memory's speed and memory in which each cut's groups differ; () if there are none.

    Args:
        devices: of each worker.
        cuts: of the plan, outermost first.
    """
    if len(set(devices)) == 1:
        return ()
    groups = coordinates(cuts)
    by_cut: list[tuple[tuple[int, ...], ...]] = []
    for cut, ways in enumerate(cuts):
        proportions = tuple(dict.fromkeys(_proportions(devices, groups, cut, ways)))
        by_cut.append(tuple(shares for shares in proportions if shares))
    return tuple(by_cut) if any(by_cut) else ()


def _proportions(devices: Sequence[Device], groups: np.ndarray, cut: int, ways: int) -> Iterator[tuple[int, ...]]:
    figures: tuple[Callable[[Device], float], ...] = (
        _operations,
        lambda device: (device.memory_bandwidth_bytes_per_s or 0) * device.efficiency.memory,
        lambda device: float(device.memory_bytes),
    )
    for figure in figures:
        values = [figure(device) for device in devices]
        if not all(values):
            continue
        of_group = [np.array(values)[groups[:, cut] == group] for group in range(ways)]
        # The parts that later cuts and others leave to a group are worth the same beside those of each other group.
        ratios = [group / of_group[0] for group in of_group]
        if all(np.ptp(ratio) <= _NEAR * ratio.mean() for ratio in ratios):
            yield _in_small_numbers([float(group.sum()) for group in of_group])


def _in_small_numbers(values: Sequence[float]) -> tuple[int, ...]:
    """A proportion in whole numbers that are as small as is near enough."""
    total = sum(values)
    for parts in range(len(values), MOST_SHARES + 1):
        shares = [max(1, round(parts * value / total)) for value in values]
        right = [sum(shares) * value / total for value in values]
        if all(abs(share - target) <= _NEAR * target for share, target in zip(shares, right, strict=True)):
            return least_shares(shares)
    return ()


def _operations(device: Device) -> float:
    """Of floats in a second; of float32 where there are several."""
    speeds = dict(device.compute_flop_per_s)
    return (speeds.get(DType.FLOAT32) or max(speeds.values(), default=0)) * device.efficiency.compute
