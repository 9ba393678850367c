"""How cuts are laid on devices of several kinds, and the proportions that are offered there."""

from __future__ import annotations

import pytest

from planner.graph.core.model import DType
from planner.machine.kinds import is_laid_by_kinds, laid_on_kinds, shares_by_cut
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink


def device(speed: float, memory: int = 8) -> Device:
    return Device(memory, ((DType.FLOAT32, speed),), speed)


def machine(*devices: Device, far: int | None = None) -> DeviceGraph:
    """Devices at one switch; one of them may be far from the others."""
    count = len(devices)
    links = (DeviceLink((number, count), 1e6 if number == far else 1e9) for number in range(count))
    return DeviceGraph("kinds", devices, tuple(links), ("switch",))


BOTH = ((DType.FLOAT32, 1e9), (DType.FLOAT16, 2e9))
FAST, SLOW, LARGE = device(2e9), device(1e9), device(1e9, 16)


@pytest.mark.parametrize(
    ("devices", "cuts", "placed"),
    [
        ((SLOW, FAST, SLOW), (1, 3, 1), (0, 2, 1)),
        ((FAST, SLOW, FAST, SLOW), (1, 2, 2), (0, 2, 1, 3)),
        ((FAST, FAST, SLOW, SLOW, SLOW, SLOW), (2, 3, 1), (0, 2, 3, 1, 4, 5)),
        ((FAST, SLOW, LARGE), (1, 3, 1), (0, 1, 2)),  # by speed: memory does not part them
        ((FAST, LARGE, SLOW, FAST), (1, 2, 2), (0, 3, 1, 2)),
    ],
)
def test_groups_have_as_many_of_each_kind(
    devices: tuple[Device, ...], cuts: tuple[int, int, int], placed: tuple[int, ...]
) -> None:
    laid = laid_on_kinds(machine(*devices))
    assert (laid.outer, laid.mixed, laid.inner) == cuts
    assert laid.devices == placed


@pytest.mark.parametrize(
    ("devices", "cuts", "shares"),
    [
        ((FAST, SLOW, SLOW), (3,), (((2, 1, 1),),)),
        ((FAST, FAST, SLOW, SLOW), (2, 2), (((2, 1),), ())),
        ((FAST, SLOW, FAST, SLOW), (2, 2), ((), ((2, 1),))),
        ((FAST, SLOW, SLOW, SLOW), (2, 2), ()),  # no proportion is right in both groups
        ((SLOW, SLOW, LARGE), (3,), (((1, 1, 2),),)),  # of memory
        ((device(3e9, 16), device(1e9)), (2,), (((3, 1), (2, 1)),)),
        ((device(1.004e9), SLOW), (2,), ()),  # nearly equal
        ((SLOW, SLOW), (2,), ()),
    ],
)
def test_proportions_are_those_of_figures(
    devices: tuple[Device, ...], cuts: tuple[int, ...], shares: tuple[tuple[tuple[int, ...], ...], ...]
) -> None:
    assert shares_by_cut(devices, cuts) == shares


def test_links_go_before_kinds() -> None:
    assert is_laid_by_kinds(machine(FAST, SLOW, SLOW))
    assert not is_laid_by_kinds(machine(FAST, SLOW, SLOW, far=1))
    assert not is_laid_by_kinds(machine(SLOW, SLOW))
    assert not is_laid_by_kinds(machine(SLOW, LARGE))  # memory alone parts nobody
    assert not is_laid_by_kinds(machine(SLOW, device(1.004e9)))
    assert not is_laid_by_kinds(machine(*(Device(8, speeds, 1e9) for speeds in (BOTH, BOTH[::-1]))))
